package edgetest

import (
	"context"
	"fmt"

	"fencepost/edge"
)

// Cancel calls a delivery off.
func (m *Model) Cancel(ctx context.Context, id edge.DeliveryID) (edge.Delivery, error) {
	return m.one(ctx, "Cancel", id, func(t *tx, d *delivery) (*delivery, error) { return d, t.cancel(d) })
}

// one runs a verb on one delivery and returns what it answers.
func (m *Model) one(ctx context.Context, method string, id edge.DeliveryID, verb func(*tx, *delivery) (*delivery, error)) (edge.Delivery, error) {
	var out edge.Delivery
	err := m.update(ctx, method, func(t *tx) error {
		d, err := t.find(id)
		if err == nil {
			d, err = verb(t, d)
		}
		if err == nil {
			out = d.Delivery
		}
		return err
	})
	return out, err
}

func (t *tx) cancel(d *delivery) error {
	switch d.State {
	case edge.Held, edge.Pending:
		t.move(d, edge.Cancelled, edge.CodeCancelled)
	case edge.Leased:
		x := t.free(t.leaseOn(d), edge.OutcomeCancelled, edge.CodeCancelled, "")
		t.end(d, edge.Cancelled, edge.CodeCancelled, x)
	case edge.Running:
		if d.CancelMS == 0 {
			d.CancelMS = t.nowMS
			d.Version++
			t.committed(d, d.Execution, "")
		}
	case edge.Blocked:
		return illegal(d, edge.OnCancel, "use resolve")
	}
	return nil
}

// RetryNow makes a waiting retry due now.
func (m *Model) RetryNow(ctx context.Context, id edge.DeliveryID) (edge.Delivery, error) {
	return m.one(ctx, "RetryNow", id, func(t *tx, d *delivery) (*delivery, error) { return d, t.retryNow(d) })
}

func (t *tx) retryNow(d *delivery) error {
	if d.State != edge.Pending {
		return illegal(d, edge.OnRetryNow, "only what waits for a retry")
	}
	if d.DueMS > t.nowMS {
		d.DueMS = t.nowMS
		t.move(d, edge.Pending, d.Code)
	}
	return nil
}

// Bulk does one verb to many deliveries.
func (m *Model) Bulk(ctx context.Context, b edge.Bulk) ([]edge.BulkResult, error) {
	verb := map[edge.BulkVerb]func(*tx, *delivery) (*delivery, error){
		edge.BulkCancel:   func(t *tx, d *delivery) (*delivery, error) { return d, t.cancel(d) },
		edge.BulkRetryNow: func(t *tx, d *delivery) (*delivery, error) { return d, t.retryNow(d) },
		edge.BulkRedrive: func(t *tx, d *delivery) (*delivery, error) {
			return t.redrive(d, edge.Redrive{Delivery: d.ID, Again: b.Again, NewKey: b.NewKey})
		},
	}[b.Verb]
	if verb == nil {
		return nil, fmt.Errorf("%w: bulk verb %q", edge.ErrInvalid, b.Verb)
	}
	if len(b.Items) > edge.MaxBulk {
		return nil, fmt.Errorf("%w: %d items, the limit is %d", edge.ErrInvalid, len(b.Items), edge.MaxBulk)
	}
	var out []edge.BulkResult
	err := m.update(ctx, "Bulk", func(t *tx) error {
		out = make([]edge.BulkResult, len(b.Items))
		for i, item := range b.Items {
			d, err := t.find(item.Delivery)
			if err == nil && d.Version != item.Version {
				err = illegal(d, edge.Trigger(b.Verb), "it has changed since it was seen")
			}
			if err == nil {
				d, err = verb(t, d)
			}
			if out[i].Err = err; err == nil {
				out[i].Delivery = d.Delivery
			}
		}
		return nil
	})
	return out, err
}

// leaseOn is the lease on a leased or running delivery.
func (s *state) leaseOn(d *delivery) *edge.Lease {
	for _, l := range s.leases {
		if l.Delivery == d.ID {
			return l
		}
	}
	return nil
}

