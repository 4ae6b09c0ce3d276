package edgetest

import (
	"context"
	"fmt"
	"maps"
	"sort"
	"time"

	"fencepost/edge"
)

func pageLimit(n int) (int, error) {
	if n == 0 {
		return edge.DefaultPage, nil
	}
	if n < 1 || n > edge.MaxPage {
		return 0, fmt.Errorf("%w: limit %d: 1 to %d", edge.ErrInvalid, n, edge.MaxPage)
	}
	return n, nil
}

// Delivery returns one delivery.
func (m *Model) Delivery(ctx context.Context, id edge.DeliveryID) (edge.Delivery, error) {
	var out edge.Delivery
	err := m.view(ctx, "Delivery", func(t *tx) error {
		d, err := t.find(id)
		if err == nil {
			out = d.Delivery
		}
		return err
	})
	return out, err
}

// Deliveries returns a page, newest first.
func (m *Model) Deliveries(ctx context.Context, f edge.DeliveryFilter) ([]edge.Delivery, error) {
	p, err := m.ListDeliveries(ctx, f)
	return p.Deliveries, err
}

// ListDeliveries returns a page, newest first; it always looks at everything.
func (m *Model) ListDeliveries(ctx context.Context, f edge.DeliveryFilter) (edge.DeliveryPage, error) {
	limit, err := pageLimit(f.Limit)
	if err != nil {
		return edge.DeliveryPage{}, err
	}
	out := edge.DeliveryPage{Deliveries: []edge.Delivery{}}
	err = m.view(ctx, "Deliveries", func(t *tx) error {
		all := t.byID()
		place := func(d *delivery) edge.DeliveryID { return d.ID }
		if f.Target != nil && (f.State == edge.Held || f.State == edge.Pending || f.State == edge.Blocked) {
			place = func(d *delivery) edge.DeliveryID { return d.Line }
			sort.SliceStable(all, func(i, j int) bool { return all[i].Line < all[j].Line })
		}
		for i := len(all) - 1; i >= 0; i-- {
			if !t.selects(f, all[i]) || f.Before != 0 && place(all[i]) >= f.Before {
				continue
			}
			out.Deliveries = append(out.Deliveries, all[i].Delivery)
			if len(out.Deliveries) == limit {
				out.Next = place(all[i])
				break
			}
		}
		return nil
	})
	return out, err
}

func (t *tx) selects(f edge.DeliveryFilter, d *delivery) bool {
	e := t.events[d.Event]
	return (f.State == "" || d.State == f.State) &&
		(f.Handler == "" || d.Target.Handler == f.Handler) &&
		(f.Target == nil || d.Target == *f.Target) &&
		(f.Code == "" || d.Code == f.Code) &&
		(f.Event == 0 || d.Event == f.Event) &&
		(f.Type == "" || e.Type == f.Type) &&
		(f.Source == "" || e.Source == f.Source) &&
		(f.Subject == "" || e.Subject == f.Subject) &&
		(f.SinceMS == 0 || d.AcceptedMS >= f.SinceMS) &&
		(f.UntilMS == 0 || d.AcceptedMS < f.UntilMS) &&
		(!f.Newest || d.newer == 0)
}

// ListEvents returns a page of events, newest first.
func (m *Model) ListEvents(ctx context.Context, f edge.EventFilter) (edge.EventPage, error) {
	limit, err := pageLimit(f.Limit)
	if err != nil {
		return edge.EventPage{}, err
	}
	out := edge.EventPage{Events: []edge.EventInfo{}}
	err = m.view(ctx, "Events", func(t *tx) error {
		for n := t.lastEvent; n > 0 && out.Next == 0; n-- {
			e := t.events[n]
			if e == nil || !selectsEvent(f, &e.Event) {
				continue
			}
			x := edge.EventInfo{Event: cloneEvent(&e.Event), DataBytes: len(e.Data), Pruned: e.Data == nil}
			x.Data = nil
			out.Events = append(out.Events, x)
			if len(out.Events) == limit {
				out.Next = n
			}
		}
		return nil
	})
	return out, err
}

