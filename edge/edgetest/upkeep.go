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
		old := t.prunable(p.FinalBeforeMS)
		for _, d := range old {
			if out.Done == p.Limit {
				out.More = true
				return nil
			}
			t.forget(d)
			out.Done++
		}
		t.pruneEvents(p, &out)
		t.pruneTargets()
		return nil
	})
	return out, err
}

// prunable is the final deliveries that finished before a time and that no
// stall names, the oldest first.
func (t *tx) prunable(beforeMS int64) []*delivery {
	var old []*delivery
	for _, d := range t.byID() {
		if d.State.Final() && d.FinishedMS < beforeMS && t.target(d.Target).Stalled != d.ID {
			old = append(old, d)
		}
	}
	sort.SliceStable(old, func(i, j int) bool { return old[i].FinishedMS < old[j].FinishedMS })
	return old
}

func (t *tx) forget(d *delivery) {
	for _, e := range d.executions {
		delete(t.executions, e)
	}
	delete(t.deliveries, d.ID)
}

// pruneEvents drops the bodies of events without deliveries, and later their
// skeletons and consumptions.
func (t *tx) pruneEvents(p edge.PrunePolicy, out *edge.Swept) {
	owed := map[edge.EventID]bool{}
	for _, d := range t.deliveries {
		owed[d.Event] = true
	}
	for n, e := range t.events {
		if owed[n] {
			continue
		}
		if e.AcceptedMS < p.FinalBeforeMS {
			e.Data = nil
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
