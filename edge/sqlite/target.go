package sqlite

import (
	"database/sql"
	"fmt"

	"fencepost/edge"
)

// target is a row of targets as the writer works on it. Changes are gathered in
// memory and written by flush, once per phase of a commit.
type target struct {
	id          int64
	handler     *handler
	key         string
	slots       int
	busy        int
	borrowed    int
	open        int
	openOrdered int
	kept        int
	readyMS     sql.NullInt64
	class       int
	stall       edge.Stall
	stalled     edge.DeliveryID
	servedMS    int64
	version     int64

	dirty     bool     // to be written by flush
	undecided bool     // flush decides ready time and stall first
	isNew     bool     // flush inserts it
	sole      *waiting // its only open delivery, when that has just been inserted; saves a look
}

func (t *target) name() edge.Target { return edge.Target{Handler: t.handler.name, Key: t.key} }

// strict reports whether the target is worked in line now. A changed mode waits
// until the rows of the old one are final.
func (t *target) strict() bool {
	if t.slots == 1 {
		return t.open == t.openOrdered
	}
	return t.openOrdered > 0
}

// free reports whether a delivery may be claimed without regard to stalls.
func (t *target) free() bool {
	if t.strict() {
		return t.busy == 0
	}
	return t.busy < t.slots
}

// targetCache remembers targets between transactions. It is dropped whenever the
// file may differ from it.
type targetCache struct {
	byID   map[int64]*target
	byName map[targetName]*target
}

type targetName struct {
	handler int64
	key     string
}

// maxCachedTargets bounds the memory of the cache.
const maxCachedTargets = 16384

func (c *targetCache) reset() {
	c.byID = map[int64]*target{}
	c.byName = map[targetName]*target{}
}

func (c *targetCache) put(t *target) {
	c.byID[t.id] = t
	c.byName[targetName{t.handler.id, t.key}] = t
}

func (c *targetCache) drop(t *target) {
	delete(c.byID, t.id)
	delete(c.byName, targetName{t.handler.id, t.key})
}

// trim empties a cache that has grown too large. Only between transactions: a
// target must not exist twice in memory.
func (c *targetCache) trim() {
	if len(c.byID) > maxCachedTargets {
		c.reset()
	}
}

const targetColumns = `id, handler, key, slots, busy, borrowed, open, open_ordered, kept, ready_ms, class, stall, stalled, served_ms, version`

func (tx *tx) scanTarget(row rowScanner) (*target, error) {
	var t target
	var hid int64
	var stall sql.NullString
	var stalled sql.NullInt64
	err := row.Scan(&t.id, &hid, &t.key, &t.slots, &t.busy, &t.borrowed, &t.open, &t.openOrdered, &t.kept,
		&t.readyMS, &t.class, &stall, &stalled, &t.servedMS, &t.version)
	if err != nil {
		return nil, err
	}
	t.stall, t.stalled = edge.Stall(stall.String), edge.DeliveryID(stalled.Int64)
	if t.handler = tx.w.hands.byID[hid]; t.handler == nil {
		return nil, fmt.Errorf("target %d names handler %d, which is not there", t.id, hid)
	}
	tx.w.cache.put(&t)
	return &t, nil
}

func (tx *tx) target(id int64) (*target, error) {
	if t, ok := tx.w.cache.byID[id]; ok {
		return t, nil
	}
	return tx.scanTarget(tx.row(`SELECT `+targetColumns+` FROM targets WHERE id = ?`, id))
}

// findTarget returns nil when there is no such target.
func (tx *tx) findTarget(h *handler, key string) (*target, error) {
	if t, ok := tx.w.cache.byName[targetName{h.id, key}]; ok {
		return t, nil
	}
	t, err := tx.scanTarget(tx.row(`SELECT `+targetColumns+` FROM targets WHERE handler = ? AND key = ?`, h.id, key))
	if noRows(err) {
		return nil, nil
	}
	return t, err
}

// ensureTarget returns the target, making it when there is none. The reserved
// target of route errors is unordered whatever the handler says.
func (tx *tx) ensureTarget(h *handler, key string) (*target, error) {
	t, err := tx.findTarget(h, key)
	if t != nil || err != nil {
		return t, err
	}
	t = &target{id: tx.nextTarget(), handler: h, key: key, slots: h.slots, version: 1, isNew: true}
	if key == edge.RouteErrorKey {
		t.slots = routeErrorSlots
	}
	tx.w.cache.put(t)
	tx.touch(t)
	return t, nil
}

const routeErrorSlots = 1 << 20

// touch says that t has changed and must be decided and written by flush.
func (tx *tx) touch(t *target) {
	t.undecided, t.sole = true, nil
	tx.touchTail(t)
}

// touchTail says that only the tail of t's line grew: numbers have changed, and
// what is at its head has not.
func (tx *tx) touchTail(t *target) {
	if !t.dirty {
		t.dirty = true
		tx.dirty = append(tx.dirty, t)
	}
}

// flush decides ready time and stall of every touched target and writes it.
func (tx *tx) flush() error {
	for _, t := range tx.dirty {
		t.dirty = false
		if t.undecided {
			t.undecided = false
			if err := tx.decide(t); err != nil {
				return err
			}
		}
		t.sole = nil
		if err := tx.writeTarget(t); err != nil {
			return err
		}
	}
	tx.dirty = tx.dirty[:0]
	return nil
}

