package sqlite

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"fencepost/edge"
)

// A listing with a filter that no index serves walks the rows downward in
// windows, and ends after a bounded number of rows with a cursor, so that no
// question is cut by the deadline and none holds a snapshot for long.
type listBounds struct {
	first int // rows of the first window; most pages end there
	next  int // rows of each further one
	most  int // rows of one call
}

var standardBounds = listBounds{first: 1_000, next: 10_000, most: 41_000}

// window is a walk: a source that is read downward by its position.
type window struct {
	source string   // FROM with what has the position
	joins  string   // what else a row shows
	scope  string   // the term that the source's index serves
	args   []any    // of scope
	at     string   // the position: d.id, d.line or e.id
	filter []string // terms that no index serves
	fargs  []any    // of filter
	since  int64    // the walk ends where everything is older, milliseconds UTC; 0 = never
}

func (w *window) where(term string, args ...any) {
	w.filter = append(w.filter, term)
	w.fargs = append(w.fargs, args...)
}

// bound is the position that ends a window of n rows below hi; 0 when fewer are
// left.
func (w *window) bound(ctx context.Context, q queryer, hi int64, n int) (int64, error) {
	text := `SELECT ` + w.at + w.source + `WHERE ` + w.scope + ` AND ` + w.at + ` < ? ORDER BY ` + w.at + ` DESC LIMIT 1 OFFSET ?`
	var lo int64
	err := q.GetContext(ctx, &lo, text, append(append([]any{}, w.args...), hi, n-1)...)
	if noRows(err) {
		return 0, nil
	}
	return lo, err
}

// older reports whether everything in a window was accepted before since.
func (w *window) older(ctx context.Context, q queryer, lo, hi int64) (bool, error) {
	column := strings.Split(w.at, ".")[0] + `.accepted_ms`
	text := `SELECT coalesce(max(` + column + `), 0)` + w.source + `WHERE ` + w.scope + ` AND ` + w.at + ` >= ? AND ` + w.at + ` < ?`
	var latest int64
	err := q.GetContext(ctx, &latest, text, append(append([]any{}, w.args...), lo, hi)...)
	return latest < w.since, err
}

// walk reads windows below before until limit rows were given to scan, nothing is
// left, or enough was looked at. It returns the cursor and whether that is short
// of a full page.
func (s *Store) walk(ctx context.Context, w *window, selects string, before int64, limit int,
	scan func(rows rowScanner) (at int64, err error)) (next int64, partial bool, err error) {
	hi := before
	if hi == 0 {
		hi = math.MaxInt64
	}
	found, looked, size := 0, 0, s.bounds.first
	for {
		done := false
		err := s.read(ctx, func(ctx context.Context, q queryer) error {
			lo, err := int64(0), error(nil)
			if len(w.filter) > 0 {
				if lo, err = w.bound(ctx, q, hi, size); err != nil {
					return err
				}
			}
			n, at, err := w.page(ctx, q, selects, lo, hi, limit-found, scan)
			found += n
			switch {
			case err != nil:
				return err
			case found == limit:
				next, done = at, true
				return nil
			case lo == 0:
				done = true
				return nil
			}
			if w.since != 0 {
				if done, err = w.older(ctx, q, lo, hi); err != nil || done {
					return err
				}
			}
			hi = lo
			return nil
		})
		looked += size
		size = s.bounds.next
		switch {
		case err != nil || done:
			return next, false, err
		case looked >= s.bounds.most:
			return hi, true, nil
		case ctx.Err() != nil:
			return 0, false, readError(ctx.Err())
		}
	}
}

func (w *window) page(ctx context.Context, q queryer, selects string, lo, hi int64, limit int, scan func(rowScanner) (int64, error)) (n int, at int64, err error) {
	text := selects + w.source + w.joins + `WHERE ` + w.scope + ` AND ` + w.at + ` >= ? AND ` + w.at + ` < ?`
	args := append(append([]any{}, w.args...), lo, hi)
	for _, term := range w.filter {
		text += ` AND ` + term
	}
	args = append(append(args, w.fargs...), limit)
	rows, err := q.QueryxContext(ctx, text+` ORDER BY `+w.at+` DESC LIMIT ?`, args...)
	if err != nil {
		return 0, 0, err
	}
	defer rows.Close()
	for rows.Next() {
		if at, err = scan(rows); err != nil {
			return n, at, err
		}
		n++
	}
	return n, at, rows.Err()
}