// Resolve decides a blocked delivery.
func (m *Model) Resolve(ctx context.Context, r edge.Resolution) (edge.Delivery, error) {
	on := "resolve " + edge.Trigger(r.As)
	switch r.As {
	case edge.ResolveSucceeded, edge.ResolveFailed, edge.ResolveRetry:
	default:
		return edge.Delivery{}, fmt.Errorf("%w: resolve as %q: succeeded, failed or retry", edge.ErrInvalid, r.As)
	}
	if r.Reason == "" {
		return edge.Delivery{}, fmt.Errorf("%w: reason: must not be empty", edge.ErrInvalid)
	}
	var out edge.Delivery
	err := m.update(ctx, "Resolve", func(t *tx) error {
		d, err := t.find(r.Delivery)
		switch {
		case err != nil:
			return err
		case d.State != edge.Blocked:
			return illegal(d, on, "only a blocked delivery is resolved")
		case d.Version != r.Version:
			return illegal(d, on, fmt.Sprintf("version %d was named, it is %d: look again", r.Version, d.Version))
		case r.As == edge.ResolveRetry && d.Target.Key == edge.RouteErrorKey:
			return illegal(d, on, "mend the route; it is re-evaluated then")
		}
		if r.As == edge.ResolveSucceeded {
			t.move(d, edge.Succeeded, edge.CodeResolved)
			out = d.Delivery
			return nil
		}
		t.move(d, edge.Failed, edge.CodeResolved)
		if r.As == edge.ResolveRetry {
			d = t.renewGeneration(d, d.Line, edge.Redrive{})
		}
		out = d.Delivery
		return nil
	})
	return out, err
}

// Redrive makes a new generation of a final delivery.
func (m *Model) Redrive(ctx context.Context, r edge.Redrive) (edge.Delivery, error) {
	return m.one(ctx, "Redrive", r.Delivery, func(t *tx, d *delivery) (*delivery, error) { return t.redrive(d, r) })
}

func (t *tx) redrive(d *delivery, r edge.Redrive) (*delivery, error) {
	switch {
	case !d.State.Final():
		return nil, illegal(d, edge.OnRedrive, "it is not final yet")
	case d.newer != 0:
		return nil, fmt.Errorf("%w: delivery %d has a newer generation, %d: redrive that one", edge.ErrConflict, d.ID, d.newer)
	case d.State == edge.Succeeded && !r.Again:
		return nil, illegal(d, edge.OnRedrive, "ask for it again to repeat the effect")
	case d.Target.Key == edge.RouteErrorKey:
		return nil, illegal(d, edge.OnRedrive, "its route never named a target")
	}
	tg := t.target(d.Target)
	line := edge.DeliveryID(0)
	if tg.Stall == edge.StallHalted && tg.Stalled == d.ID {
		line = d.Line
		t.unhalt(tg)
	}
	return t.renewGeneration(d, line, r), nil
}

// renewGeneration inserts the generation after d; line 0 is the tail.
func (t *tx) renewGeneration(d *delivery, line edge.DeliveryID, r edge.Redrive) *delivery {
	n := &delivery{bytes: d.bytes}
	n.Event, n.Target, n.Route = d.Event, d.Target, d.Route
	n.Generation, n.RedriveOf = d.Generation+1, d.ID
	n.Again = d.Again || r.Again && d.State == edge.Succeeded
	n.Ordered, n.Line, n.State = t.target(d.Target).strict(), line, edge.Pending
	n.Code = edge.CodeRedriven
	if line != 0 {
		n.Ordered = d.Ordered // it keeps the place, in the mode of before
	}
	if !r.NewKey {
		n.KeyOf = d.KeyOf
	}
	t.insert(n)
	d.newer = n.ID
	return n
}

// ResumeTarget ends a halt.
func (m *Model) ResumeTarget(ctx context.Context, at edge.Target) (edge.TargetInfo, error) {
	var out edge.TargetInfo
	err := m.update(ctx, "ResumeTarget", func(t *tx) error {
		tg, err := t.findTarget(at)
		if err != nil {
			return err
		}
		if tg.Stall != edge.StallHalted {
			return fmt.Errorf("%w: target %s is not halted", edge.ErrConflict, at)
		}
		t.unhalt(tg)
		out = tg.TargetInfo
		return nil
	})
	return out, err
}

func (s *state) findTarget(at edge.Target) (*target, error) {
	tg := s.targets[at]
	if tg == nil {
		return nil, fmt.Errorf("%w: target %s", edge.ErrNotFound, at)
	}
	return tg, nil
}

