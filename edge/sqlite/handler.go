package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"math"

	"fencepost/edge"
)

// handler is a row of handlers, with what this process knows of it.
type handler struct {
	id       int64
	name     string
	gate     edge.Gate
	kept     sql.NullString
	gateCode string
	resumeMS int64
	slots    int
	revision int64
	version  int64

	reg   *edge.Registration // nil when this process does not have it
	limit int                // deliveries that this owner may hold at once
	held  [2]int             // deliveries held now, by class
	last  int                // class of the last claim, for a limit of one
	// hint is a lower bound of the ready times of its targets: 0 = not known,
	// never = none is ready.
	hint int64

	bucket bucket
}

const never = math.MaxInt64

func (h *handler) lowerHint(ms int64) {
	if h.hint != 0 && ms < h.hint {
		h.hint = ms
	}
}

func (h *handler) opened(now int64) bool {
	return h.gate == edge.GateOn || h.gate == edge.GatePaused && h.resumeMS <= now
}

// mayClaim reports whether one more delivery of h may be claimed now: this process
// has it, a slot is free, its gate is open and its rate limit has a token.
func (h *handler) mayClaim(now int64) bool {
	return h.reg != nil && h.held[0]+h.held[1] < h.limit && h.opened(now) && h.bucket.rate.ReadyMS(h.bucket.fullUS) <= now
}

// handlers is the writer's memory of all handlers and of what this owner holds.
type handlers struct {
	loaded bool
	byID   map[int64]*handler
	byName map[string]*handler
	total  int // deliveries that this owner may hold in all
	lease  int64
	regs   map[string]*edge.Registration
	held   map[edge.Token]heldLease
	// active remembers the deliveries that this owner holds, as they are in
	// the file: settling them reads nothing. Dropped like the targets.
	active map[edge.DeliveryID]*active
}

// active is a delivery under an execution of this owner.
type active struct {
	d *delivery
	x *execution
}

// heldLease is a delivery's lease that this owner holds.
type heldLease struct {
	token    edge.Token
	delivery edge.DeliveryID
	handler  *handler
	class    int
}

type heldKey = edge.Token

func (hs *handlers) init() {
	hs.byID, hs.byName = map[int64]*handler{}, map[string]*handler{}
	hs.held = map[edge.Token]heldLease{}
	hs.active = map[edge.DeliveryID]*active{}
	hs.regs = map[string]*edge.Registration{}
}

func (hs *handlers) forget() {
	hs.loaded = false
	clear(hs.active)
	for _, h := range hs.byID {
		h.hint = 0
	}
}

// nextDue is a lower bound of when the standing dispatch could claim something:
// 0 = not before another commit.
func (hs *handlers) nextDue() int64 {
	if len(hs.held) >= hs.total {
		return 0
	}
	next := int64(never)
	for _, h := range hs.byID {
		if h.reg == nil || h.held[0]+h.held[1] >= h.limit {
			continue
		}
		due := max(h.hint, h.bucket.rate.ReadyMS(h.bucket.fullUS), 1)
		switch {
		case h.gate == edge.GatePaused:
			due = max(due, h.resumeMS)
		case h.gate != edge.GateOn:
			continue
		}
		next = min(next, due)
	}
	if next == never {
		return 0
	}
	return next
}

// loadHandlers reads the handlers when they are not known.
func (tx *tx) loadHandlers() error {
	hs := &tx.w.hands
	if hs.loaded {
		return nil
	}
	const query = `SELECT id, name, gate, gate_kept, gate_code, resume_ms, slots, revision, version FROM handlers`
	seen := map[int64]bool{}
	err := tx.each(query, func(rows *sql.Rows) error {
		var r handler
		var resume sql.NullInt64
		if err := rows.Scan(&r.id, &r.name, &r.gate, &r.kept, &r.gateCode, &resume, &r.slots, &r.revision, &r.version); err != nil {
			return err
		}
		r.resumeMS = resume.Int64
		seen[r.id] = true
		h := hs.byID[r.id]
		if h == nil {
			h = &handler{}
			hs.byID[r.id] = h
			hs.byName[r.name] = h
			h.reg = hs.regs[r.name]
		}
		h.id, h.name, h.gate, h.kept, h.gateCode = r.id, r.name, r.gate, r.kept, r.gateCode
		h.resumeMS, h.slots, h.revision, h.version = r.resumeMS, r.slots, r.revision, r.version
		return nil
	})
	for id, h := range hs.byID {
		if err == nil && !seen[id] { // made in a transaction that did not commit
			delete(hs.byID, id)
			delete(hs.byName, h.name)
		}
	}
	if err == nil {
		err = tx.loadBuckets()
	}
	hs.loaded = err == nil
	return err
}

