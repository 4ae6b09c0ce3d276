package sqlite

import (
	"context"
	"fmt"

	"fencepost/edge"
)

// Cancel calls a delivery off; see [edge.Operator].
func (s *Store) Cancel(ctx context.Context, id edge.DeliveryID) (edge.Delivery, error) {
	var answer edge.Delivery
	err := s.w.doEnd(ctx, func(tx *tx) error {
		d, t, err := tx.deliveryAndTarget(id)
		if err != nil {
			return err
		}
		if err := tx.cancel(d, t); err != nil {
			return err
		}
		answer = d.public(t)
		return nil
	})
	return answer, err
}

func (tx *tx) cancel(d *delivery, t *target) error {
	switch d.State {
	case edge.Blocked:
		return illegal(d, edge.OnCancel, "decide it: fencepost resolve")
	case edge.Running:
		return tx.askCancel(d, t)
	case edge.Held, edge.Pending, edge.Leased:
		return tx.cancelNow(d, t, edge.OnCancel, edge.CodeCancelled)
	}
	return nil // final: the same answer
}

func (tx *tx) askCancel(d *delivery, t *target) error {
	if d.CancelMS != 0 {
		return nil
	}
	const update = `UPDATE deliveries SET cancel_ms = ?, version = version + 1
	                WHERE id = ? AND state = 'running' AND cancel_ms IS NULL`
	ok, err := tx.guarded(update, tx.now, int64(d.ID))
	if err := mustChange(ok, err, "cancel", d.ID); err != nil {
		return err
	}
	d.CancelMS = tx.now
	d.Version++
	tx.changed(d, t, "")
	return nil
}

// cancelNow ends a delivery that has not started. A lease on it goes with it, so
// that its holder's start is refused.
func (tx *tx) cancelNow(d *delivery, t *target, on edge.Trigger, code string) error {
	leased := d.State == edge.Leased
	v := edge.Verdict{To: edge.Cancelled, Code: code, Attempts: d.Attempts, Losses: d.Losses}
	if err := tx.move(d, t, on, v, "", ""); err != nil {
		return err
	}
	if !leased {
		return nil
	}
	leases, err := tx.leases(`WHERE l.delivery = ?`, int64(d.ID))
	if err != nil {
		return err
	}
	for _, l := range leases {
		if _, err := tx.dropLease(t, l.token, false); err != nil {
			return err
		}
		if err := tx.endExecution(l.execution, edge.OutcomeCancelled, code, ""); err != nil {
			return err
		}
	}
	return nil
}

// Resolve decides a blocked delivery; see [edge.Operator].
func (s *Store) Resolve(ctx context.Context, r edge.Resolution) (edge.Delivery, error) {
	if r.Reason == "" {
		return edge.Delivery{}, fmt.Errorf("%w: reason: must not be empty", edge.ErrInvalid)
	}
	var answer edge.Delivery
	err := s.w.do(ctx, phaseSettle, func(tx *tx) error {
		d, t, err := tx.deliveryAndTarget(r.Delivery)
		if err != nil {
			return err
		}
		answer, err = tx.resolve(d, t, r)
		return err
	})
	return answer, err
}

