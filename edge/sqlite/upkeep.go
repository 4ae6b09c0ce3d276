package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"fencepost/edge"
)

// Expire expires what is too late to begin; see [edge.Upkeep].
func (s *Store) Expire(ctx context.Context, limit int) (edge.Swept, error) {
	var swept edge.Swept
	err := s.sweep(ctx, limit, &swept, func(tx *tx) error {
		const query = `SELECT id FROM deliveries
		               WHERE expires_ms IS NOT NULL AND (state = 'held' OR state = 'pending') AND expires_ms <= ?
		               ORDER BY expires_ms LIMIT ?`
		ids, err := tx.ids(query, tx.now, limit)
		if err != nil {
			return err
		}
		for _, id := range ids {
			if err := tx.expire(edge.DeliveryID(id)); err != nil {
				return err
			}
		}
		swept.Done, swept.More = len(ids), len(ids) == limit
		const next = `SELECT min(expires_ms) FROM deliveries WHERE expires_ms IS NOT NULL AND (state = 'held' OR state = 'pending')`
		var ms sql.NullInt64
		err = tx.row(next).Scan(&ms)
		swept.Next = ms.Int64
		return err
	})
	return swept, err
}

func (tx *tx) expire(id edge.DeliveryID) error {
	d, t, err := tx.deliveryAndTarget(id)
	if err != nil {
		return err
	}
	v := edge.Verdict{To: edge.Expired, Code: edge.CodeExpired, Attempts: d.Attempts, Losses: d.Losses}
	return tx.move(d, t, edge.OnExpire, v, "", "")
}

// sweep runs one bounded step, unless the clock is doubted.
func (s *Store) sweep(ctx context.Context, limit int, swept *edge.Swept, step func(tx *tx) error) error {
	if limit < 1 {
		return fmt.Errorf("%w: limit %d: must be at least 1", edge.ErrInvalid, limit)
	}
	return s.w.do(ctx, phaseSettle, func(tx *tx) error {
		*swept = edge.Swept{}
		if tx.w.clock.Doubted() {
			return nil
		}
		return step(tx)
	})
}

// ClockStepped mends stored times after a step of the wall clock; see
// [edge.Upkeep].
func (s *Store) ClockStepped(ctx context.Context, stepMS, maxDelayMS, sinceMS int64, limit int) (edge.Swept, error) {
	if limit < 1 {
		return edge.Swept{}, fmt.Errorf("%w: limit %d: must be at least 1", edge.ErrInvalid, limit)
	}
	var swept edge.Swept
	err := s.w.do(ctx, phaseSettle, func(tx *tx) error {
		swept = edge.Swept{}
		if stepMS < 0 {
			if err := tx.ownLeasesBack(stepMS); err != nil {
				return err
			}
			return tx.steppedBack(maxDelayMS, limit, &swept)
		}
		return tx.shiftDoubted(stepMS, sinceMS, limit, &swept)
	})
	return swept, err
}

// ownLeasesBack moves the ends of this owner's leases with the clock. Those that
// work is done under are renewed anyway; one without, which is given up when it
// has expired, would stand for as long as the clock was set back.
func (tx *tx) ownLeasesBack(stepMS int64) error {
	const move = `UPDATE leases SET expires_ms = max(expires_ms + ?1, ?2) WHERE owner = ?3 AND expires_ms > ?2 + ?4`
	if tx.w.owner == 0 {
		return nil
	}
	return tx.exec(move, stepMS, tx.now, tx.w.owner, tx.w.hands.lease)
}

