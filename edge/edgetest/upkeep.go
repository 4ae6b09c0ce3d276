package edgetest

import (
	"context"
	"sort"

	"fencepost/edge"
)

// Expire expires held and pending deliveries whose time has passed.
func (m *Model) Expire(ctx context.Context, limit int) (edge.Swept, error) {
	var out edge.Swept
	err := m.update(ctx, "Expire", func(t *tx) error {
		if t.clock.Doubted() {
			return nil
		}
		var waiting []*delivery
		for _, d := range t.byID() {
			if d.ExpiresMS != 0 && (d.State == edge.Held || d.State == edge.Pending) {
				waiting = append(waiting, d)
			}
		}
		sort.SliceStable(waiting, func(i, j int) bool { return waiting[i].ExpiresMS < waiting[j].ExpiresMS })
		for _, d := range waiting {
			switch {
			case d.ExpiresMS > t.nowMS:
				out.Next = d.ExpiresMS
				return nil
			case out.Done == limit:
				out.More, out.Next = true, d.ExpiresMS
				return nil
			}
			t.move(d, edge.Expired, edge.CodeExpired)
			out.Done++
		}
		return nil
	})
	return out, err
}

// Prune removes what p no longer keeps.
func (m *Model) Prune(ctx context.Context, p edge.PrunePolicy) (edge.Swept, error) {
	var out edge.Swept
	err := m.update(ctx, "Prune", func(t *tx) error {
		if t.clock.Doubted() {
			return nil
		}
		t.adopt()
		t.pruneBodies(p, &out)
		bound := p.SucceededBytes
		if bound > 0 {
			bound = max(bound-t.unroutedBytes(), 1)
		}
		t.pruneClass(true, p.SucceededBeforeMS, bound, p.Limit, &out)
		t.pruneClass(false, p.FailedBeforeMS, p.FailedBytes, p.Limit, &out)
		t.pruneEvents(p, &out)
		t.pruneRequests(p, &out)
		t.pruneTargets()
		return nil
	})
	return out, err
}

// noteDoubt extends the span of doubted readings by now.
func (t *tx) noteDoubt() {
	if !t.clock.Doubted() {
		return
	}
	now := max(t.nowMS, 1)
	if t.doubtFrom == 0 || now < t.doubtFrom {
		t.doubtFrom = now
	}
	t.doubtTo = max(t.doubtTo, now)
}

// adopt lets what finished at doubted readings count as finished now.
func (t *tx) adopt() {
	if t.doubtFrom == 0 {
		return
	}
	as := t.nowMS
	if as >= t.doubtFrom && as <= t.doubtTo {
		as = t.doubtTo + 1
	}
	for _, d := range t.deliveries {
		if d.State.Final() && d.FinishedMS >= t.doubtFrom && d.FinishedMS <= t.doubtTo {
			d.FinishedMS = as
		}
	}
	t.doubtFrom, t.doubtTo = 0, 0
}

// pruneClass drops the oldest final deliveries of a class, that of those that
// succeeded or that of the others: what finished before a time, and more while
// the class holds more than its bytes; never what a stall names.
func (t *tx) pruneClass(succeeded bool, beforeMS, bound int64, limit int, out *edge.Swept) {
	var class []*delivery
	held := int64(0)
	for _, d := range t.byID() {
		if !d.State.Final() || (d.State == edge.Succeeded) != succeeded {
			continue
		}
		held += d.bytes
		if t.target(d.Target).Stalled != d.ID {
			class = append(class, d)
		}
	}
	sort.SliceStable(class, func(i, j int) bool { return class[i].FinishedMS < class[j].FinishedMS })
	for _, d := range class {
		if d.FinishedMS >= beforeMS && (bound <= 0 || held <= bound) {
			return
		}
		if out.Done == limit {
			out.More = true
			return
		}
		held -= d.bytes
		t.forget(d)
		out.Done++
	}
}

func (t *tx) forget(d *delivery) {
	for _, e := range d.executions {
		delete(t.executions, e)
	}
	delete(t.deliveries, d.ID)
	if !t.owedEvents()[d.Event] {
		t.events[d.Event].Data = nil // the body goes with the last delivery
	}
}

// owedEvents is the events that have deliveries.
func (t *tx) owedEvents() map[edge.EventID]bool {
	owed := map[edge.EventID]bool{}
	for _, d := range t.deliveries {
		owed[d.Event] = true
	}
	return owed
}