func (tx *tx) resolve(d *delivery, t *target, r edge.Resolution) (edge.Delivery, error) {
	on, to := edge.OnResolveFailed, edge.Failed
	switch r.As {
	case edge.ResolveSucceeded:
		on, to = edge.OnResolveSucceeded, edge.Succeeded
	case edge.ResolveRetry:
		on = edge.OnResolveRetry
	case edge.ResolveFailed:
	default:
		return edge.Delivery{}, fmt.Errorf("%w: resolve as %q: use succeeded, failed or retry", edge.ErrInvalid, r.As)
	}
	if d.State != edge.Blocked {
		return edge.Delivery{}, illegal(d, on, "only a blocked delivery is resolved; a final one can be redriven")
	}
	if d.Version != r.Version {
		return edge.Delivery{}, illegal(d, on, fmt.Sprintf("it has changed since you saw it: version is %d, not %d", d.Version, r.Version))
	}
	if r.As == edge.ResolveRetry && d.block == blockRoute {
		return edge.Delivery{}, illegal(d, on, "its route named no target yet; mend the route, which routes it again")
	}
	execution := d.Execution
	if d.block != blockOutcome && execution != 0 {
		// What waited for something else than evidence has no open recovery;
		// the decision is kept in the same place.
		if err := tx.openRecovery(execution, d.ID); err != nil {
			return edge.Delivery{}, err
		}
	}
	v := edge.Verdict{To: to, Code: edge.CodeResolved, Attempts: d.Attempts, Losses: d.Losses}
	if err := tx.move(d, t, on, v, "", ""); err != nil {
		return edge.Delivery{}, err
	}
	if err := tx.closeRecovery(execution, string(r.As), r.Reason, r.By); err != nil {
		return edge.Delivery{}, err
	}
	tx.count("resolved_"+string(r.As), 1)
	if r.As != edge.ResolveRetry {
		return d.public(t), nil
	}
	n, err := tx.nextGeneration(d, t, d.Line, false, false)
	if err != nil {
		return edge.Delivery{}, err
	}
	return n.public(t), nil
}

// nextGeneration makes the new delivery of a redrive. Expiry is not inherited.
func (tx *tx) nextGeneration(d *delivery, t *target, line edge.DeliveryID, again, newKey bool) (*delivery, error) {
	n := &delivery{target: t.id, bytes: d.bytes}
	n.ID, n.Event, n.Generation, n.RedriveOf = tx.nextDelivery(), d.Event, d.Generation+1, d.ID
	n.KeyOf, n.Again, n.Route, n.Ordered = d.KeyOf, d.Again || again, d.Route, t.slots == 1
	if n.Line = line; line == 0 {
		n.Line = n.ID
	} else {
		n.Ordered = d.Ordered // the place is in the line that d was in
	}
	if newKey {
		n.KeyOf = n.ID
	}
	n.State, n.DueMS, n.AcceptedMS, n.Version, n.Code = edge.Pending, tx.now, tx.now, 1, edge.CodeRedriven
	tx.count("redrives", 1)
	return n, tx.insertDelivery(n, t)
}

// Redrive makes a new generation; see [edge.Operator].
func (s *Store) Redrive(ctx context.Context, r edge.Redrive) (edge.Delivery, error) {
	var answer edge.Delivery
	err := s.w.do(ctx, phaseSettle, func(tx *tx) error {
		d, t, err := tx.deliveryAndTarget(r.Delivery)
		if err != nil {
			return err
		}
		answer, err = tx.redrive(d, t, r)
		return err
	})
	return answer, err
}

func (tx *tx) redrive(d *delivery, t *target, r edge.Redrive) (edge.Delivery, error) {
	switch d.State {
	case edge.Failed, edge.Cancelled, edge.Expired:
	case edge.Succeeded:
		if !r.Again {
			return edge.Delivery{}, illegal(d, edge.OnRedrive, "it has succeeded; to let the effect happen once more, ask for it: --again")
		}
	default:
		return edge.Delivery{}, illegal(d, edge.OnRedrive, "only a final delivery is redriven")
	}
	if t.key == edge.RouteErrorKey {
		return edge.Delivery{}, illegal(d, edge.OnRedrive, "its route never named a target; accept the event again under a new id")
	}
	var newer edge.DeliveryID
	err := tx.row(`SELECT id FROM deliveries WHERE redrive_of = ?`, int64(d.ID)).Scan(&newer)
	if err == nil {
		return edge.Delivery{}, illegal(d, edge.OnRedrive, fmt.Sprintf("it was redriven before; the newer generation is %d", newer))
	}
	if !noRows(err) {
		return edge.Delivery{}, err
	}
	var pruned bool
	if err := tx.row(`SELECT data IS NULL FROM events WHERE id = ?`, int64(d.Event)).Scan(&pruned); err != nil {
		return edge.Delivery{}, err
	}
	if pruned {
		return edge.Delivery{}, illegal(d, edge.OnRedrive, "the event's data is no longer kept")
	}
	// The delivery that a halt names gives its place in line to its redrive,
	// and the halt ends in the same move.
	line := edge.DeliveryID(0)
	if t.stall == edge.StallHalted && t.stalled == d.ID {
		line = d.Line
		t.stall, t.stalled = edge.NoStall, 0
	}
	n, err := tx.nextGeneration(d, t, line, r.Again && d.State == edge.Succeeded, r.NewKey)
	if err != nil {
		return edge.Delivery{}, err
	}
	return n.public(t), nil
}

