package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"fencepost/edge"

	"github.com/jmoiron/sqlx"
)

// queryer is what a read works with: one snapshot of the file.
type queryer interface {
	GetContext(ctx context.Context, dest any, query string, args ...any) error
	SelectContext(ctx context.Context, dest any, query string, args ...any) error
	QueryRowxContext(ctx context.Context, query string, args ...any) *sqlx.Row
	QueryxContext(ctx context.Context, query string, args ...any) (*sqlx.Rows, error)
}

// read runs fn on one snapshot with a deadline, so that no reader pins the log.
func (s *Store) read(ctx context.Context, fn func(ctx context.Context, q queryer) error) error {
	if s.closed.Load() {
		return edge.ErrClosed
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.ReadTimeout)
	defer cancel()
	return s.readUnbounded(ctx, fn)
}

func (s *Store) readUnbounded(ctx context.Context, fn func(ctx context.Context, q queryer) error) error {
	ctx, leave, err := s.readers.enter(ctx)
	if err != nil {
		return readError(err)
	}
	defer leave()
	return cutError(ctx, s.readSnapshot(ctx, fn))
}

func (s *Store) readSnapshot(ctx context.Context, fn func(ctx context.Context, q queryer) error) error {
	tx, err := s.rdb.BeginTxx(ctx, nil)
	if err != nil {
		return readError(err)
	}
	defer func() { _ = tx.Rollback() }()
	return readError(fn(ctx, tx))
}

func readError(err error) error {
	switch {
	case err == nil, refusal(err):
		return err
	case classify(err) != notStorage:
		return publicError(err)
	}
	return fmt.Errorf("%w: read: %w", edge.ErrUnavailable, err)
}

const fromDeliveries = ` FROM deliveries d JOIN targets t ON t.id = d.target JOIN handlers h ON h.id = t.handler `

const selectDelivery = `SELECT ` + deliveryColumns + `, h.name, t.key` + fromDeliveries

func scanPublic(row rowScanner) (*delivery, error) {
	s := deliveryScan{d: &delivery{}}
	if err := row.Scan(append(s.dest(), &s.d.Target.Handler, &s.d.Target.Key)...); err != nil {
		return nil, err
	}
	return s.done(), nil
}

func getDelivery(ctx context.Context, q queryer, id edge.DeliveryID) (*delivery, error) {
	d, err := scanPublic(q.QueryRowxContext(ctx, selectDelivery+`WHERE d.id = ?`, int64(id)))
	if noRows(err) {
		return nil, fmt.Errorf("%w: delivery %d", edge.ErrNotFound, id)
	}
	return d, err
}

// Delivery returns one delivery; see [edge.Reader].
func (s *Store) Delivery(ctx context.Context, id edge.DeliveryID) (edge.Delivery, error) {
	var answer edge.Delivery
	err := s.read(ctx, func(ctx context.Context, q queryer) error {
		d, err := getDelivery(ctx, q, id)
		if err == nil {
			answer = d.Delivery
		}
		return err
	})
	return answer, err
}

// Event returns an event with its data; see [edge.Reader].
func (s *Store) Event(ctx context.Context, id edge.EventID) (edge.Event, error) {
	var answer edge.Event
	err := s.read(ctx, func(ctx context.Context, q queryer) error {
		e, err := scanEvent(q.QueryRowxContext(ctx, `SELECT `+eventColumns+` FROM events WHERE id = ?`, int64(id)))
		if noRows(err) {
			return fmt.Errorf("%w: event %d", edge.ErrNotFound, id)
		}
		if err == nil {
			answer = *e
		}
		return err
	})
	return answer, err
}

// A CROSS JOIN keeps the written order of the tables, whatever ANALYZE may have
// found: leases are few, and owners and targets are looked up by number.

const selectExecution = `SELECT x.id, coalesce(x.delivery, 0), x.attempt, coalesce(o.name, ''), coalesce(r.effect, ''), coalesce(r.revision, ''), x.claimed_ms,
	    coalesce(x.started_ms, 0), coalesce(x.ended_ms, 0), coalesce(x.outcome, ''), coalesce(x.code, ''), coalesce(x.detail, ''), coalesce(x.late_outcome, '')
	FROM executions x LEFT JOIN owners o ON o.id = x.owner LEFT JOIN revisions r ON r.id = x.revision `

func scanExecution(row rowScanner) (edge.Execution, error) {
	var x edge.Execution
	err := row.Scan(&x.ID, &x.Delivery, &x.Attempt, &x.Owner, &x.Effect, &x.Revision, &x.ClaimedMS, &x.StartedMS, &x.EndedMS,
		&x.Outcome, &x.Code, &x.Detail, &x.LateOutcome)
	return x, err
}