// ListDeliveries returns a page after looking at a bounded number of rows; see
// [edge.Reader].
func (s *Store) ListDeliveries(ctx context.Context, f edge.DeliveryFilter) (edge.DeliveryPage, error) {
	page := edge.DeliveryPage{Deliveries: []edge.Delivery{}}
	limit, err := pageLimit(f.Limit)
	if err != nil {
		return page, err
	}
	w, err := s.deliveryWindow(ctx, f)
	if err != nil || w == nil {
		return page, err
	}
	next, partial, err := s.walk(ctx, w, `SELECT `+deliveryColumns+`, h.name, t.key`, int64(f.Before), limit,
		func(rows rowScanner) (int64, error) {
			d, err := scanPublic(rows)
			if err != nil {
				return 0, err
			}
			page.Deliveries = append(page.Deliveries, d.Delivery)
			if w.at == `d.line` {
				return int64(d.Line), nil
			}
			return int64(d.ID), nil
		})
	page.Next, page.Partial = edge.DeliveryID(next), partial
	return page, err
}

// deliveryWindow chooses the walk for a filter; nil when nothing can match.
func (s *Store) deliveryWindow(ctx context.Context, f edge.DeliveryFilter) (*window, error) {
	w := &window{scope: `1`, at: `d.id`, since: f.SinceMS}
	table := `deliveries d NOT INDEXED `
	target := int64(0)
	if f.Target != nil {
		var err error
		if target, err = s.oneID(ctx, targetID, f.Target.Handler, f.Target.Key); err != nil || target == 0 {
			return nil, err
		}
	}
	handler := int64(0)
	if f.Handler != "" {
		var err error
		if handler, err = s.oneID(ctx, `SELECT id FROM handlers WHERE name = ?`, f.Handler); err != nil || handler == 0 {
			return nil, err
		}
	}
	waits := f.State == edge.Held || f.State == edge.Pending || f.State == edge.Blocked
	literal := `d.state = '` + string(f.State) + `'` // so that partial indexes are used
	switch {
	case f.Event != 0:
		table, w.scope, w.args = `deliveries d INDEXED BY deliveries_of_event `, `d.event = ?`, []any{int64(f.Event)}
		w.state(f.State)
		w.target(target)
	case target != 0 && waits:
		table, w.at = `deliveries d INDEXED BY deliveries_line `, `d.line`
		w.scope, w.args = `d.target = ? AND `+literal, []any{target}
	case f.State == edge.Leased || f.State == edge.Running:
		table, w.scope = `leases l CROSS JOIN deliveries d ON d.id = l.delivery `, literal
		w.target(target)
	case f.State == edge.Blocked:
		table, w.scope = `deliveries d INDEXED BY deliveries_blocked `, literal
		w.target(target)
	case f.State == edge.Failed || f.State == edge.Cancelled || f.State == edge.Expired:
		table = `deliveries d INDEXED BY deliveries_unsuccessful `
		w.scope = `(d.state = 'failed' OR d.state = 'cancelled' OR d.state = 'expired')`
		w.where(literal)
		w.target(target)
	default:
		w.state(f.State)
		w.target(target)
	}
	w.source = ` FROM ` + table
	w.joins = `CROSS JOIN targets t ON t.id = d.target CROSS JOIN handlers h ON h.id = t.handler `
	w.deliveryFilter(f)
	if handler != 0 {
		w.where(`+t.handler = ?`, handler) // the sign keeps the order of the look-ups, whatever ANALYZE found
	}
	return w, nil
}

func (w *window) state(s edge.State) {
	if s != "" {
		w.where(`d.state = ?`, string(s))
	}
}

func (w *window) target(id int64) {
	if id != 0 {
		w.where(`d.target = ?`, id)
	}
}