// RetryNow makes a waiting retry due now; see [edge.Operator].
func (s *Store) RetryNow(ctx context.Context, id edge.DeliveryID) (edge.Delivery, error) {
	var answer edge.Delivery
	err := s.w.do(ctx, phaseSettle, func(tx *tx) error {
		d, t, err := tx.deliveryAndTarget(id)
		if err != nil {
			return err
		}
		if err := tx.retryNow(d, t); err != nil {
			return err
		}
		answer = d.public(t)
		return nil
	})
	return answer, err
}

func (tx *tx) retryNow(d *delivery, t *target) error {
	if d.State != edge.Pending {
		return illegal(d, edge.OnRetryNow, "only a delivery that waits is tried sooner; a final one can be redriven, a blocked one resolved")
	}
	if d.DueMS <= tx.now {
		return nil // the same answer
	}
	v := edge.Verdict{To: edge.Pending, Code: d.Code, DueMS: tx.now, Attempts: d.Attempts, Losses: d.Losses}
	if err := tx.move(d, t, edge.OnRetryNow, v, "", ""); err != nil {
		return err
	}
	tx.count("retries_now", 1)
	return nil
}

// ResumeTarget ends a halt; see [edge.Operator].
func (s *Store) ResumeTarget(ctx context.Context, name edge.Target) (edge.TargetInfo, error) {
	return s.onTarget(ctx, name, func(tx *tx, t *target) error {
		if t.stall != edge.StallHalted {
			return fmt.Errorf("%w: %s is not halted; a held or blocked head is decided, cancelled or skipped", edge.ErrConflict, name)
		}
		tx.endHalt(t)
		return nil
	})
}

func (tx *tx) endHalt(t *target) {
	t.stall, t.stalled = edge.NoStall, 0
	tx.count("resumes", 1)
	tx.touch(t)
}

// SkipTarget lets the line go past its stall; see [edge.Operator].
func (s *Store) SkipTarget(ctx context.Context, name edge.Target, version int64, reason, by string) (edge.TargetInfo, error) {
	return s.onTarget(ctx, name, func(tx *tx, t *target) error {
		switch t.stall {
		case edge.StallHalted:
			tx.endHalt(t)
			return nil
		case edge.StallHeld, edge.StallBlocked:
		default:
			return fmt.Errorf("%w: %s is not stalled; there is nothing to skip", edge.ErrConflict, name)
		}
		d, err := tx.delivery(t.stalled)
		if err != nil {
			return err
		}
		if d.State == edge.Held {
			return tx.cancelNow(d, t, edge.OnSkip, edge.CodeTargetSkipped)
		}
		if reason == "" {
			return fmt.Errorf("%w: reason: must not be empty", edge.ErrInvalid)
		}
		_, err = tx.resolve(d, t, edge.Resolution{Delivery: d.ID, Version: version, As: edge.ResolveFailed, Reason: reason, By: by})
		return err
	})
}

func (s *Store) onTarget(ctx context.Context, name edge.Target, act func(*tx, *target) error) (edge.TargetInfo, error) {
	var info edge.TargetInfo
	err := s.w.do(ctx, phaseSettle, func(tx *tx) error {
		var t *target
		var err error
		if h := tx.w.hands.byName[name.Handler]; h != nil {
			t, err = tx.findTarget(h, name.Key)
		}
		if err != nil {
			return err
		}
		if t == nil {
			return fmt.Errorf("%w: target %s", edge.ErrNotFound, name)
		}
		if err := act(tx, t); err != nil {
			return err
		}
		if err := tx.flush(); err != nil {
			return err
		}
		info = t.public()
		return nil
	})
	return info, err
}

