package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"fencepost/edge"
)

// execution is a row of executions, with what its handler declared at the claim.
type execution struct {
	edge.Execution
	token edge.Token
}

func (tx *tx) execution(id edge.ExecutionID) (*execution, error) {
	const query = `SELECT x.id, x.delivery, x.attempt, x.token, x.claimed_ms, x.started_ms, x.ended_ms, x.outcome, x.code, x.detail,
	                   x.late_outcome, r.effect, r.revision
	               FROM executions x LEFT JOIN revisions r ON r.id = x.revision WHERE x.id = ?`
	var x execution
	var deliveryID, started, ended sql.NullInt64
	var outcome, code, detail, late, effect, revision sql.NullString
	err := tx.row(query, int64(id)).Scan(&x.ID, &deliveryID, &x.Attempt, &x.token, &x.ClaimedMS, &started, &ended, &outcome, &code,
		&detail, &late, &effect, &revision)
	if noRows(err) {
		return nil, fmt.Errorf("%w: execution %d", edge.ErrNotFound, id)
	}
	if err != nil {
		return nil, err
	}
	x.Delivery, x.StartedMS, x.EndedMS = edge.DeliveryID(deliveryID.Int64), started.Int64, ended.Int64
	x.Outcome, x.Code, x.Detail = edge.Outcome(outcome.String), code.String, detail.String
	x.LateOutcome, x.Effect, x.Revision = edge.Outcome(late.String), edge.Effect(effect.String), revision.String
	return &x, nil
}

// under reads what a fenced write works on, and refuses a caller whose token is
// not the execution's or whose lease is gone.
func (tx *tx) under(id edge.ExecutionID, token edge.Token) (*execution, *delivery, *target, error) {
	x, err := tx.heldExecution(id, token)
	if err != nil {
		return nil, nil, nil, err
	}
	if x.token != token || token == 0 || x.Delivery == 0 {
		return nil, nil, nil, fmt.Errorf("%w: execution %d was not claimed with this token", edge.ErrLeaseLost, id)
	}
	d, t, err := tx.deliveryAndTarget(x.Delivery)
	if err != nil {
		return nil, nil, nil, err
	}
	return x, d, t, nil
}

// heldExecution returns the execution from memory while this owner holds it.
func (tx *tx) heldExecution(id edge.ExecutionID, token edge.Token) (*execution, error) {
	if l, ok := tx.w.hands.held[token]; ok {
		if a, ok := tx.w.hands.active[l.delivery]; ok && a.x.ID == id {
			return a.x, nil
		}
	}
	return tx.execution(id)
}

// leaseOf returns the expiry of a lease; false when it is gone.
func (tx *tx) leaseOf(t *target, token edge.Token) (expires int64, held bool, err error) {
	err = tx.row(`SELECT expires_ms FROM leases WHERE target = ? AND token = ?`, t.id, int64(token)).Scan(&expires)
	if noRows(err) {
		return 0, false, nil
	}
	return expires, err == nil, err
}

// Start crosses the start barrier; see [edge.Dispatch].
func (s *Store) Start(ctx context.Context, id edge.ExecutionID, token edge.Token) (edge.State, error) {
	var state edge.State
	err := s.w.do(ctx, phaseSettle, func(tx *tx) error {
		var err error
		state, err = tx.start(id, token)
		return err
	})
	return state, err
}

func (tx *tx) start(id edge.ExecutionID, token edge.Token) (edge.State, error) {
	x, d, t, err := tx.under(id, token)
	if err != nil {
		return "", err
	}
	expires, held, err := tx.leaseOf(t, token)
	if err != nil {
		return "", err
	}
	switch {
	case !held || d.Execution != id:
		tx.unhold(token)
		return "", fmt.Errorf("%w: execution %d", edge.ErrLeaseLost, id)
	case d.State == edge.Running:
		return edge.Running, nil // the same start once more
	case d.State != edge.Leased:
		return "", illegal(d, edge.OnStart, "")
	}
	if done, err := tx.consumed(d.Event, t.id); err != nil {
		return "", err
	} else if done && !d.Again {
		return edge.Succeeded, tx.endAlreadyConsumed(x, d, t)
	}
	if why := tx.startRefused(d, t, expires); why != "" {
		return "", illegal(d, edge.OnStart, why)
	}
	// The guard says again, in one statement, all that was checked above.
	const update = `UPDATE deliveries
	    SET state = 'running', first_start_ms = coalesce(first_start_ms, ?1), version = version + 1
	    WHERE id = ?2 AND state = 'leased' AND execution = ?3 AND cancel_ms IS NULL
	      AND (expires_ms IS NULL OR expires_ms > ?1 OR ?6)
	      AND EXISTS (SELECT 1 FROM leases WHERE target = deliveries.target AND token = ?4 AND expires_ms > ?1)
	      AND EXISTS (SELECT 1 FROM handlers WHERE id = ?5 AND (gate = 'on' OR gate = 'paused' AND resume_ms <= ?1))`
	ok, err := tx.guarded(update, tx.now, int64(d.ID), int64(id), int64(token), t.handler.id, tx.w.clock.Doubted())
	if err := mustChange(ok, err, "start", d.ID); err != nil {
		return "", err
	}
	if err := tx.exec(`UPDATE executions SET started_ms = ? WHERE id = ?`, tx.now, int64(id)); err != nil {
		return "", err
	}
	tx.stateCount(edge.Leased, edge.Running)
	d.State, d.Version = edge.Running, d.Version+1
	if d.FirstStartMS == 0 {
		d.FirstStartMS = tx.now
	}
	tx.count("starts", 1)
	tx.onceRun = tx.onceRun || x.Effect == edge.Once
	tx.changed(d, t, "")
	x.StartedMS = tx.now
	return edge.Running, nil
}

