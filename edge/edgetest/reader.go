package edgetest

import (
	"context"
	"fmt"
	"maps"
	"sort"

	"fencepost/edge"
)

const (
	defaultPage = 50
	largestPage = 1000
)

func pageLimit(n int) (int, error) {
	if n == 0 {
		return defaultPage, nil
	}
	if n < 1 || n > largestPage {
		return 0, fmt.Errorf("%w: limit %d: 1 to %d", edge.ErrInvalid, n, largestPage)
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
	limit, err := pageLimit(f.Limit)
	if err != nil {
		return nil, err
	}
	out := []edge.Delivery{}
	err = m.view(ctx, "Deliveries", func(t *tx) error {
		all := t.byID()
		for i := len(all) - 1; i >= 0 && len(out) < limit; i-- {
			if selects(f, all[i]) {
				out = append(out, all[i].Delivery)
			}
		}
		return nil
	})
	return out, err
}

func selects(f edge.DeliveryFilter, d *delivery) bool {
	return (f.State == "" || d.State == f.State) &&
		(f.Handler == "" || d.Target.Handler == f.Handler) &&
		(f.Target == nil || d.Target == *f.Target) &&
		(f.Code == "" || d.Code == f.Code) &&
		(f.Event == 0 || d.Event == f.Event) &&
		(f.Before == 0 || d.ID < f.Before)
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
	limit, err := pageLimit(f.Limit)
	if err != nil {
		return nil, err
	}
	out := []edge.TargetInfo{}
	err = m.view(ctx, "Targets", func(t *tx) error {
		for at, tg := range t.targets {
			if (f.Handler == "" || at.Handler == f.Handler) &&
				(!f.OnlyStalled || tg.Stall != edge.NoStall) && before(f.After, at) {
				out = append(out, tg.TargetInfo)
			}
		}
		sort.Slice(out, func(i, j int) bool { return before(out[i].Target, out[j].Target) })
		out = out[:min(limit, len(out))]
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
	info := h.HandlerInfo
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