// ensureHandler returns the handler's row, making one whose gate is missing when
// the file does not know it.
func (tx *tx) ensureHandler(name string) (*handler, error) {
	if h, ok := tx.w.hands.byName[name]; ok {
		return h, nil
	}
	h := &handler{name: name, gate: edge.GateMissing, slots: 1, version: 1}
	h.kept = sql.NullString{String: string(edge.GateOn), Valid: true}
	const insert = `INSERT INTO handlers (name, gate, gate_kept, gate_code, slots, revision, version)
	                VALUES (?, 'missing', 'on', '', 1, 0, 1) RETURNING id`
	tx.wrote = true
	if err := tx.row(insert, name).Scan(&h.id); err != nil {
		return nil, err
	}
	tx.w.hands.byID[h.id], tx.w.hands.byName[name] = h, h
	return h, nil
}

func (tx *tx) writeHandler(h *handler) error {
	h.version++
	var resume any
	if h.resumeMS != 0 {
		resume = h.resumeMS
	}
	const update = `UPDATE handlers
	                SET gate = ?, gate_kept = ?, gate_code = ?, resume_ms = ?, slots = ?, revision = ?, version = ?
	                WHERE id = ?`
	return tx.exec(update, string(h.gate), h.kept, h.gateCode, resume, h.slots, h.revision, h.version, h.id)
}

// Register declares this process's handlers; see [edge.Intake].
func (s *Store) Register(ctx context.Context, rs []edge.Registration, limit int, leaseMS int64) error {
	if limit < 1 || leaseMS < 1 {
		return fmt.Errorf("%w: limit %d and lease %d ms must be at least 1", edge.ErrInvalid, limit, leaseMS)
	}
	for i := range rs {
		if err := registrationFault(&rs[i]); err != nil {
			return err
		}
	}
	var resized []int64
	err := s.w.doEnd(ctx, func(tx *tx) error {
		resized = resized[:0]
		tx.undo = append(tx.undo, tx.w.hands.keepDeclared())
		tx.w.hands.total, tx.w.hands.lease = limit, leaseMS
		return tx.register(rs, &resized)
	})
	if err != nil {
		return err
	}
	for _, h := range resized {
		if err := s.resizeTargets(ctx, h); err != nil {
			return err
		}
	}
	return s.requeueConfigured(ctx, rs)
}

// keepDeclared returns what puts the declarations of now in force again.
func (hs *handlers) keepDeclared() (restore func()) {
	total, lease, regs := hs.total, hs.lease, hs.regs
	limits := make(map[*handler]int, len(hs.byID))
	declared := make(map[*handler]*edge.Registration, len(hs.byID))
	for _, h := range hs.byID {
		limits[h], declared[h] = h.limit, h.reg
	}
	return func() {
		hs.total, hs.lease, hs.regs = total, lease, regs
		for h := range limits {
			h.limit, h.reg = limits[h], declared[h]
		}
	}
}

func (tx *tx) register(rs []edge.Registration, resized *[]int64) error {
	hs := &tx.w.hands
	regs := map[string]*edge.Registration{}
	for i := range rs {
		regs[rs[i].Name] = &rs[i]
	}
	hs.regs = regs
	for name, r := range regs {
		h, err := tx.ensureHandler(name)
		if err != nil {
			return err
		}
		if err := tx.registerOne(h, r, resized); err != nil {
			return err
		}
	}
	for name, h := range hs.byName {
		if regs[name] != nil {
			continue
		}
		h.reg = nil
		if h.gate == edge.GateMissing {
			continue
		}
		h.kept = sql.NullString{String: string(h.gate), Valid: true}
		h.gate = edge.GateMissing // the code stays, for when it comes back
		if err := tx.writeHandler(h); err != nil {
			return err
		}
	}
	return nil
}