// startRefused says why a start is refused under a lease that stands; "" when it
// is not. At expiry == now the lease is dead.
func (tx *tx) startRefused(d *delivery, t *target, expires int64) string {
	switch {
	case expires <= tx.now:
		return "the lease has expired"
	case tx.expired(d):
		return "its time has passed"
	case d.CancelMS != 0:
		return "cancelling was asked for"
	case !t.handler.opened(tx.now):
		return "the handler's gate is " + string(t.handler.gate)
	}
	return ""
}

func (tx *tx) endAlreadyConsumed(x *execution, d *delivery, t *target) error {
	v := edge.Verdict{To: edge.Succeeded, Code: edge.CodeAlreadyConsumed, Attempts: d.Attempts, Losses: d.Losses}
	if err := tx.moveWith(d, t, edge.OnAlreadyConsumed, v, "", edge.OutcomeSucceeded, x.token); err != nil {
		return err
	}
	if _, err := tx.dropLease(t, x.token, false); err != nil {
		return err
	}
	return tx.endExecution(x.ID, edge.OutcomeSucceeded, edge.CodeAlreadyConsumed, "")
}

// endExecution writes how an execution ended.
func (tx *tx) endExecution(id edge.ExecutionID, o edge.Outcome, code, detail string) error {
	const update = `UPDATE executions SET ended_ms = ?, outcome = ?, code = ?, detail = ? WHERE id = ? AND ended_ms IS NULL`
	ok, err := tx.guarded(update, tx.now, string(o), code, orNull(detail), int64(id))
	return mustChange(ok, err, "end of execution", id)
}

// Renew moves expiries; see [edge.Dispatch]. A claim whose commit was under way
// when it was called cannot have been named, so its lease is not voided, however
// long that commit took.
func (s *Store) Renew(ctx context.Context, live []edge.Token) (edge.Renewed, error) {
	var r edge.Renewed
	given := edge.ExecutionID(s.w.given.Load())
	err := s.w.doEnd(ctx, func(tx *tx) error {
		r = edge.Renewed{}
		return tx.renew(live, given, &r)
	})
	return r, err
}

func (tx *tx) renew(live []edge.Token, given edge.ExecutionID, r *edge.Renewed) error {
	owner, err := tx.ownerID()
	if err != nil {
		return err
	}
	const update = `UPDATE leases SET expires_ms = ? WHERE token = ? AND owner = ?`
	named := map[edge.Token]bool{}
	for _, token := range live {
		named[token] = true
		ok, err := tx.guarded(update, tx.now+tx.w.hands.lease, int64(token), owner)
		if err != nil {
			return err
		}
		if !ok {
			tx.unhold(token)
			r.Lost = append(r.Lost, token)
		}
	}
	const query = `SELECT l.token, l.execution, l.target, l.expires_ms, d.cancel_ms IS NOT NULL
	               FROM leases l LEFT JOIN deliveries d ON d.id = l.delivery WHERE l.owner = ? ORDER BY l.execution`
	var orphans []leaseRow
	err = tx.each(query, func(rows *sql.Rows) error {
		l := leaseRow{owner: tx.w.store.owner}
		var cancel bool
		if err := rows.Scan(&l.token, &l.execution, &l.target, &l.expires, &cancel); err != nil {
			return err
		}
		switch {
		case named[l.token] && cancel:
			r.Cancel = append(r.Cancel, l.token)
		case !named[l.token] && l.expires <= tx.now && l.execution <= given:
			orphans = append(orphans, l)
		}
		return nil
	}, owner)
	if err != nil {
		return err
	}
	for _, l := range orphans {
		v, err := tx.void(l)
		if err != nil {
			return err
		}
		r.Voided = append(r.Voided, v)
	}
	return nil
}