func (tx *tx) writeTarget(t *target) error {
	if t.kept == 0 && t.busy == 0 {
		tx.w.cache.drop(t)
		return tx.exec(`DELETE FROM targets WHERE id = ?`, t.id)
	}
	const update = `UPDATE targets
	                SET slots = ?, busy = ?, borrowed = ?, open = ?, open_ordered = ?, kept = ?,
	                    ready_ms = ?, class = ?, stall = ?, stalled = ?, served_ms = ?, version = ?
	                WHERE id = ?`
	const insert = `INSERT INTO targets (slots, busy, borrowed, open, open_ordered, kept,
	                    ready_ms, class, stall, stalled, served_ms, version, id, handler, key)
	                VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	var stall, stalled any
	if t.stall != edge.NoStall {
		stall, stalled = string(t.stall), int64(t.stalled)
	}
	if t.readyMS.Valid {
		t.handler.lowerHint(t.readyMS.Int64)
	}
	if !t.isNew {
		t.version++
		return tx.exec(update, t.slots, t.busy, t.borrowed, t.open, t.openOrdered, t.kept,
			t.readyMS, t.class, stall, stalled, t.servedMS, t.version, t.id)
	}
	t.isNew = false
	return tx.exec(insert, t.slots, t.busy, t.borrowed, t.open, t.openOrdered, t.kept,
		t.readyMS, t.class, stall, stalled, t.servedMS, t.version, t.id, t.handler.id, t.key)
}

// decide is the one function that says when a target is claimable and what
// stalls it. It is called after every move:
//
//	halted, or a held or blocked head     a stall, no ready time
//	nothing claimable, or all slots busy  no ready time
//	else                                  max(due of the head, last served)
func (tx *tx) decide(t *target) error {
	t.readyMS = sql.NullInt64{}
	if t.stall == edge.StallHalted {
		return nil
	}
	t.stall, t.stalled = edge.NoStall, 0
	if !t.strict() {
		return tx.decideUnordered(t)
	}
	if t.busy > t.borrowed || t.open == 0 {
		return nil // a delivery of the line is under way, or there is none
	}
	h, err := t.sole, error(nil)
	if h == nil || t.open != 1 {
		h, err = tx.head(t)
	}
	if err != nil || h == nil {
		return err
	}
	switch h.state {
	case edge.Held:
		t.stall, t.stalled = edge.StallHeld, h.id
	case edge.Blocked:
		t.stall, t.stalled = edge.StallBlocked, h.id
	default:
		if t.busy == 0 {
			t.setReady(h)
		}
	}
	return nil
}

func (tx *tx) decideUnordered(t *target) error {
	if t.open == 0 {
		return nil
	}
	h, err := tx.firstDue(t)
	if err != nil {
		return err
	}
	switch {
	case h != nil && t.busy < t.slots:
		t.setReady(h)
	case h == nil && t.slots == 1 && t.busy == t.borrowed:
		return tx.stallOldRows(t)
	}
	return nil
}

// stallOldRows shows what holds up a target that has become strict: rows from
// before that nothing will claim.
func (tx *tx) stallOldRows(t *target) error {
	const query = `SELECT id, state, due_ms, attempts + losses > 0 FROM deliveries
	               WHERE target = ? AND (state = 'held' OR state = 'pending' OR state = 'blocked') AND state <> 'pending' AND ordered = 0
	               ORDER BY line LIMIT 1`
	h, err := scanWaiting(tx.row(query, t.id))
	if err != nil || h == nil {
		return err
	}
	t.stall, t.stalled = edge.Stall(h.state), h.id
	return nil
}

func (t *target) setReady(h *waiting) {
	t.readyMS = sql.NullInt64{Int64: max(h.dueMS, t.servedMS), Valid: true}
	t.class = 0
	if h.retried {
		t.class = 1
	}
}

// frontDelivery is the delivery that is claimed next from a target: the head of a
// strict line, else what is due first; nil when there is none.
func (tx *tx) frontDelivery(t *target) (*delivery, error) {
	const head = `SELECT ` + deliveryColumns + ` FROM deliveries d ` + headOfLine
	const first = `SELECT ` + deliveryColumns + ` FROM deliveries d ` + firstByDue
	query := first
	if t.strict() {
		query = head
	}
	d, err := scanDelivery(tx.row(query, t.id))
	if noRows(err) {
		return nil, nil
	}
	return d, err
}

// What comes first in a strict line among what is not under way, and what is due
// first in an unordered target.
const (
	headOfLine = `WHERE target = ? AND (state = 'held' OR state = 'pending' OR state = 'blocked') AND ordered = 1 ORDER BY line LIMIT 1`
	firstByDue = `WHERE target = ? AND state = 'pending' AND ordered = 0 ORDER BY due_ms, line LIMIT 1`
)

// waiting is what deciding needs to know of a delivery at the front.
type waiting struct {
	id      edge.DeliveryID
	state   edge.State
	dueMS   int64
	retried bool
}

// head is the first delivery of a strict line that is not under way; nil when
// there is none.
func (tx *tx) head(t *target) (*waiting, error) {
	const query = `SELECT id, state, due_ms, attempts + losses > 0 FROM deliveries ` + headOfLine
	return scanWaiting(tx.row(query, t.id))
}

// firstDue is the pending delivery of an unordered target that is due first.
func (tx *tx) firstDue(t *target) (*waiting, error) {
	const query = `SELECT id, state, due_ms, attempts + losses > 0 FROM deliveries ` + firstByDue
	return scanWaiting(tx.row(query, t.id))
}

func scanWaiting(row rowScanner) (*waiting, error) {
	var h waiting
	err := row.Scan(&h.id, &h.state, &h.dueMS, &h.retried)
	if noRows(err) {
		return nil, nil
	}
	return &h, err
}