func (w *window) deliveryFilter(f edge.DeliveryFilter) {
	if f.Code != "" {
		w.where(`d.code = ?`, f.Code)
	}
	if f.SinceMS != 0 {
		w.where(`d.accepted_ms >= ?`, f.SinceMS)
	}
	if f.UntilMS != 0 {
		w.where(`d.accepted_ms < ?`, f.UntilMS)
	}
	if f.Newest {
		w.where(`NOT EXISTS (SELECT 1 FROM deliveries n WHERE n.redrive_of = d.id)`)
	}
	for _, x := range [...]struct{ column, value string }{{`type`, f.Type}, {`source`, f.Source}, {`subject`, f.Subject}} {
		if x.value != "" {
			w.where(`(SELECT e.`+x.column+` FROM events e WHERE e.id = d.event) = ?`, x.value)
		}
	}
}

const targetID = `SELECT t.id FROM handlers h CROSS JOIN targets t ON t.handler = h.id WHERE h.name = ? AND t.key = ?`

// oneID returns the number that query finds; 0 when there is none.
func (s *Store) oneID(ctx context.Context, query string, args ...any) (int64, error) {
	var id int64
	err := s.read(ctx, func(ctx context.Context, q queryer) error {
		err := q.GetContext(ctx, &id, query, args...)
		if noRows(err) {
			return nil
		}
		return err
	})
	return id, err
}

// Deliveries returns a page, newest first; see [edge.Reader].
func (s *Store) Deliveries(ctx context.Context, f edge.DeliveryFilter) ([]edge.Delivery, error) {
	limit, err := pageLimit(f.Limit)
	if err != nil {
		return nil, err
	}
	list := []edge.Delivery{}
	for {
		f.Limit = limit - len(list)
		page, err := s.ListDeliveries(ctx, f)
		if err != nil {
			return nil, err
		}
		list = append(list, page.Deliveries...)
		if !page.Partial || page.Next == 0 {
			return list, nil
		}
		f.Before = page.Next
	}
}

// ListEvents returns a page of events without their data; see [edge.Reader].
func (s *Store) ListEvents(ctx context.Context, f edge.EventFilter) (edge.EventPage, error) {
	page := edge.EventPage{Events: []edge.EventInfo{}}
	limit, err := pageLimit(f.Limit)
	if err != nil {
		return page, err
	}
	w := &window{scope: `1`, at: `e.id`, since: f.SinceMS, source: ` FROM events e NOT INDEXED `}
	if f.Source != "" && f.ID != "" {
		w.source, w.scope, w.args = ` FROM events e INDEXED BY events_by_hash `, `e.hash = ?`, []any{keyHash(f.Source, f.ID)}
	}
	for _, x := range [...]struct{ column, value string }{
		{`type`, f.Type}, {`source`, f.Source}, {`subject`, f.Subject}, {`event_id`, f.ID},
	} {
		if x.value != "" {
			w.where(`e.`+x.column+` = ?`, x.value)
		}
	}
	if f.SinceMS != 0 {
		w.where(`e.accepted_ms >= ?`, f.SinceMS)
	}
	if f.UntilMS != 0 {
		w.where(`e.accepted_ms < ?`, f.UntilMS)
	}
	const selects = `SELECT e.id, e.source, e.event_id, e.type, e.subject, e.time, e.content_type, e.extensions, e.depth, e.accepted_ms, NULL, NULL,
	    coalesce(length(e.data), -1)`
	next, partial, err := s.walk(ctx, w, selects, int64(f.Before), limit, func(rows rowScanner) (int64, error) {
		var n int
		e, err := scanEvent(withExtra{rows, &n})
		if err != nil {
			return 0, err
		}
		page.Events = append(page.Events, edge.EventInfo{Event: *e, DataBytes: max(n, 0), Pruned: n < 0})
		return int64(e.N), nil
	})
	page.Next, page.Partial = edge.EventID(next), partial
	return page, err
}

// mostTargets bounds how many targets one call looks at.
const mostTargets = 20_000