// steppedBack brings what lies too far in the future back to where it would be
// if it had been written now.
func (tx *tx) steppedBack(maxDelayMS int64, limit int, swept *edge.Swept) error {
	latest := tx.now + maxDelayMS
	for _, h := range tx.w.hands.byID {
		tx.clampBucket(h)
		if h.resumeMS > latest {
			h.resumeMS = latest
			if err := tx.writeHandler(h); err != nil {
				return err
			}
		}
	}
	ids, err := tx.ids(`SELECT target FROM deliveries INDEXED BY deliveries_line WHERE state = 'pending' AND due_ms > ? LIMIT ?`, latest, limit)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := tx.touchID(id); err != nil {
			return err
		}
	}
	const due = `UPDATE deliveries SET due_ms = ?1 WHERE id IN (SELECT id FROM deliveries INDEXED BY deliveries_line WHERE state = 'pending' AND due_ms > ?1 LIMIT ?2)`
	if err := tx.exec(due, latest, limit); err != nil {
		return err
	}
	served, err := tx.ids(`SELECT id FROM targets WHERE served_ms > ? LIMIT ?`, tx.now, limit)
	if err != nil {
		return err
	}
	for _, id := range served {
		t, err := tx.target(id)
		if err != nil {
			return err
		}
		t.servedMS = tx.now
		tx.touch(t)
	}
	swept.Done, swept.More = len(ids)+len(served), len(ids) == limit || len(served) == limit
	return nil
}

func (tx *tx) touchID(id int64) error {
	t, err := tx.target(id)
	if err == nil {
		tx.touch(t)
	}
	return err
}

// shiftedEvents bounds how many of the newest events are looked at after a step
// out of a doubted clock.
const shiftedEvents = 10_000

// shiftDoubted moves what was written while the clock was doubted: the relative
// deadlines of open rows, each by when it was set, and when an event was
// accepted, so that its identity is kept as long as that of others.
func (tx *tx) shiftDoubted(stepMS, sinceMS int64, limit int, swept *edge.Swept) error {
	if sinceMS == 0 {
		return nil
	}
	// What was written in doubt lies between the doubt's beginning and the last
	// reading before the step. What has been moved lies past the step, so that
	// nothing is moved twice.
	before := min(tx.now-stepMS+1, sinceMS+stepMS)
	rows, err := tx.writtenBetween(sinceMS, before, limit)
	if err != nil {
		return err
	}
	const update = `UPDATE deliveries
	                SET due_ms = due_ms + ?1,
	                    accepted_ms = iif(accepted_ms >= ?3 AND accepted_ms < ?4, accepted_ms + ?1, accepted_ms),
	                    expires_ms = iif(accepted_ms >= ?3 AND accepted_ms < ?4, expires_ms + ?1, expires_ms),
	                    first_start_ms = iif(first_start_ms >= ?3 AND first_start_ms < ?4, first_start_ms + ?1, first_start_ms)
	                WHERE id = ?2`
	for _, r := range rows {
		if err := tx.exec(update, stepMS, r.id, sinceMS, before); err != nil {
			return err
		}
		delete(tx.w.hands.active, edge.DeliveryID(r.id)) // as it is in memory it is no longer
		if err := tx.touchID(r.target); err != nil {
			return err
		}
	}
	const events = `UPDATE events SET accepted_ms = accepted_ms + ?1
	                WHERE id > (SELECT max(id) FROM events) - ?4 AND accepted_ms >= ?2 AND accepted_ms < ?3`
	if err := tx.exec(events, stepMS, sinceMS, before, shiftedEvents); err != nil {
		return err
	}
	swept.Done, swept.More = len(rows), len(rows) == limit
	return nil
}

// openRow names an open delivery and its target.
type openRow struct{ id, target int64 }

// writtenBetween lists open deliveries that were accepted, or first started, in
// this span: those that wait, and those that are under way.
func (tx *tx) writtenBetween(sinceMS, beforeMS int64, limit int) ([]openRow, error) {
	const span = `(d.accepted_ms >= ?1 AND d.accepted_ms < ?2 OR d.first_start_ms >= ?1 AND d.first_start_ms < ?2) ORDER BY d.id LIMIT ?3`
	const waiting = `SELECT d.id, d.target FROM deliveries d INDEXED BY deliveries_line
	                 WHERE (d.state = 'held' OR d.state = 'pending' OR d.state = 'blocked') AND ` + span
	const underWay = `SELECT d.id, d.target FROM leases l CROSS JOIN deliveries d ON d.id = l.delivery WHERE ` + span
	var rows []openRow
	for _, query := range [...]string{underWay, waiting} {
		err := tx.each(query, func(r *sql.Rows) error {
			var x openRow
			err := r.Scan(&x.id, &x.target)
			rows = append(rows, x)
			return err
		}, sinceMS, beforeMS, max(limit-len(rows), 0))
		if err != nil {
			return nil, err
		}
	}
	return rows, nil
}