func selectsEvent(f edge.EventFilter, e *edge.Event) bool {
	return (f.Type == "" || e.Type == f.Type) &&
		(f.Source == "" || e.Source == f.Source) &&
		(f.Subject == "" || e.Subject == f.Subject) &&
		(f.ID == "" || e.ID == f.ID) &&
		(f.SinceMS == 0 || e.AcceptedMS >= f.SinceMS) &&
		(f.UntilMS == 0 || e.AcceptedMS < f.UntilMS) &&
		(f.Before == 0 || e.N < f.Before)
}

// Event returns one event.
func (m *Model) Event(ctx context.Context, id edge.EventID) (edge.Event, error) {
	var out edge.Event
	err := m.view(ctx, "Event", func(t *tx) error {
		e := t.events[id]
		if e == nil {
			return fmt.Errorf("%w: event %d", edge.ErrNotFound, id)
		}
		out = cloneEvent(&e.Event)
		return nil
	})
	return out, err
}

// Executions returns the kept executions of a delivery, oldest first.
func (m *Model) Executions(ctx context.Context, id edge.DeliveryID) ([]edge.Execution, error) {
	out := []edge.Execution{}
	err := m.view(ctx, "Executions", func(t *tx) error {
		d, err := t.find(id)
		if err != nil {
			return err
		}
		for _, e := range d.executions {
			out = append(out, t.executions[e].Execution)
		}
		return nil
	})
	return out, err
}

// Facts returns all that explains a delivery.
func (m *Model) Facts(ctx context.Context, id edge.DeliveryID) (edge.Facts, error) {
	var out edge.Facts
	err := m.view(ctx, "Facts", func(t *tx) error {
		d, err := t.find(id)
		if err != nil {
			return err
		}
		tg := t.target(d.Target)
		out = edge.Facts{
			Delivery: d.Delivery, Target: tg.TargetInfo, Handler: t.handlerInfo(t.handlers[d.Target.Handler]),
			Newer: d.newer, Held: t.heldByLive(d.Target.Handler), Doubted: t.clock.Doubted(),
		}
		for _, l := range t.leases {
			if l.Delivery == d.ID || d.Ordered && l.Target == d.Target {
				lease := *l
				lease.Token = 0 // the token stays inside
				out.Lease = &lease
			}
		}
		if n := len(d.executions); n > 0 {
			last := t.executions[d.executions[n-1]].Execution
			out.Last = &last
		}
		t.place(d, tg, &out)
		return nil
	})
	return out, err
}

// place finds what is before an open delivery in its line.
func (t *tx) place(d *delivery, tg *target, f *edge.Facts) {
	if d.State.Final() || !d.Ordered && tg.strict() {
		return
	}
	for _, o := range tg.line() {
		if !o.Ordered || d.Ordered && o.Line >= d.Line {
			continue // an unordered one waits for all that is left of the line
		}
		if f.Head == nil {
			head := o.Delivery
			f.Head = &head
		}
		f.Ahead = min(f.Ahead+1, 1000)
	}
}

func (t *tx) heldByLive(handler string) (n int) {
	for _, l := range t.leases {
		if o := t.openings[l.Owner]; o != nil && !o.closed && l.Delivery != 0 && l.Target.Handler == handler {
			n++
		}
	}
	return n
}

// Targets returns a page by handler and key.
func (m *Model) Targets(ctx context.Context, f edge.TargetFilter) ([]edge.TargetInfo, error) {
	p, err := m.ListTargets(ctx, f)
	return p.Targets, err
}

