package sqlite

import (
	"context"
	"fmt"

	"fencepost/edge"
)

// Settle ends a started execution; see [edge.Dispatch].
func (s *Store) Settle(ctx context.Context, st edge.Settlement) (edge.Settled, error) {
	return s.end(ctx, st, true)
}

// Release ends an execution that has not started; see [edge.Dispatch].
func (s *Store) Release(ctx context.Context, st edge.Settlement) (edge.Settled, error) {
	return s.end(ctx, st, false)
}

func (s *Store) end(ctx context.Context, st edge.Settlement, started bool) (edge.Settled, error) {
	on, err := endTrigger(st.Outcome, started)
	if err != nil {
		return edge.Settled{}, err
	}
	if !edge.ValidCode(st.Code) {
		return edge.Settled{}, fmt.Errorf("%w: result code %q", edge.ErrInvalid, st.Code)
	}
	if len(st.FollowUps) > 0 && st.Outcome != edge.OutcomeSucceeded {
		return edge.Settled{}, fmt.Errorf("%w: only a succeeded settlement may carry follow-up events", edge.ErrInvalid)
	}
	if len(st.FollowUps) > edge.MaxFollowUps {
		return edge.Settled{}, fmt.Errorf("%w: %d follow-up events, the limit is %d", edge.ErrInvalid, len(st.FollowUps), edge.MaxFollowUps)
	}
	e := ending{Settlement: st, on: on}
	for i := range st.FollowUps {
		p := prepare(&st.FollowUps[i])
		p.followUp = true
		e.followUps = append(e.followUps, p)
	}
	var answer edge.Settled
	err = s.w.doEnd(ctx, func(tx *tx) error {
		var err error
		answer, err = tx.end(&e)
		return err
	})
	return answer, err
}

// ending is a settlement as the writer works on it.
type ending struct {
	edge.Settlement
	on        edge.Trigger
	followUps []submission
}

// release reports whether e ends an execution that has not started.
func (e *ending) release() bool {
	switch e.on {
	case edge.OnReleaseRetry, edge.OnReleaseDefer, edge.OnReleaseInterrupt, edge.OnReleaseBlock:
		return true
	}
	return false
}

func endTrigger(o edge.Outcome, started bool) (edge.Trigger, error) {
	if !started {
		switch o {
		case edge.OutcomeRetry:
			return edge.OnReleaseRetry, nil
		case edge.OutcomeDeferred:
			return edge.OnReleaseDefer, nil
		case edge.OutcomeInterrupted:
			return edge.OnReleaseInterrupt, nil
		case edge.OutcomeBlocked:
			return edge.OnReleaseBlock, nil
		}
		return "", fmt.Errorf("%w: an execution that has not started cannot end as %q", edge.ErrInvalid, o)
	}
	switch o {
	case edge.OutcomeSucceeded:
		return edge.OnSettleSucceeded, nil
	case edge.OutcomeFailed:
		return edge.OnSettleFailed, nil
	case edge.OutcomeRetry:
		return edge.OnSettleRetry, nil
	case edge.OutcomeDeferred:
		return edge.OnSettleDeferred, nil
	case edge.OutcomeInterrupted:
		return edge.OnSettleInterrupted, nil
	case edge.OutcomeBlocked:
		return edge.OnSettleBlocked, nil
	case edge.OutcomeIndeterminate:
		return edge.OnSettleIndeterminate, nil
	}
	return "", fmt.Errorf("%w: an execution cannot be settled as %q", edge.ErrInvalid, o)
}

// end is the one fenced write that ends an execution, and what goes with it.
func (tx *tx) end(e *ending) (edge.Settled, error) {
	x, d, t, err := tx.under(e.Execution, e.Token)
	if err != nil {
		return edge.Settled{}, err
	}
	if x.EndedMS != 0 {
		tx.unhold(e.Token) // another may have voided the lease
		return tx.endAgain(e, x, d, t)
	}
	if !edge.Legal(d.State, e.on) {
		return edge.Settled{}, illegal(d, e.on, "")
	}
	if fault := tx.followUpFault(e); fault != nil {
		if !refusal(fault) {
			return edge.Settled{}, fault
		}
		e = &ending{on: edge.OnSettleFailed, Settlement: edge.Settlement{
			Execution: e.Execution, Token: e.Token, Outcome: edge.OutcomeFailed, Code: edge.CodeFollowUpRefused, Detail: fault.Error(),
		}}
	}
	v := edge.Judge(e.on, edge.Situation{
		Effect: x.Effect, NowMS: tx.now, Cancel: d.CancelMS != 0,
		Attempts: d.Attempts, Losses: d.Losses, FirstStartMS: d.FirstStartMS,
		DelayMS: e.DelayMS, MaxAttempts: e.MaxAttempts, GiveUpAfterMS: e.GiveUpAfterMS,
		ClockDoubted: tx.w.clock.Doubted(), Code: e.Code,
	})
	return tx.endTo(e, x, d, t, v)
}

