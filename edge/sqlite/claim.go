package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"fencepost/edge"
)

// Claim claims what is ready now; see [edge.Dispatch].
func (s *Store) Claim(ctx context.Context, limit int) ([]edge.Claimed, error) {
	if limit < 1 {
		return nil, fmt.Errorf("%w: limit %d: must be at least 1", edge.ErrInvalid, limit)
	}
	var claims []edge.Claimed
	err := s.w.do(ctx, phaseClaim, func(tx *tx) error {
		if !tx.accepted {
			claims = nil // the first pass, before the accepts of the same commit
		}
		more, err := tx.claimReady(limit - len(claims))
		claims = append(claims, more...)
		return err
	})
	if n := len(claims); err == nil && n > 0 {
		s.w.gave(claims[n-1].Fence)
	}
	return claims, err
}

// Dispatch claims until ctx is done; see [edge.Dispatch].
func (s *Store) Dispatch(ctx context.Context, deliver func([]edge.Claimed)) error {
	st := &standing{deliver: deliver}
	err := s.w.doEnd(ctx, func(tx *tx) error {
		if tx.w.standing != nil && tx.w.standing != st {
			return fmt.Errorf("%w: dispatch is under way", edge.ErrConflict)
		}
		tx.w.standing = st
		return nil
	})
	if err != nil {
		return err
	}
	s.w.poke()
	select {
	case <-ctx.Done():
	case <-s.w.failed:
	case <-s.w.ended:
	}
	stop := func(tx *tx) error { tx.w.standing, tx.dispatching = nil, false; return nil }
	if err := s.w.doEnd(context.WithoutCancel(ctx), stop); err != nil {
		return err
	}
	return s.w.err()
}

// claimReady claims up to limit deliveries, fairly among handlers and targets: always the target that has waited longest,
// within each handler's share of retries.
func (tx *tx) claimReady(limit int) ([]edge.Claimed, error) {
	if tx.w.store.Hold() != nil {
		return nil, nil
	}
	var claims []edge.Claimed
	if tx.w.store.space.low.Load() {
		return nil, nil
	}
	hs := &tx.w.hands
	fronts := map[*handler]*front{}
	for len(claims) < limit && len(hs.held) < hs.total {
		h, f, err := tx.nextHandler(fronts)
		if err != nil || h == nil {
			return claims, err
		}
		class := f.pick(h)
		t, err := tx.target(f.take(class))
		if err != nil {
			return claims, err
		}
		claimed, err := tx.claimFrom(t, class)
		if err != nil {
			return claims, err
		}
		claims = append(claims, claimed...)
		if f.spent() {
			delete(fronts, h) // look again
		}
	}
	return claims, nil
}

// noLimit lets the free slots alone bound the claims.
const noLimit = math.MaxInt

// front is, per class, the targets of a handler that have been ready longest. A
// claim changes only the target that it takes, so a front serves many claims.
type front struct {
	ready [2][]readyTarget
	full  [2]bool // there may be more than were looked up
}

type readyTarget struct{ id, ms int64 }

// frontSize is how many targets of a class are looked up at once.
const frontSize = 32

func (f *front) empty() bool { return len(f.ready[0])+len(f.ready[1]) == 0 }

// spent reports whether the front must be looked up again.
func (f *front) spent() bool {
	return f.empty() || f.full[0] && len(f.ready[0]) == 0 || f.full[1] && len(f.ready[1]) == 0
}

func (f *front) take(class int) (targetID int64) {
	targetID = f.ready[class][0].id
	f.ready[class] = f.ready[class][1:]
	return targetID
}

func (f *front) oldest() int64 {
	oldest := int64(never)
	for _, ready := range f.ready {
		if len(ready) > 0 {
			oldest = min(oldest, ready[0].ms)
		}
	}
	return oldest
}