// ListTargets returns a page by handler and key; see [edge.Reader].
func (s *Store) ListTargets(ctx context.Context, f edge.TargetFilter) (edge.TargetPage, error) {
	page := edge.TargetPage{Targets: []edge.TargetInfo{}}
	limit, err := pageLimit(f.Limit)
	if err != nil {
		return page, err
	}
	where, args := targetWhere(f)
	most := limit
	if f.OnlyOpen {
		most = mostTargets // looked through here
	}
	err = s.read(ctx, func(ctx context.Context, q queryer) error {
		rows, err := q.QueryxContext(ctx, selectTarget+where+` ORDER BY h.name, t.key LIMIT ?`, append(args, most)...)
		if err != nil {
			return err
		}
		defer rows.Close()
		looked := 0
		for rows.Next() && len(page.Targets) < limit {
			t, err := scanTargetInfo(rows)
			if err != nil {
				return err
			}
			looked++
			page.Next = t.Target
			if !f.OnlyOpen || t.Open > 0 {
				page.Targets = append(page.Targets, t)
			}
		}
		switch {
		case len(page.Targets) == limit:
		case looked == most:
			page.Partial = true
		default:
			page.Next = edge.Target{}
		}
		return rows.Err()
	})
	return page, err
}

func targetWhere(f edge.TargetFilter) (string, []any) {
	where := `WHERE (h.name, t.key) > (?, ?)`
	args := []any{f.After.Handler, f.After.Key}
	if f.After == (edge.Target{}) {
		where, args = `WHERE 1`, nil
	}
	if f.Handler != "" {
		where += ` AND h.name = ?`
		args = append(args, f.Handler)
	}
	if f.OnlyStalled || f.Stall != "" {
		where += ` AND t.stall IS NOT NULL`
	}
	if f.Stall != "" {
		where += ` AND t.stall = ?`
		args = append(args, string(f.Stall))
	}
	return where, args
}

// Targets returns a page by handler and key; see [edge.Reader].
func (s *Store) Targets(ctx context.Context, f edge.TargetFilter) ([]edge.TargetInfo, error) {
	limit, err := pageLimit(f.Limit)
	if err != nil {
		return nil, err
	}
	list := []edge.TargetInfo{}
	for {
		f.Limit = limit - len(list)
		page, err := s.ListTargets(ctx, f)
		if err != nil {
			return nil, err
		}
		list = append(list, page.Targets...)
		if !page.Partial {
			return list, nil
		}
		f.After = page.Next
	}
}

// pageLimit applies the bounds of a page.
func pageLimit(n int) (int, error) {
	if n == 0 {
		return edge.DefaultPage, nil
	}
	if n < 1 || n > edge.MaxPage {
		return 0, fmt.Errorf("%w: limit %d: must be 1 to %d", edge.ErrInvalid, n, edge.MaxPage)
	}
	return n, nil
}

// Bounds of Backlog.
const (
	mostStalled  = 1_000
	mostFinished = 10_000
	mostWorst    = 100
	rateSpanMS   = 60_000
)

// Backlog says what waits longest, by bounded look-ups alone; see [edge.Reader].
func (s *Store) Backlog(ctx context.Context, n int) (edge.Backlog, error) {
	if n < 0 || n > mostWorst {
		return edge.Backlog{}, fmt.Errorf("%w: %d targets: must be 0 to %d", edge.ErrInvalid, n, mostWorst)
	}
	b := edge.Backlog{InFlight: map[string]int{}, SinceMS: s.o.Clock.NowMS() - rateSpanMS}
	err := s.read(ctx, func(ctx context.Context, q queryer) error {
		if err := inFlight(ctx, q, b.InFlight); err != nil {
			return err
		}
		if err := finishedLately(ctx, q, &b); err != nil {
			return err
		}
		const first = `SELECT accepted_ms FROM events WHERE id = (SELECT min(id) FROM events)`
		if err := q.GetContext(ctx, &b.OldestEventMS, first); err != nil && !noRows(err) {
			return err
		}
		var err error
		b.Worst, err = worst(ctx, q, n)
		return err
	})
	return b, err
}