func (tx *tx) endTo(e *ending, x *execution, d *delivery, t *target, v edge.Verdict) (edge.Settled, error) {
	block := blockOutcome
	if e.Outcome == edge.OutcomeBlocked {
		block = blockConfig
	}
	if err := tx.moveWith(d, t, e.on, v, block, e.Outcome, e.Token); err != nil {
		return edge.Settled{}, err
	}
	if v.To == edge.Blocked && block == blockOutcome {
		if err := tx.openRecovery(x.ID, d.ID); err != nil {
			return edge.Settled{}, err
		}
	}
	if ok, err := tx.dropLease(t, e.Token, false); !ok || err != nil {
		return edge.Settled{}, mustChange(ok, err, "lease of execution", x.ID)
	}
	if err := tx.endExecution(x.ID, e.Outcome, e.Code, e.Detail); err != nil {
		return edge.Settled{}, err
	}
	tx.count("outcome_"+string(e.Outcome), 1)
	if e.on == edge.OnSettleFailed || e.on == edge.OnSettleRetry || e.on == edge.OnReleaseRetry || e.on == edge.OnSettleIndeterminate {
		tx.halt(d, t)
	}
	if err := tx.closeGate(e, t.handler); err != nil {
		return edge.Settled{}, err
	}
	followUps, err := tx.acceptFollowUps(e)
	return edge.Settled{Delivery: d.ID, State: v.To, Code: v.Code, DueMS: v.DueMS, FollowUps: followUps}, err
}

// endAgain answers a settlement of an execution that has ended: the same one
// again, the late result of one that was thought lost, or a stale one.
func (tx *tx) endAgain(e *ending, x *execution, d *delivery, t *target) (edge.Settled, error) {
	same := x.Outcome == e.Outcome && x.Code == e.Code && x.Detail == e.Detail
	refusedBefore := x.Code == edge.CodeFollowUpRefused && e.Outcome == edge.OutcomeSucceeded && len(e.followUps) > 0
	switch {
	case same || refusedBefore:
		return storedAnswer(x, d), nil
	case e.release():
		return edge.Settled{}, fmt.Errorf("%w: execution %d has ended as %s", edge.ErrLeaseLost, x.ID, x.Outcome)
	case x.Outcome != edge.OutcomeLost:
		return edge.Settled{}, fmt.Errorf("%w: execution %d has ended as %s", edge.ErrConflict, x.ID, x.Outcome)
	case tx.ownLoss(x, d) && (e.Outcome == edge.OutcomeSucceeded || e.Outcome == edge.OutcomeFailed) && len(e.followUps) == 0:
		return tx.endLate(e, x, d, t)
	}
	if again, err := tx.lateBefore(e, x, d); again || err != nil {
		return edge.Settled{Delivery: d.ID, State: d.State, Code: d.Code, Repeated: true}, err
	}
	const update = `UPDATE executions SET late_outcome = ? WHERE id = ? AND late_outcome IS NULL`
	if _, err := tx.guarded(update, string(e.Outcome), int64(x.ID)); err != nil {
		return edge.Settled{}, err
	}
	tx.count("stale_settles", 1)
	return edge.Settled{}, fmt.Errorf("%w: execution %d; its outcome is kept as late", edge.ErrLeaseLost, x.ID)
}

// storedAnswer is what the settlement of x was answered. When the delivery has
// been claimed again since, it was pending.
func storedAnswer(x *execution, d *delivery) edge.Settled {
	s := edge.Settled{Delivery: d.ID, State: d.State, Code: d.Code, Repeated: true}
	switch {
	case d.Execution != x.ID:
		s.State, s.Code = edge.Pending, x.Code
	case d.State == edge.Pending:
		s.DueMS = d.DueMS
	}
	return s
}

// ownLoss reports whether d is blocked because x was lost, and nobody has
// decided yet.
func (tx *tx) ownLoss(x *execution, d *delivery) bool {
	return d.State == edge.Blocked && d.block == blockOutcome && d.Execution == x.ID
}

