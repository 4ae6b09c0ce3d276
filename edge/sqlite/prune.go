package sqlite

import (
	"context"
	"database/sql"
	"math"
	"strconv"
	"time"

	"fencepost/edge"
)

// pruned is where the walks over events go on. A walk looks at each event once:
// what it passes over goes with its last delivery, and is looked for again after
// a day.
type pruned struct {
	known    bool          // the fields below are valid
	bodies   int64         // events up to here have no data that no route matched and that is too old
	stored   int64         // bodies, as it is in the file
	skeleton int64         // events up to here are gone, or have deliveries
	again    time.Duration // monotonic time at which the skeletons are walked anew
}

const (
	pruneWindow   = 1000 // events that one step looks at
	skeletonAgain = 24 * time.Hour
	bodiesTo      = "bodies_to" // setting: pruned.bodies
)

// Prune removes what is no longer kept; see [edge.Upkeep].
func (s *Store) Prune(ctx context.Context, p edge.PrunePolicy) (edge.Swept, error) {
	var swept edge.Swept
	err := s.sweep(ctx, p.Limit, &swept, func(tx *tx) error {
		step := pruning{tx: tx, p: p, left: p.Limit}
		if err := step.run(); err != nil {
			return err
		}
		swept.Done, swept.More = p.Limit-step.left, step.more || step.left == 0
		if !swept.More {
			more, err := tx.giveBack()
			if swept.More = more; err != nil {
				return err
			}
		}
		if swept.Done == 0 {
			return nil
		}
		return tx.setting("last_seen_ms", tx.now)
	})
	return swept, err
}

// setting stores a number among the facts about the file.
func (tx *tx) setting(name string, n int64) error {
	const upsert = `INSERT INTO settings (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2`
	return tx.exec(upsert, name, strconv.FormatInt(n, 10))
}

// numberSetting returns 0 when there is none.
func (tx *tx) numberSetting(name string) (int64, error) {
	var n int64
	err := tx.row(`SELECT CAST(value AS INTEGER) FROM settings WHERE name = ?`, name).Scan(&n)
	if noRows(err) {
		err = nil
	}
	return n, err
}

// pruning is one step: at most left rows are removed, and a bounded number looked
// at.
type pruning struct {
	*tx
	p    edge.PrunePolicy
	left int
	more bool // a window ended before what it looks for did
}