// pick chooses between first tries and retries. Retries get at least a quarter
// of the handler's slots and, while first tries are due, at most half; with a
// single slot the two alternate.
func (f *front) pick(h *handler) int {
	switch {
	case len(f.ready[1]) == 0:
		return 0
	case len(f.ready[0]) == 0:
		return 1
	case h.limit == 1:
		return 1 - h.last
	case h.held[1] < (h.limit+3)/4:
		return 1
	case h.held[1] >= (h.limit+1)/2:
		return 0
	case f.ready[1][0].ms < f.ready[0][0].ms:
		return 1
	}
	return 0
}

// nextHandler returns the handler, among those with a free slot and an open gate,
// whose front has been ready longest; nil when there is none.
func (tx *tx) nextHandler(fronts map[*handler]*front) (*handler, *front, error) {
	var best *handler
	var bestFront *front
	for _, h := range tx.w.hands.byID {
		if h.hint > tx.now || !h.mayClaim(tx.now) {
			continue
		}
		f, ok := fronts[h]
		if !ok {
			var err error
			if f, err = tx.front(h); err != nil {
				return nil, nil, err
			}
			fronts[h] = f
		}
		if f.empty() {
			continue
		}
		if best == nil || f.oldest() < bestFront.oldest() || f.oldest() == bestFront.oldest() && h.id < best.id {
			best, bestFront = h, f
		}
	}
	return best, bestFront, nil
}

// front looks up the first ready targets of each class, and learns from what is
// not ready yet when to look again.
func (tx *tx) front(h *handler) (*front, error) {
	const query = `SELECT id, ready_ms FROM targets
	               WHERE handler = ? AND class = ? AND ready_ms IS NOT NULL ORDER BY ready_ms LIMIT ?`
	f := &front{}
	hint := int64(never)
	for class := range f.ready {
		n := 0
		err := tx.each(query, func(rows *sql.Rows) error {
			var r readyTarget
			if err := rows.Scan(&r.id, &r.ms); err != nil {
				return err
			}
			n++
			hint = min(hint, r.ms)
			if r.ms <= tx.now {
				f.ready[class] = append(f.ready[class], r)
			}
			return nil
		}, h.id, class, frontSize)
		if err != nil {
			return nil, err
		}
		f.full[class] = n == frontSize && len(f.ready[class]) == n
	}
	h.hint = hint
	return f, nil
}

// claimFrom claims the delivery at the front of a ready target. When its effect
// is done already it is settled instead, and nothing is claimed.
func (tx *tx) claimFrom(t *target, class int) ([]edge.Claimed, error) {
	d, err := tx.frontDelivery(t)
	if err != nil {
		return nil, err
	}
	if d == nil || d.State != edge.Pending || d.DueMS > tx.now {
		tx.touch(t) // the stored ready time is wrong; decide it again
		return nil, tx.flush()
	}
	settled, err := tx.settleUnclaimed(d, t)
	if settled || err != nil {
		return nil, err
	}
	c, err := tx.claim(d, t, class)
	if err != nil {
		return nil, err
	}
	return []edge.Claimed{c}, tx.flush()
}

// settleUnclaimed ends a due delivery that must not be claimed: its time has
// passed, or its effect is done already.
func (tx *tx) settleUnclaimed(d *delivery, t *target) (bool, error) {
	v := edge.Verdict{Attempts: d.Attempts, Losses: d.Losses}
	on := edge.OnExpire
	if tx.expired(d) {
		v.To, v.Code = edge.Expired, edge.CodeExpired
	} else {
		if d.Generation == 1 && d.Executions == 0 && d.Code == "" || d.Again {
			return false, nil // nothing can have consumed it
		}
		done, err := tx.consumed(d.Event, t.id)
		if !done || err != nil {
			return false, err
		}
		on, v.To, v.Code = edge.OnAlreadyConsumed, edge.Succeeded, edge.CodeAlreadyConsumed
	}
	if err := tx.move(d, t, on, v, "", ""); err != nil {
		return false, err
	}
	return true, tx.flush()
}

// expired reports whether it is too late to begin d. While the clock is doubted
// nothing is.
func (tx *tx) expired(d *delivery) bool {
	return d.ExpiresMS != 0 && d.ExpiresMS <= tx.now && !tx.w.clock.Doubted()
}