// ListTargets returns a page by handler and key; it always looks at everything.
func (m *Model) ListTargets(ctx context.Context, f edge.TargetFilter) (edge.TargetPage, error) {
	limit, err := pageLimit(f.Limit)
	if err != nil {
		return edge.TargetPage{}, err
	}
	out := edge.TargetPage{Targets: []edge.TargetInfo{}}
	err = m.view(ctx, "Targets", func(t *tx) error {
		all := []edge.TargetInfo{}
		for at, tg := range t.targets {
			if (f.Handler == "" || at.Handler == f.Handler) && (!f.OnlyStalled || tg.Stall != edge.NoStall) &&
				(f.Stall == "" || tg.Stall == f.Stall) && (!f.OnlyOpen || tg.Open > 0) && before(f.After, at) {
				all = append(all, tg.TargetInfo)
			}
		}
		sort.Slice(all, func(i, j int) bool { return before(all[i].Target, all[j].Target) })
		out.Targets = all[:min(limit, len(all))]
		if len(out.Targets) == limit {
			out.Next = out.Targets[limit-1].Target
		}
		return nil
	})
	return out, err
}

// Backlog returns what waits longest.
func (m *Model) Backlog(ctx context.Context, n int) (edge.Backlog, error) {
	out := edge.Backlog{InFlight: map[string]int{}}
	err := m.view(ctx, "Backlog", func(t *tx) error {
		out.SinceMS = t.nowMS - time.Minute.Milliseconds()
		for _, l := range t.leases {
			if l.Delivery != 0 {
				out.InFlight[l.Target.Handler]++
			}
		}
		oldest := map[edge.Target]*delivery{}
		for _, d := range t.byID() {
			if d.FinishedMS > out.SinceMS {
				out.Finished++
			}
			waits := d.State == edge.Held || d.State == edge.Pending || d.State == edge.Blocked
			if o := oldest[d.Target]; waits && (o == nil || d.Line < o.Line) {
				oldest[d.Target] = d
			}
		}
		for at, d := range oldest {
			out.Worst = append(out.Worst, edge.TargetBacklog{
				Target: t.target(at).TargetInfo, Oldest: d.ID, OldestMS: d.AcceptedMS, State: d.State, Code: d.Code, DueMS: d.DueMS,
			})
		}
		sort.Slice(out.Worst, func(i, j int) bool {
			a, b := out.Worst[i], out.Worst[j]
			return a.OldestMS < b.OldestMS || a.OldestMS == b.OldestMS && a.Oldest < b.Oldest
		})
		out.Worst = out.Worst[:min(n, len(out.Worst))]
		for _, e := range t.events {
			if out.OldestEventMS == 0 || e.AcceptedMS < out.OldestEventMS {
				out.OldestEventMS = e.AcceptedMS
			}
		}
		return nil
	})
	return out, err
}

func before(a, b edge.Target) bool {
	if a == (edge.Target{}) {
		return true
	}
	return a.Handler < b.Handler || a.Handler == b.Handler && a.Key < b.Key
}

// handlerInfo is a handler as it is shown now.
func (t *tx) handlerInfo(h *handler) edge.HandlerInfo {
	info := h.HandlerInfo.At(t.nowMS)
	if ready := h.Rate.ReadyMS(h.fullUS); ready > t.nowMS {
		info.RateReadyMS = ready
	}
	return info
}

// Handlers returns all handlers by name.
func (m *Model) Handlers(ctx context.Context) ([]edge.HandlerInfo, error) {
	out := []edge.HandlerInfo{}
	err := m.view(ctx, "Handlers", func(t *tx) error {
		for _, h := range t.handlers {
			out = append(out, t.handlerInfo(h))
		}
		sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
		return nil
	})
	return out, err
}

// Counters returns how many deliveries reached each final state (final_ and its
// name), how many are in each state now (state. and its name) and how many
// events were accepted.
func (m *Model) Counters(ctx context.Context) (map[string]int64, error) {
	var out map[string]int64
	err := m.view(ctx, "Counters", func(t *tx) error {
		out = maps.Clone(t.counters)
		for _, d := range t.deliveries {
			out["state."+string(d.State)]++
		}
		return nil
	})
	return out, err
}