// finishedLately reads how much became final in the span, or of a busy store in
// the latest part of it.
func finishedLately(ctx context.Context, q queryer, b *edge.Backlog) error {
	const (
		succeeded = `SELECT count(*) AS n, coalesce(min(f.finished_ms), 0) AS first
		             FROM (SELECT finished_ms FROM deliveries WHERE state = 'succeeded' AND finished_ms > ? ORDER BY finished_ms DESC LIMIT ?) f`
		failed = `SELECT count(*) AS n, coalesce(min(f.finished_ms), 0) AS first
		          FROM (SELECT finished_ms FROM deliveries INDEXED BY deliveries_failed
		                WHERE (state = 'failed' OR state = 'cancelled' OR state = 'expired') AND finished_ms > ? ORDER BY finished_ms DESC LIMIT ?) f`
	)
	for _, query := range [...]string{succeeded, failed} {
		var done struct {
			N     int   `db:"n"`
			First int64 `db:"first"`
		}
		if err := q.GetContext(ctx, &done, query, b.SinceMS, mostFinished); err != nil {
			return err
		}
		if done.N == mostFinished && done.First > b.SinceMS {
			b.Finished, b.SinceMS = 0, done.First // the span is shorter; what counted before is in the rate of this
		}
		b.Finished += done.N
	}
	return nil
}

func inFlight(ctx context.Context, q queryer, into map[string]int) error {
	const query = `SELECT h.name, count(*) FROM leases l CROSS JOIN targets t ON t.id = l.target CROSS JOIN handlers h ON h.id = t.handler
	               WHERE l.delivery IS NOT NULL GROUP BY h.name`
	rows, err := q.QueryxContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var n int
		if err := rows.Scan(&name, &n); err != nil {
			return err
		}
		into[name] = n
	}
	return rows.Err()
}

// worst finds the targets whose oldest waiting delivery is the oldest, among
// those that are ready longest, stalled, at work, or owed what is blocked without
// stalling a line: what no route could place, and what keeps no order.
func worst(ctx context.Context, q queryer, n int) ([]edge.TargetBacklog, error) {
	const (
		handlers = `SELECT id FROM handlers`
		ready    = `SELECT id FROM targets WHERE handler = ? AND class = ? AND ready_ms IS NOT NULL ORDER BY ready_ms LIMIT ?`
		stalled  = `SELECT id FROM targets INDEXED BY targets_stalled WHERE stall IS NOT NULL LIMIT ?`
		leased   = `SELECT DISTINCT target FROM leases`
		blocked  = `SELECT target FROM deliveries INDEXED BY deliveries_blocked WHERE state = 'blocked' ORDER BY id LIMIT ?`
	)
	var all, ids []int64
	if err := q.SelectContext(ctx, &ids, handlers); err != nil {
		return nil, err
	}
	collect := func(query string, args ...any) error {
		var found []int64
		err := q.SelectContext(ctx, &found, query, args...)
		all = append(all, found...)
		return err
	}
	for _, id := range ids {
		for class := range 2 {
			if err := collect(ready, id, class, n); err != nil {
				return nil, err
			}
		}
	}
	if err := collect(stalled, mostStalled); err != nil {
		return nil, err
	}
	if err := collect(leased); err != nil {
		return nil, err
	}
	if err := collect(blocked, mostStalled); err != nil {
		return nil, err
	}
	return oldestOf(ctx, q, all, n)
}

func oldestOf(ctx context.Context, q queryer, ids []int64, n int) ([]edge.TargetBacklog, error) {
	const oldest = `SELECT id, accepted_ms, state, code, due_ms FROM deliveries INDEXED BY deliveries_line
	                WHERE target = ? AND (state = 'held' OR state = 'pending' OR state = 'blocked') ORDER BY line LIMIT 1`
	type found struct {
		edge.TargetBacklog
		target int64
	}
	var list []found
	seen := map[int64]bool{}
	for _, id := range ids {
		if seen[id] {
			continue
		}
		seen[id] = true
		x := found{target: id}
		err := q.QueryRowxContext(ctx, oldest, id).Scan(&x.Oldest, &x.OldestMS, &x.State, &x.Code, &x.DueMS)
		if err == nil {
			list = append(list, x)
		} else if !noRows(err) {
			return nil, err
		}
	}
	slices.SortFunc(list, func(a, b found) int {
		return cmp.Or(cmp.Compare(a.OldestMS, b.OldestMS), cmp.Compare(a.Oldest, b.Oldest))
	})
	out := make([]edge.TargetBacklog, min(n, len(list)))
	for i := range out {
		var err error
		out[i] = list[i].TargetBacklog
		if out[i].Target, err = scanTargetInfo(q.QueryRowxContext(ctx, selectTarget+`WHERE t.id = ?`, list[i].target)); err != nil {
			return nil, err
		}
	}
	return out, nil
}