// SkipTarget lets the line go past its stall.
func (m *Model) SkipTarget(ctx context.Context, at edge.Target, version int64, reason, by string) (edge.TargetInfo, error) {
	var out edge.TargetInfo
	err := m.update(ctx, "SkipTarget", func(t *tx) error {
		tg, err := t.findTarget(at)
		if err != nil {
			return err
		}
		d := t.deliveries[tg.Stalled]
		switch {
		case tg.Stall == edge.StallHalted:
			t.unhalt(tg)
		case tg.Stall == edge.NoStall:
			return fmt.Errorf("%w: target %s is not stalled", edge.ErrConflict, at)
		case tg.Stall == edge.StallHeld:
			t.move(d, edge.Cancelled, edge.CodeTargetSkipped)
		case reason == "":
			return fmt.Errorf("%w: reason: must not be empty", edge.ErrInvalid)
		case d.Version != version:
			return illegal(d, edge.OnSkip, fmt.Sprintf("version %d was named, it is %d: look again", version, d.Version))
		default:
			t.move(d, edge.Failed, edge.CodeResolved)
		}
		out = tg.TargetInfo
		return nil
	})
	return out, err
}

// SetGate opens, closes or pauses a handler.
func (m *Model) SetGate(ctx context.Context, handler string, g edge.Gate, code string, resumeMS int64) (edge.HandlerInfo, error) {
	if g != edge.GateOn && g != edge.GateOff && g != edge.GatePaused {
		return edge.HandlerInfo{}, fmt.Errorf("%w: gate %q: on, off or paused", edge.ErrInvalid, g)
	}
	var out edge.HandlerInfo
	err := m.update(ctx, "SetGate", func(t *tx) error {
		h := t.handlers[handler]
		if h == nil {
			return fmt.Errorf("%w: handler %q", edge.ErrNotFound, handler)
		}
		if g == edge.GatePaused && resumeMS <= t.nowMS {
			return fmt.Errorf("%w: a pause must end in the future", edge.ErrInvalid)
		}
		row := &h.HandlerInfo
		if h.Gate == edge.GateMissing {
			row = &h.kept
		}
		row.Gate, row.GateCode, row.ResumeMS = g, code, 0
		switch g {
		case edge.GatePaused:
			row.ResumeMS = resumeMS
		case edge.GateOn:
			row.GateCode = ""
		}
		h.Version++
		out = t.handlerInfo(h)
		return nil
	})
	return out, err
}

// SetEpisode keeps the episode of a handler.
func (m *Model) SetEpisode(ctx context.Context, handler string, e edge.Episode) error {
	return m.update(ctx, "SetEpisode", func(t *tx) error {
		h := t.handlers[handler]
		if h == nil {
			return fmt.Errorf("%w: handler %q", edge.ErrNotFound, handler)
		}
		h.Episode = e
		return nil
	})
}

// Reroute gives a delivery that is blocked by a fault of its route its target.
func (m *Model) Reroute(ctx context.Context, id edge.DeliveryID, to edge.Routed) (edge.Delivery, error) {
	if to.Fault != "" || to.Handler == "" || to.Key == edge.RouteErrorKey || len(to.Key) > edge.MaxNameBytes {
		return edge.Delivery{}, fmt.Errorf("%w: reroute to %s:%s", edge.ErrInvalid, to.Handler, to.Key)
	}
	var out edge.Delivery
	err := m.update(ctx, "Reroute", func(t *tx) error {
		d, err := t.find(id)
		switch {
		case err != nil:
			return err
		case d.State != edge.Blocked || d.Code != edge.CodeRouteError:
			return illegal(d, edge.OnReroute, "only route_error is rerouted")
		case to.Handler != d.Target.Handler:
			return fmt.Errorf("%w: reroute from handler %s to %s", edge.ErrInvalid, d.Target.Handler, to.Handler)
		}
		at := edge.Target{Handler: to.Handler, Key: to.Key}
		if t.owed(d.Event, at) {
			t.move(d, edge.Cancelled, edge.CodeRouteReevaluated)
			out = d.Delivery
			return nil
		}
		old := t.target(d.Target)
		delete(old.open, d.ID)
		t.refresh(old)
		tg := t.target(at)
		t.lastDelivery++
		d.Target, d.Route, d.Line, d.Ordered = at, to.Route, t.lastDelivery, tg.strict()
		d.DueMS, d.ExpiresMS = t.nowMS, 0
		if to.TTLMS != 0 {
			d.ExpiresMS = t.nowMS + to.TTLMS
		}
		tg.open[d.ID] = d
		t.move(d, edge.Pending, edge.CodeRouteReevaluated)
		t.pruneTargets()
		out = d.Delivery
		return nil
	})
	return out, err
}

// owed says whether an event has a delivery to a target.
func (s *state) owed(n edge.EventID, at edge.Target) bool {
	for _, d := range s.deliveries {
		if d.Event == n && d.Target == at {
			return true
		}
	}
	return false
}