// claim makes the execution and the lease, by one guarded move of the delivery.
// The gate is tested in the statement itself.
func (tx *tx) claim(d *delivery, t *target, class int) (edge.Claimed, error) {
	const guard = ` WHERE id = ? AND state = 'pending' AND version = ? AND due_ms <= ? AND cancel_ms IS NULL
	    AND EXISTS (SELECT 1 FROM handlers WHERE id = ? AND (gate = 'on' OR gate = 'paused' AND resume_ms <= ?))`
	const lease = `UPDATE deliveries SET state = 'leased', code = '', execution = ?, executions = executions + 1, version = version + 1` + guard
	const start = `UPDATE deliveries SET state = 'running', code = '', execution = ?, executions = executions + 1, version = version + 1,
	    first_start_ms = coalesce(first_start_ms, ?)` + guard
	h := t.handler
	x := tx.nextExecution()
	started := !h.reg.Inspect
	var ok bool
	var err error
	if started {
		ok, err = tx.guarded(start, int64(x), tx.now, int64(d.ID), d.Version, tx.now, h.id, tx.now)
	} else {
		ok, err = tx.guarded(lease, int64(x), int64(d.ID), d.Version, tx.now, h.id, tx.now)
	}
	if err := mustChange(ok, err, "claim", d.ID); err != nil {
		return edge.Claimed{}, err
	}
	from := d.State
	d.State, d.Code, d.Execution, d.Executions, d.Version = edge.Leased, "", x, d.Executions+1, d.Version+1
	if started {
		d.State = edge.Running
		if d.FirstStartMS == 0 {
			d.FirstStartMS = tx.now
		}
	}
	tx.stateCount(from, d.State)
	return tx.claimed(d, t, class, started)
}

// claimed writes execution and lease of a delivery that was claimed.
func (tx *tx) claimed(d *delivery, t *target, class int, started bool) (edge.Claimed, error) {
	h := t.handler
	token := edge.NewToken()
	if err := tx.insertExecution(d.Execution, d, d.Attempts+1, token, h.revision, started); err != nil {
		return edge.Claimed{}, err
	}
	expires, err := tx.insertLease(t, token, d.ID, d.Execution)
	if err != nil {
		return edge.Claimed{}, err
	}
	t.servedMS = tx.now
	tx.hold(token, d.ID, h, class)
	tx.takeToken(h)
	x := &execution{token: token}
	x.ID, x.Delivery, x.Attempt, x.ClaimedMS, x.Effect, x.Revision = d.Execution, d.ID, d.Attempts+1, tx.now, h.reg.Effect, h.reg.Revision
	if started {
		x.StartedMS = tx.now
	}
	tx.w.hands.active[d.ID] = &active{d, x}
	tx.count("claims", 1)
	if started {
		tx.count("starts", 1)
		tx.onceRun = tx.onceRun || h.reg.Effect == edge.Once
	}
	tx.changed(d, t, "")
	e, err := tx.event(d.Event)
	if err != nil {
		return edge.Claimed{}, err
	}
	names := tx.w.store.names
	return edge.Claimed{
		Claim: edge.Claim{
			Delivery:   d.ID,
			DeliveryID: names.Format(edge.KindDelivery, int64(d.ID)),
			Event:      e,
			EventID:    names.Format(edge.KindEvent, int64(d.Event)),
			Target:     t.name(),
			Route:      d.Route,
			Key:        names.Format(edge.KindDelivery, int64(d.KeyOf)),
			Fence:      d.Execution,
			Attempt:    d.Attempts + 1,
			DeadlineMS: d.ExpiresMS,
			Owner:      tx.w.store.owner,
		},
		Token: token, Effect: h.reg.Effect, Started: started, ExpiresMS: expires, Retry: class == 1, Serial: h.reg.Serial,
	}, nil
}

// Of a delivery's executions the first few and the latest are kept.
const (
	keptFirst = 3
	keptLast  = 20
)