// Executions returns what is kept of a delivery's executions, oldest first; see
// [edge.Reader].
func (s *Store) Executions(ctx context.Context, id edge.DeliveryID) ([]edge.Execution, error) {
	list := []edge.Execution{}
	err := s.read(ctx, func(ctx context.Context, q queryer) error {
		if _, err := getDelivery(ctx, q, id); err != nil {
			return err
		}
		rows, err := q.QueryxContext(ctx, selectExecution+`WHERE x.delivery = ? ORDER BY x.id`, int64(id))
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			x, err := scanExecution(rows)
			if err != nil {
				return err
			}
			list = append(list, x)
		}
		return rows.Err()
	})
	return list, err
}

const selectTarget = `SELECT h.name, t.key, t.slots, t.busy, t.open, coalesce(t.ready_ms, 0), coalesce(t.stall, ''), coalesce(t.stalled, 0), t.version
	FROM targets t JOIN handlers h ON h.id = t.handler `

func scanTargetInfo(row rowScanner) (edge.TargetInfo, error) {
	var t edge.TargetInfo
	err := row.Scan(&t.Target.Handler, &t.Target.Key, &t.Slots, &t.Busy, &t.Open, &t.ReadyMS, &t.Stall, &t.Stalled, &t.Version)
	return t, err
}

const selectHandler = `SELECT h.name, h.gate, h.gate_code, coalesce(h.resume_ms, 0), coalesce(r.revision, ''), h.version,
	    coalesce(b.interval_us, 0), coalesce(b.burst, 0), coalesce(b.full_us, 0),
	    coalesce(e.began_ms, 0), coalesce(e.since_ms, 0), coalesce(e.failures, 0), coalesce(e.code, '')
	FROM handlers h LEFT JOIN revisions r ON r.id = h.revision LEFT JOIN rates b ON b.handler = h.id LEFT JOIN episodes e ON e.handler = h.id `

func scanHandlerInfo(row rowScanner, now int64) (edge.HandlerInfo, error) {
	var h edge.HandlerInfo
	var interval, fullUS int64
	err := row.Scan(&h.Name, &h.Gate, &h.GateCode, &h.ResumeMS, &h.Revision, &h.Version, &interval, &h.Rate.Burst, &fullUS,
		&h.Episode.BeganMS, &h.Episode.SinceMS, &h.Episode.Failures, &h.Episode.Code)
	h.GateCode = shownGateCode(h.Gate, h.GateCode)
	h.Rate.Interval = time.Duration(interval) * time.Microsecond
	if ready := h.Rate.ReadyMS(fullUS); ready > now {
		h.RateReadyMS = ready
	}
	return h.At(now), err
}

// Handlers returns all handlers by name; see [edge.Reader].
func (s *Store) Handlers(ctx context.Context) ([]edge.HandlerInfo, error) {
	list := []edge.HandlerInfo{}
	err := s.read(ctx, func(ctx context.Context, q queryer) error {
		rows, err := q.QueryxContext(ctx, selectHandler+`ORDER BY h.name`)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			h, err := scanHandlerInfo(rows, s.o.Clock.NowMS())
			if err != nil {
				return err
			}
			list = append(list, h)
		}
		return rows.Err()
	})
	return list, err
}

// Counters returns all counters; see [edge.Reader].
func (s *Store) Counters(ctx context.Context) (map[string]int64, error) {
	counters := map[string]int64{}
	err := s.read(ctx, func(ctx context.Context, q queryer) error {
		var rows []struct {
			Name  string `db:"name"`
			Value int64  `db:"value"`
		}
		if err := q.SelectContext(ctx, &rows, `SELECT name, value FROM counters`); err != nil {
			return err
		}
		for _, r := range rows {
			counters[r.Name] = r.Value
		}
		return nil
	})
	return counters, err
}

// Facts returns what explains a delivery; see [edge.Reader].
func (s *Store) Facts(ctx context.Context, id edge.DeliveryID) (edge.Facts, error) {
	f := edge.Facts{Doubted: s.o.Clock.Doubted(), OnHold: s.Hold()}
	err := s.read(ctx, func(ctx context.Context, q queryer) error {
		d, err := getDelivery(ctx, q, id)
		if err != nil {
			return err
		}
		f.Delivery = d.Delivery
		if f.Target, err = scanTargetInfo(q.QueryRowxContext(ctx, selectTarget+`WHERE t.id = ?`, d.target)); err != nil {
			return err
		}
		if f.Handler, err = scanHandlerInfo(q.QueryRowxContext(ctx, selectHandler+`WHERE h.name = ?`, d.Target.Handler), s.o.Clock.NowMS()); err != nil {
			return err
		}
		if err := factsOfLine(ctx, q, d, &f); err != nil {
			return err
		}
		return factsOfExecution(ctx, q, d, &f)
	})
	return f, err
}

// maxAhead bounds how far the place in a line is counted.
const maxAhead = 1000