// lateBefore reports whether e is the late result that decided d.
func (tx *tx) lateBefore(e *ending, x *execution, d *delivery) (bool, error) {
	if x.LateOutcome != e.Outcome || d.Execution != x.ID || !d.State.Final() || d.Code != e.Code {
		return false, nil
	}
	var late bool
	const query = `SELECT EXISTS (SELECT 1 FROM recoveries WHERE execution = ? AND resolution = 'late')`
	err := tx.row(query, int64(x.ID)).Scan(&late)
	return late, err
}

// endLate accepts the result of an execution that was thought lost.
func (tx *tx) endLate(e *ending, x *execution, d *delivery, t *target) (edge.Settled, error) {
	on := edge.OnSettleSucceeded
	if e.Outcome == edge.OutcomeFailed {
		on = edge.OnSettleFailed
	}
	v := edge.Judge(on, edge.Situation{Effect: x.Effect, NowMS: tx.now, Attempts: d.Attempts, Losses: d.Losses, Code: e.Code})
	if err := tx.move(d, t, edge.OnSettleLate, v, "", e.Outcome); err != nil {
		return edge.Settled{}, err
	}
	if err := tx.closeRecovery(x.ID, "late", "", ""); err != nil {
		return edge.Settled{}, err
	}
	if err := tx.exec(`UPDATE executions SET late_outcome = ? WHERE id = ?`, string(e.Outcome), int64(x.ID)); err != nil {
		return edge.Settled{}, err
	}
	tx.count("late_settles", 1)
	tx.halt(d, t)
	return edge.Settled{Delivery: d.ID, State: v.To, Code: v.Code}, nil
}

// closeGate does what the result asks of the whole handler.
func (tx *tx) closeGate(e *ending, h *handler) error {
	switch {
	case e.GateOff && h.gate != edge.GateOff:
		return tx.setGate(h, edge.GateOff, e.GateCode, 0)
	case e.PauseMS > 0 && h.gate == edge.GateOn,
		e.PauseMS > 0 && h.gate == edge.GatePaused && h.resumeMS < tx.now+e.PauseMS:
		return tx.setGate(h, edge.GatePaused, e.GateCode, tx.now+e.PauseMS)
	}
	return nil
}

// followUpFault says why the follow-up events cannot be accepted; nil when they
// can. It writes nothing.
func (tx *tx) followUpFault(e *ending) error {
	seen := map[[2]string][32]byte{}
	for i := range e.followUps {
		p := &e.followUps[i]
		if p.fault != nil {
			return p.fault
		}
		name := [2]string{p.Event.Source, p.Event.ID}
		id, digest, err := tx.findEvent(p.hash, p.Event.Source, p.Event.ID)
		if err != nil {
			return err
		}
		before, twice := seen[name]
		if id != 0 && string(digest) != string(p.digest[:]) || twice && before != p.digest {
			return fmt.Errorf("%w: follow-up event: source %q id %q was accepted before with other content", edge.ErrConflict, name[0], name[1])
		}
		seen[name] = p.digest
	}
	return nil
}

func (tx *tx) acceptFollowUps(e *ending) ([]edge.Accepted, error) {
	if len(e.followUps) == 0 {
		return nil, nil
	}
	answers := make([]edge.Accepted, len(e.followUps))
	for i := range e.followUps {
		if err := tx.accept(&e.followUps[i], &answers[i]); err != nil {
			return nil, err
		}
		if err := answers[i].Err; err != nil {
			return nil, mustChange(false, nil, "follow-up event", err)
		}
	}
	tx.count("follow_ups", int64(len(answers)))
	return answers, nil
}

func (tx *tx) openRecovery(x edge.ExecutionID, d edge.DeliveryID) error {
	const insert = `INSERT INTO recoveries (execution, delivery, opened_ms) VALUES (?, ?, ?)`
	tx.count("recoveries_opened", 1)
	return tx.exec(insert, int64(x), int64(d), tx.now)
}

func (tx *tx) closeRecovery(x edge.ExecutionID, resolution, reason, actor string) error {
	const update = `UPDATE recoveries SET closed_ms = ?, resolution = ?, reason = ?, actor = ?
	                WHERE execution = ? AND closed_ms IS NULL`
	_, err := tx.guarded(update, tx.now, resolution, orNull(reason), orNull(actor), int64(x))
	return err
}