func (tx *tx) registerOne(h *handler, r *edge.Registration, resized *[]int64) error {
	rev, err := tx.ensureRevision(h, r)
	if err != nil {
		return err
	}
	h.reg, h.limit, h.hint = r, r.Limit, 0
	if h.gate == edge.GateMissing {
		h.gate, h.kept = edge.Gate(h.kept.String), sql.NullString{}
	}
	if h.slots != r.Slots {
		*resized = append(*resized, h.id)
	}
	h.slots, h.revision = r.Slots, rev
	if err := tx.setRate(h, r.Rate); err != nil {
		return err
	}
	return tx.writeHandler(h)
}

// registrationFault judges a declaration before anything is written.
func registrationFault(r *edge.Registration) error {
	if r.Name == "" || len(r.Name) > edge.MaxNameBytes {
		return fmt.Errorf("%w: handler %q: a name has 1 to %d bytes", edge.ErrInvalid, r.Name, edge.MaxNameBytes)
	}
	if r.Slots < 1 || r.Limit < 1 {
		return fmt.Errorf("%w: handler %s: slots and limit must be at least 1", edge.ErrInvalid, r.Name)
	}
	if err := r.Rate.Validate(); err != nil {
		return fmt.Errorf("%w: handler %s: %w", edge.ErrInvalid, r.Name, err)
	}
	if r.Halt && r.Slots > 1 {
		return fmt.Errorf("%w: handler %s: only a strict line can halt", edge.ErrInvalid, r.Name)
	}
	switch r.Effect {
	case edge.Idempotent, edge.Transactional, edge.Once:
		return nil
	}
	return fmt.Errorf("%w: handler %s: effect %q: must be idempotent, transactional or once", edge.ErrInvalid, r.Name, r.Effect)
}

func (tx *tx) ensureRevision(h *handler, r *edge.Registration) (int64, error) {
	var id int64
	const find = `SELECT id FROM revisions WHERE handler = ? AND revision = ? AND effect = ?`
	err := tx.row(find, h.id, r.Revision, string(r.Effect)).Scan(&id)
	if !noRows(err) {
		return id, err
	}
	tx.wrote = true
	const insert = `INSERT INTO revisions (handler, revision, effect) VALUES (?, ?, ?) RETURNING id`
	err = tx.row(insert, h.id, r.Revision, string(r.Effect)).Scan(&id)
	return id, err
}

// upkeepStep bounds the rows of one transaction of unhurried work.
const upkeepStep = 500

// resizeTargets gives a handler's targets their new number of slots, in bounded
// steps.
func (s *Store) resizeTargets(ctx context.Context, handlerID int64) error {
	const query = `SELECT id FROM targets WHERE handler = ? AND slots <> ? AND key <> '!route' ORDER BY id LIMIT ?`
	return s.inSteps(ctx, func(tx *tx) (int, error) {
		h := tx.w.hands.byID[handlerID]
		ids, err := tx.ids(query, handlerID, h.slots, upkeepStep)
		for _, id := range ids {
			t, err := tx.target(id)
			if err != nil {
				return 0, err
			}
			t.slots = h.slots
			tx.touch(t)
		}
		return len(ids), err
	})
}

// requeueConfigured makes what is blocked for a configuration reason pending.
func (s *Store) requeueConfigured(ctx context.Context, rs []edge.Registration) error {
	names := map[string]bool{}
	for _, r := range rs {
		names[r.Name] = true
	}
	after := int64(0)
	const query = `SELECT id FROM deliveries WHERE state = 'blocked' AND block = 'config' AND id > ? ORDER BY id LIMIT ?`
	return s.inSteps(ctx, func(tx *tx) (int, error) {
		ids, err := tx.ids(query, after, upkeepStep)
		for _, id := range ids {
			if err := tx.requeue(edge.DeliveryID(id), names); err != nil {
				return 0, err
			}
		}
		if len(ids) > 0 {
			after = ids[len(ids)-1]
		}
		return len(ids), err
	})
}

func (tx *tx) requeue(id edge.DeliveryID, names map[string]bool) error {
	d, err := tx.delivery(id)
	if err != nil {
		return err
	}
	t, err := tx.target(d.target)
	if err != nil || !names[t.handler.name] {
		return err
	}
	v := edge.Verdict{To: edge.Pending, Code: edge.CodeHandlerRequeued, DueMS: tx.now, Attempts: d.Attempts, Losses: d.Losses}
	if d.CancelMS != 0 { // what would lead to pending leads to cancelled once that was asked for
		v.To, v.Code = edge.Cancelled, edge.CodeCancelled
	}
	return tx.move(d, t, edge.OnReconfigure, v, "", "")
}