func (s *pruning) run() error {
	if err := s.resume(); err != nil {
		return err
	}
	for _, part := range [...]func() error{s.adopt, s.succeeded, s.failed, s.borrowed, s.skeletons, s.requests, s.openings} {
		if s.left <= 0 {
			return nil
		}
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

// resume reads where the walks go on.
func (s *pruning) resume() (err error) {
	at := &s.w.pruned
	if !at.known {
		*at = pruned{known: true}
		at.stored, err = s.numberSetting(bodiesTo)
		at.bodies = at.stored
	}
	if mono := s.w.clock.Mono(); mono >= at.again {
		at.skeleton, at.again = 0, mono+skeletonAgain
	}
	return err
}

const (
	oldSucceeded = `SELECT id, finished_ms, bytes FROM deliveries
	                WHERE state = 'succeeded' AND finished_ms < ? ORDER BY finished_ms LIMIT ?`
	oldFailed = `SELECT d.id, d.finished_ms, d.bytes FROM deliveries d
	             WHERE (d.state = 'failed' OR d.state = 'cancelled' OR d.state = 'expired') AND d.finished_ms < ?
	               AND NOT EXISTS (SELECT 1 FROM targets t WHERE t.id = d.target AND t.stalled = d.id)
	             ORDER BY d.finished_ms LIMIT ?`
)

// succeeded prunes the class of what succeeded. The data of events that no route
// matched counts with it, and goes first.
func (s *pruning) succeeded() error {
	over := s.over(s.p.SucceededBytes, bytesSucceeded, bytesUnrouted)
	over, err := s.bodies(s.p.SucceededBeforeMS, over)
	if err != nil || s.left <= 0 {
		return err
	}
	return s.deliveries(oldSucceeded, s.p.SucceededBeforeMS, over)
}

// failed prunes the class of what failed, was cancelled or expired, never what a
// stall names.
func (s *pruning) failed() error {
	return s.deliveries(oldFailed, s.p.FailedBeforeMS, s.over(s.p.FailedBytes, bytesFailed))
}

// over is by how much counters exceed a bound; 0 when they do not.
func (s *pruning) over(bound int64, names ...string) int64 {
	if bound <= 0 {
		return 0
	}
	sum := -bound
	for _, name := range names {
		sum += s.held(name)
	}
	return max(sum, 0)
}

// deliveries removes the oldest of a class: those that finished before a time,
// and more until the class has over bytes less.
func (s *pruning) deliveries(query string, beforeMS, over int64) error {
	end := beforeMS
	if over > 0 {
		end = math.MaxInt64
	}
	if end == 0 {
		return nil
	}
	type row struct{ id, finishedMS, bytes int64 }
	var rows []row
	err := s.each(query, func(r *sql.Rows) error {
		var x row
		err := r.Scan(&x.id, &x.finishedMS, &x.bytes)
		rows = append(rows, x)
		return err
	}, end, s.left)
	if err != nil {
		return err
	}
	for _, r := range rows {
		if r.finishedMS >= beforeMS && over <= 0 {
			return nil
		}
		if err := s.delivery(edge.DeliveryID(r.id)); err != nil {
			return err
		}
		over -= r.bytes
		s.left--
	}
	return nil
}

// delivery removes one final delivery with what belongs to it. With its last
// delivery an event loses its data, or goes when it is old enough.
func (s *pruning) delivery(id edge.DeliveryID) error {
	d, t, err := s.deliveryAndTarget(id)
	if err != nil {
		return err
	}
	for _, text := range [...]string{
		`DELETE FROM executions WHERE delivery = ?`,
		`DELETE FROM recoveries WHERE delivery = ?`,
	} {
		if err := s.exec(text, int64(id)); err != nil {
			return err
		}
	}
	ok, err := s.guarded(`DELETE FROM deliveries WHERE id = ? AND finished_ms IS NOT NULL`, int64(id))
	if err := mustChange(ok, err, "prune", id); err != nil {
		return err
	}
	s.stateCount(d.State, "")
	s.bytesCount(d.State, "", d.bytes)
	t.kept--
	s.touch(t)
	s.count("pruned", 1)
	return s.lastOf(int64(d.Event))
}

func (s *pruning) lastOf(event int64) error {
	const alone = `SELECT accepted_ms FROM events
	               WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM deliveries WHERE event = ?1)`
	var acceptedMS int64
	switch err := s.row(alone, event).Scan(&acceptedMS); {
	case noRows(err):
		return nil
	case err != nil:
		return err
	case acceptedMS < s.p.DedupeBeforeMS:
		return s.event(event)
	}
	return s.exec(`UPDATE events SET data = NULL WHERE id = ?`, event)
}

// event removes an event's skeleton and its consumptions.
func (s *pruning) event(id int64) error {
	targets, err := s.ids(`SELECT target FROM consumptions WHERE event = ?`, id)
	if err != nil {
		return err
	}
	for _, targetID := range targets {
		t, err := s.target(targetID)
		if err != nil {
			return err
		}
		t.kept--
		s.touch(t)
	}
	if err := s.exec(`DELETE FROM consumptions WHERE event = ?`, id); err != nil {
		return err
	}
	return s.exec(`DELETE FROM events WHERE id = ?`, id)
}

// walked is what a walk over events sees of one. owed: it has deliveries; data:
// how many bytes it has, invalid when they are gone.
type walked struct {
	id, acceptedMS int64
	owed           bool
	data           sql.NullInt64
}

// window returns the events behind after, the oldest first.
func (s *pruning) window(after int64) ([]walked, error) {
	const query = `SELECT e.id, e.accepted_ms, length(e.data), EXISTS (SELECT 1 FROM deliveries d WHERE d.event = e.id)
	               FROM events e WHERE e.id > ? ORDER BY e.id LIMIT ?`
	var es []walked
	err := s.each(query, func(rows *sql.Rows) error {
		var e walked
		err := rows.Scan(&e.id, &e.acceptedMS, &e.data, &e.owed)
		es = append(es, e)
		return err
	}, after, pruneWindow)
	s.more = s.more || len(es) == pruneWindow
	return es, err
}

// young reports whether a walk has come to what is still kept. What was accepted
// in the future, by a clock that was wrong, is passed over.
func (s *pruning) young(e walked, beforeMS int64) bool {
	return e.acceptedMS >= beforeMS && e.acceptedMS <= s.now
}

// bodies removes the data of old events that no route matched, and more until
// there are over bytes less. It returns what is left of over.
func (s *pruning) bodies(beforeMS, over int64) (int64, error) {
	if beforeMS == 0 && over == 0 {
		return over, nil
	}
	at, more := &s.w.pruned, s.more
	es, err := s.window(at.bodies)
	if err != nil {
		return over, err
	}
	for _, e := range es {
		if s.left == 0 || over <= 0 && s.young(e, beforeMS) {
			s.more = more || s.left == 0
			break
		}
		at.bodies = e.id
		if e.owed || !e.data.Valid || over <= 0 && e.acceptedMS >= beforeMS {
			continue
		}
		if err := s.exec(`UPDATE events SET data = NULL WHERE id = ?`, e.id); err != nil {
			return over, err
		}
		s.count(bytesUnrouted, -e.data.Int64)
		over -= e.data.Int64
		s.left--
	}
	if at.bodies-at.stored >= pruneWindow || s.left < s.p.Limit && at.bodies > at.stored {
		at.stored = at.bodies
		return over, s.setting(bodiesTo, at.bodies)
	}
	return over, nil
}

// skeletons removes events without deliveries that are older than deduplication
// remembers, with their consumptions.
func (s *pruning) skeletons() error {
	before := s.p.DedupeBeforeMS
	if before == 0 {
		return nil
	}
	at, more := &s.w.pruned, s.more
	es, err := s.window(at.skeleton)
	if err != nil {
		return err
	}
	for _, e := range es {
		if s.left == 0 || s.young(e, before) {
			s.more = more || s.left == 0
			return nil
		}
		at.skeleton = e.id
		if e.owed || e.acceptedMS >= before {
			continue
		}
		if e.data.Valid {
			s.count(bytesUnrouted, -e.data.Int64)
		}
		if err := s.event(e.id); err != nil {
			return err
		}
		s.left--
	}
	return nil
}

// keptBorrowed bounds the ended executions of WithTarget, whatever their age.
const keptBorrowed = 10_000

// borrowed removes executions of WithTarget, which belong to no delivery: those
// that ended as long ago as succeeded deliveries are kept, and the oldest beyond
// a number.
func (s *pruning) borrowed() error {
	const query = `SELECT id FROM executions
	               WHERE delivery IS NULL AND ended_ms IS NOT NULL AND ended_ms < max(?1, coalesce((
	                   SELECT ended_ms FROM executions
	                   WHERE delivery IS NULL AND ended_ms IS NOT NULL ORDER BY ended_ms DESC LIMIT 1 OFFSET ?2), 0))
	               ORDER BY ended_ms LIMIT ?3`
	ids, err := s.ids(query, s.p.SucceededBeforeMS, keptBorrowed-1, s.left)
	for _, id := range ids {
		if err := s.exec(`DELETE FROM executions WHERE id = ?`, id); err != nil {
			return err
		}
		s.left--
	}
	return err
}

// keptOpenings bounds the openings of this file, and the revisions of handlers,
// that are remembered whether or not an execution names them.
const keptOpenings = 1000

// openings removes the oldest owners and revisions beyond a number. What is
// under way or waits for a late result needs its own, and keeps it.
func (s *pruning) openings() error {
	const owners = `SELECT id, name FROM owners
	                WHERE id < (SELECT id FROM owners ORDER BY id DESC LIMIT 1 OFFSET ?)
	                  AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.owner = owners.id) ORDER BY id LIMIT ?`
	type row struct {
		id   int64
		name string
	}
	var rows []row
	err := s.each(owners, func(r *sql.Rows) error {
		var x row
		err := r.Scan(&x.id, &x.name)
		rows = append(rows, x)
		return err
	}, keptOpenings-1, s.left)
	if err != nil {
		return err
	}
	for _, o := range rows {
		if o.name == s.w.store.owner || s.w.store.o.Share && !ownerIsDead(s.w.store.path, o.name) {
			continue
		}
		if err := s.exec(`DELETE FROM owners WHERE id = ?`, o.id); err != nil {
			return err
		}
		s.left--
	}
	return s.revisions()
}

func (s *pruning) revisions() error {
	const query = `SELECT r.id FROM revisions r
	               WHERE r.id < (SELECT id FROM revisions ORDER BY id DESC LIMIT 1 OFFSET ?)
	                 AND NOT EXISTS (SELECT 1 FROM handlers h WHERE h.revision = r.id)
	                 AND NOT EXISTS (SELECT 1 FROM leases l CROSS JOIN executions x ON x.id = l.execution WHERE x.revision = r.id)
	                 AND NOT EXISTS (SELECT 1 FROM deliveries d CROSS JOIN executions x ON x.id = d.execution
	                                 WHERE d.state = 'blocked' AND x.revision = r.id)
	               ORDER BY r.id LIMIT ?`
	ids, err := s.ids(query, keptOpenings-1, max(s.left, 0))
	for _, id := range ids {
		if err := s.exec(`DELETE FROM revisions WHERE id = ?`, id); err != nil {
			return err
		}
		s.left--
	}
	return err
}