func (t *target) public() edge.TargetInfo {
	return edge.TargetInfo{
		Target: t.name(), Slots: t.slots, Busy: t.busy, Open: t.open, ReadyMS: t.readyMS.Int64,
		Stall: t.stall, Stalled: t.stalled, Version: t.version,
	}
}

// Reroute gives a delivery blocked with route_error its target; see
// [edge.Operator]. A delivery cannot change its target, so it is moved: the row
// keeps its id and joins the tail of the line.
func (s *Store) Reroute(ctx context.Context, id edge.DeliveryID, to edge.Routed) (edge.Delivery, error) {
	var answer edge.Delivery
	err := s.w.do(ctx, phaseSettle, func(tx *tx) error {
		d, t, err := tx.deliveryAndTarget(id)
		if err != nil {
			return err
		}
		answer, err = tx.reroute(d, t, to)
		return err
	})
	return answer, err
}

func (tx *tx) reroute(d *delivery, old *target, to edge.Routed) (edge.Delivery, error) {
	if d.State != edge.Blocked || d.block != blockRoute {
		return edge.Delivery{}, illegal(d, edge.OnReroute, "only a delivery blocked with route_error is routed again")
	}
	if to.Fault != "" || to.Handler != old.handler.name || to.Key == edge.RouteErrorKey || len(to.Key) > edge.MaxNameBytes {
		return edge.Delivery{}, fmt.Errorf("%w: reroute of delivery %d: no usable target of handler %s", edge.ErrInvalid, d.ID, old.handler.name)
	}
	t, err := tx.ensureTarget(old.handler, to.Key)
	if err != nil {
		return edge.Delivery{}, err
	}
	var other edge.DeliveryID
	const twin = `SELECT id FROM deliveries WHERE event = ? AND target = ? AND id <> ? LIMIT 1`
	err = tx.row(twin, int64(d.Event), t.id, int64(d.ID)).Scan(&other)
	if err == nil {
		v := edge.Verdict{To: edge.Cancelled, Code: edge.CodeRouteReevaluated, Attempts: d.Attempts, Losses: d.Losses}
		if err := tx.move(d, old, edge.OnReroute, v, "", ""); err != nil {
			return edge.Delivery{}, err
		}
		return d.public(old), nil
	}
	if !noRows(err) {
		return edge.Delivery{}, err
	}
	v := edge.Verdict{To: edge.Pending, Code: edge.CodeRouteReevaluated, DueMS: tx.now, Attempts: d.Attempts, Losses: d.Losses}
	if err := tx.move(d, old, edge.OnReroute, v, "", ""); err != nil {
		return edge.Delivery{}, err
	}
	line := tx.nextDelivery() // the tail, at this moment
	d.Route, d.ExpiresMS = to.Route, 0
	if to.TTLMS != 0 {
		d.ExpiresMS = tx.now + to.TTLMS
	}
	const update = `UPDATE deliveries SET target = ?, ordered = ?, line = ?, route = ?, expires_ms = ? WHERE id = ? AND state = 'pending'`
	ok, err := tx.guarded(update, t.id, t.slots == 1, int64(line), d.Route, orNil(d.ExpiresMS), int64(d.ID))
	if err := mustChange(ok, err, "reroute", d.ID); err != nil {
		return edge.Delivery{}, err
	}
	d.target, d.Ordered, d.Line = t.id, t.slots == 1, line
	old.open--
	old.kept--
	t.open++
	t.kept++
	if d.Ordered {
		t.openOrdered++
	}
	tx.touch(old)
	tx.touch(t)
	tx.changes[len(tx.changes)-1].Target = t.name() // where it is now
	return d.public(t), nil
}