// unroutedBytes is the data of events that no route matched.
func (t *tx) unroutedBytes() int64 {
	owed, n := t.owedEvents(), int64(0)
	for id, e := range t.events {
		if !owed[id] {
			n += int64(len(e.Data))
		}
	}
	return n
}

// pruneBodies drops the data of old events that no route matched, and more, the
// oldest first, while the class of what succeeded holds more than its bytes.
func (t *tx) pruneBodies(p edge.PrunePolicy, out *edge.Swept) {
	held := t.unroutedBytes()
	for _, d := range t.deliveries {
		if d.State == edge.Succeeded {
			held += d.bytes
		}
	}
	owed := t.owedEvents()
	for id := edge.EventID(1); id <= t.lastEvent; id++ {
		e := t.events[id]
		if e == nil || owed[id] || e.Data == nil {
			continue
		}
		over := p.SucceededBytes > 0 && held > p.SucceededBytes
		if e.AcceptedMS >= p.SucceededBeforeMS && !over || out.Done == p.Limit {
			continue
		}
		held -= int64(len(e.Data))
		e.Data = nil
		out.Done++
	}
}

// pruneEvents drops the skeletons and consumptions of old events.
func (t *tx) pruneEvents(p edge.PrunePolicy, out *edge.Swept) {
	owed := t.owedEvents()
	for n, e := range t.events {
		if owed[n] {
			continue
		}
		if e.AcceptedMS >= p.DedupeBeforeMS {
			continue
		}
		if out.Done == p.Limit {
			out.More = true
			return
		}
		delete(t.events, n)
		delete(t.identities, identity{e.Source, e.Event.ID})
		for c := range t.consumed {
			if c.event == n {
				delete(t.consumed, c)
			}
		}
		out.Done++
	}
}

// pruneTargets drops targets without deliveries, consumptions and leases.
func (t *tx) pruneTargets() {
	used := map[edge.Target]bool{}
	for _, d := range t.deliveries {
		used[d.Target] = true
	}
	for c := range t.consumed {
		used[c.target] = true
	}
	for _, l := range t.leases {
		used[l.Target] = true
	}
	for at := range t.targets {
		if !used[at] {
			delete(t.targets, at)
		}
	}
}

// ClockStepped mends stored times after a step. The model does all in one call.
func (m *Model) ClockStepped(ctx context.Context, stepMS, maxDelayMS, sinceMS int64, limit int) (edge.Swept, error) {
	var out edge.Swept
	err := m.update(ctx, "ClockStepped", func(t *tx) error {
		if stepMS < 0 {
			out.Done = t.steppedBack(maxDelayMS)
		} else if sinceMS > 0 {
			out.Done = t.steppedForward(stepMS, sinceMS)
		}
		for _, tg := range t.targets {
			t.refresh(tg)
		}
		return nil
	})
	return out, err
}

func (t *tx) steppedBack(maxDelayMS int64) (done int) {
	latest := t.nowMS + maxDelayMS
	for _, d := range t.byID() {
		if d.State == edge.Pending && d.DueMS > latest {
			d.DueMS = latest
			d.Version++
			t.committed(d, 0, "")
			done++
		}
	}
	for _, h := range t.handlers {
		h.fullUS = h.Rate.Clamp(h.fullUS, t.nowMS)
		if h.Gate == edge.GatePaused && h.ResumeMS > latest {
			h.ResumeMS = latest
			h.Version++
			done++
		}
	}
	for _, tg := range t.targets {
		tg.servedMS = min(tg.servedMS, t.nowMS)
	}
	return done
}

func (t *tx) steppedForward(stepMS, sinceMS int64) (done int) {
	for _, d := range t.byID() {
		doubtful := func(ms int64) bool { return ms >= sinceMS && ms <= t.nowMS-stepMS }
		accepted, begun := doubtful(d.AcceptedMS), doubtful(d.FirstStartMS)
		if d.State.Final() || !accepted && !begun {
			continue
		}
		if accepted && d.ExpiresMS != 0 {
			d.ExpiresMS += stepMS
		}
		if begun {
			d.FirstStartMS += stepMS
		}
		if d.State == edge.Pending && d.Attempts+d.Losses > 0 {
			d.DueMS += stepMS
		}
		d.Version++
		t.committed(d, 0, "")
		done++
	}
	return done
}