// inSteps calls step in transactions of their own until it did less than a full
// step.
func (s *Store) inSteps(ctx context.Context, step func(tx *tx) (int, error)) error {
	for {
		n := 0
		err := s.w.doEnd(ctx, func(tx *tx) error {
			var err error
			n, err = step(tx)
			return err
		})
		if err != nil || n < upkeepStep {
			return err
		}
	}
}

func (tx *tx) ids(query string, args ...any) ([]int64, error) {
	var ids []int64
	err := tx.each(query, func(rows *sql.Rows) error {
		var id int64
		err := rows.Scan(&id)
		ids = append(ids, id)
		return err
	}, args...)
	return ids, err
}

// SetLimit changes a limit; see [edge.Intake].
func (s *Store) SetLimit(name string, n, total int) {
	_ = s.w.doEnd(context.Background(), func(tx *tx) error {
		if h := tx.w.hands.byName[name]; h != nil {
			h.limit = n
		}
		tx.w.hands.total = total
		return nil
	})
}

// SetGate opens or closes a handler's gate; see [edge.Operator].
func (s *Store) SetGate(ctx context.Context, name string, g edge.Gate, code string, resumeMS int64) (edge.HandlerInfo, error) {
	var info edge.HandlerInfo
	err := s.w.do(ctx, phaseSettle, func(tx *tx) error {
		h := tx.w.hands.byName[name]
		if h == nil {
			return fmt.Errorf("%w: handler %q", edge.ErrNotFound, name)
		}
		if err := tx.setGate(h, g, code, resumeMS); err != nil {
			return err
		}
		var err error
		info, err = tx.handlerInfo(h)
		return err
	})
	return info, err
}

func (tx *tx) setGate(h *handler, g edge.Gate, code string, resumeMS int64) error {
	switch g {
	case edge.GateOn:
		code, resumeMS = "", 0
	case edge.GateOff:
		resumeMS = 0
	case edge.GatePaused:
		if resumeMS <= tx.now {
			return fmt.Errorf("%w: a pause must end in the future", edge.ErrInvalid)
		}
	default:
		return fmt.Errorf("%w: gate %q cannot be set; use on, off or paused", edge.ErrInvalid, g)
	}
	h.gateCode, h.resumeMS = code, resumeMS
	if h.gate == edge.GateMissing {
		h.kept = sql.NullString{String: string(g), Valid: true}
	} else {
		h.gate = g
	}
	tx.count("gate_changes", 1)
	return tx.writeHandler(h)
}

func (tx *tx) handlerInfo(h *handler) (edge.HandlerInfo, error) {
	return scanHandlerInfo(tx.row(selectHandler+`WHERE h.name = ?`, h.name), tx.now)
}

// shownGateCode says why a gate is closed. The code of a missing handler's own
// gate is kept for when it comes back, and not shown meanwhile.
func shownGateCode(g edge.Gate, code string) string {
	if g == edge.GateMissing {
		return edge.CodeHandlerMissing
	}
	return code
}

// hold notes a lease of this owner; release and rollback take it back.
func (tx *tx) hold(token edge.Token, d edge.DeliveryID, h *handler, class int) {
	tx.w.hands.held[token] = heldLease{token, d, h, class}
	h.held[class]++
	h.last = class
	tx.added = append(tx.added, token)
}

func (tx *tx) unhold(token edge.Token) {
	l, ok := tx.w.hands.held[token]
	if !ok {
		return
	}
	delete(tx.w.hands.held, token)
	l.handler.held[l.class]--
	tx.removed = append(tx.removed, l)
}

// undoHeld restores what a transaction that did not commit had noted.
func (tx *tx) undoHeld() {
	for _, l := range tx.removed {
		tx.w.hands.held[l.token] = l
		l.handler.held[l.class]++
	}
	for _, token := range tx.added {
		if l, ok := tx.w.hands.held[token]; ok {
			delete(tx.w.hands.held, token)
			l.handler.held[l.class]--
		}
	}
}