func (tx *tx) insertExecution(x edge.ExecutionID, d *delivery, attempt int, token edge.Token, revision int64, started bool) error {
	owner, err := tx.ownerID()
	if err != nil {
		return err
	}
	var deliveryID, rev, startedMS any
	if d != nil {
		deliveryID, rev = int64(d.ID), revision
	}
	if started {
		startedMS = tx.now
	}
	const insert = `INSERT INTO executions (id, delivery, attempt, owner, token, revision, claimed_ms, started_ms)
	                VALUES (?, ?, ?, ?, ?, ?, ?, ?)`
	if err := tx.exec(insert, int64(x), deliveryID, attempt, owner, int64(token), rev, tx.now, startedMS); err != nil {
		return err
	}
	if d == nil || d.Executions <= keptFirst+keptLast {
		return nil
	}
	const trim = `DELETE FROM executions WHERE id = (
	                  SELECT id FROM executions WHERE delivery = ? ORDER BY id LIMIT 1 OFFSET ?)`
	return tx.exec(trim, int64(d.ID), keptFirst)
}

// insertLease takes the lowest free slot of the target. The key of leases keeps
// two from holding one slot.
func (tx *tx) insertLease(t *target, token edge.Token, d edge.DeliveryID, x edge.ExecutionID) (expires int64, err error) {
	owner, err := tx.ownerID()
	if err != nil {
		return 0, err
	}
	slot := 0
	if t.busy > 0 {
		const free = `SELECT min(n) FROM (
		                  SELECT 0 AS n UNION ALL SELECT slot + 1 FROM leases WHERE target = ?1)
		              WHERE n NOT IN (SELECT slot FROM leases WHERE target = ?1)`
		if err := tx.row(free, t.id).Scan(&slot); err != nil {
			return 0, err
		}
	}
	expires = tx.now + tx.w.hands.lease
	const insert = `INSERT INTO leases (target, slot, token, delivery, execution, owner, expires_ms) VALUES (?, ?, ?, ?, ?, ?, ?)`
	if err := tx.exec(insert, t.id, slot, int64(token), orNil(int64(d)), int64(x), owner, expires); err != nil {
		return 0, err
	}
	t.busy++
	if d == 0 {
		t.borrowed++
	}
	tx.touch(t)
	return expires, nil
}

// dropLease ends a lease. It reports whether the lease was there.
func (tx *tx) dropLease(t *target, token edge.Token, borrowed bool) (bool, error) {
	ok, err := tx.guarded(`DELETE FROM leases WHERE target = ? AND token = ?`, t.id, int64(token))
	if !ok || err != nil {
		return false, err
	}
	t.busy--
	if borrowed {
		t.borrowed--
	}
	tx.unhold(token)
	tx.touch(t)
	return true, nil
}

// event returns an event with its data.
func (tx *tx) event(id edge.EventID) (*edge.Event, error) {
	if e, ok := tx.events[id]; ok {
		return e, nil
	}
	return scanEvent(tx.row(`SELECT `+eventColumns+` FROM events WHERE id = ?`, int64(id)))
}

const eventColumns = `id, source, event_id, type, subject, time, content_type, extensions, depth, accepted_ms, data, trace`

func scanEvent(row rowScanner) (*edge.Event, error) {
	var e edge.Event
	var subject, eventTime, contentType, extensions, trace sql.NullString
	err := row.Scan(&e.N, &e.Source, &e.ID, &e.Type, &subject, &eventTime, &contentType, &extensions, &e.Depth, &e.AcceptedMS, &e.Data, &trace)
	if err != nil {
		return nil, err
	}
	e.Subject, e.Time, e.ContentType = subject.String, eventTime.String, contentType.String
	e.Trace.Parent, e.Trace.State, _ = strings.Cut(trace.String, " ")
	if extensions.Valid {
		if err := json.Unmarshal([]byte(extensions.String), &e.Extensions); err != nil {
			return nil, fmt.Errorf("extensions of event %d: %w", e.N, err)
		}
	}
	return &e, nil
}