func factsOfLine(ctx context.Context, q queryer, d *delivery, f *edge.Facts) error {
	switch {
	case d.State.Final():
		return nil
	case !d.Ordered:
		return factsOfOldLine(ctx, q, d, f)
	}
	const ahead = `SELECT count(*) FROM (SELECT 1 FROM deliveries
	                   WHERE target = ? AND (state = 'held' OR state = 'pending' OR state = 'blocked') AND line < ? LIMIT ?)`
	if err := q.GetContext(ctx, &f.Ahead, ahead, d.target, int64(d.Line), maxAhead); err != nil {
		return err
	}
	var under []int64
	const working = `SELECT delivery FROM leases WHERE target = ? AND delivery IS NOT NULL AND delivery <> ?`
	if err := q.SelectContext(ctx, &under, working, d.target, int64(d.ID)); err != nil {
		return err
	}
	f.Ahead = min(f.Ahead+len(under), maxAhead)
	head := int64(0)
	if len(under) > 0 {
		head = under[0]
	} else {
		const first = `SELECT id FROM deliveries
		               WHERE target = ? AND (state = 'held' OR state = 'pending' OR state = 'blocked') AND line < ? ORDER BY line LIMIT 1`
		if err := q.GetContext(ctx, &head, first, d.target, int64(d.Line)); err != nil && !noRows(err) {
			return err
		}
	}
	if head == 0 {
		return nil
	}
	h, err := getDelivery(ctx, q, edge.DeliveryID(head))
	if err == nil {
		f.Head = &h.Delivery
	}
	return err
}

// factsOfOldLine tells an unordered delivery what is left of the line that its
// target kept before its ordering was changed.
func factsOfOldLine(ctx context.Context, q queryer, d *delivery, f *edge.Facts) error {
	const left = `SELECT open_ordered FROM targets WHERE id = ? AND slots > 1`
	if err := q.GetContext(ctx, &f.Ahead, left, d.target); err != nil || f.Ahead == 0 {
		if noRows(err) {
			return nil
		}
		return err
	}
	f.Ahead = min(f.Ahead, maxAhead)
	var head int64
	const working = `SELECT d.id FROM leases l CROSS JOIN deliveries d ON d.id = l.delivery
	                 WHERE l.target = ? AND d.ordered = 1 LIMIT 1`
	err := q.GetContext(ctx, &head, working, d.target)
	if noRows(err) {
		const first = `SELECT id FROM deliveries
		               WHERE target = ? AND (state = 'held' OR state = 'pending' OR state = 'blocked') AND ordered = 1
		               ORDER BY line LIMIT 1`
		err = q.GetContext(ctx, &head, first, d.target)
	}
	if err != nil {
		return err
	}
	h, err := getDelivery(ctx, q, edge.DeliveryID(head))
	if err == nil {
		f.Head = &h.Delivery
	}
	return err
}

func factsOfExecution(ctx context.Context, q queryer, d *delivery, f *edge.Facts) error {
	const lease = `SELECT l.token, coalesce(l.delivery, 0), l.execution, o.name, l.expires_ms
	               FROM leases l CROSS JOIN owners o ON o.id = l.owner
	               WHERE l.target = ?1 AND (l.delivery = ?2 OR ?3) ORDER BY l.delivery = ?2 DESC LIMIT 1`
	l := edge.Lease{Target: d.Target}
	err := q.QueryRowxContext(ctx, lease, d.target, int64(d.ID), d.Ordered).Scan(&l.Token, &l.Delivery, &l.Execution, &l.Owner, &l.ExpiresMS)
	switch {
	case err == nil:
		l.Token = 0 // the token stays inside
		f.Lease = &l
	case !noRows(err):
		return err
	}
	x, err := scanExecution(q.QueryRowxContext(ctx, selectExecution+`WHERE x.delivery = ? ORDER BY x.id DESC LIMIT 1`, int64(d.ID)))
	switch {
	case err == nil:
		f.Last = &x
	case !noRows(err):
		return err
	}
	if f.Decision, err = decision(ctx, q, d); err != nil {
		return err
	}
	var newer sql.NullInt64
	if err := q.GetContext(ctx, &newer, `SELECT min(id) FROM deliveries WHERE redrive_of = ?`, int64(d.ID)); err != nil {
		return err
	}
	f.Newer = edge.DeliveryID(newer.Int64)
	const held = `SELECT count(*) FROM leases l CROSS JOIN targets t ON t.id = l.target CROSS JOIN handlers h ON h.id = t.handler
	              WHERE h.name = ? AND l.delivery IS NOT NULL`
	return q.GetContext(ctx, &f.Held, held, d.Target.Handler)
}

// decision is what a person decided about d; nil when nobody had to.
func decision(ctx context.Context, q queryer, d *delivery) (*edge.Decision, error) {
	const query = `SELECT resolution, coalesce(reason, ''), coalesce(actor, ''), closed_ms FROM recoveries
	               WHERE delivery = ? AND closed_ms IS NOT NULL AND resolution <> 'late' ORDER BY execution DESC LIMIT 1`
	var r edge.Decision
	err := q.QueryRowxContext(ctx, query, int64(d.ID)).Scan(&r.As, &r.Reason, &r.By, &r.AtMS)
	if noRows(err) {
		return nil, nil
	}
	return &r, err
}
