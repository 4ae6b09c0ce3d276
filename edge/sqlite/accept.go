package sqlite

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"fencepost/edge"
)

// Accept stores events with their deliveries; see [edge.Intake].
func (s *Store) Accept(ctx context.Context, subs []edge.Submission) ([]edge.Accepted, error) {
	var answers []edge.Accepted
	err := s.acceptOp(ctx, subs, func(tx *tx, prepared []submission) (err error) {
		answers, err = tx.acceptAll(prepared)
		return err
	})
	if err != nil {
		return nil, err
	}
	return answers, nil
}

// acceptOp has the writer run an operation over submissions, unless no event is
// taken now.
func (s *Store) acceptOp(ctx context.Context, subs []edge.Submission, run func(*tx, []submission) error) error {
	if len(subs) > edge.MaxBatchEvents {
		return fmt.Errorf("%w: %d events, the limit is %d", edge.ErrInvalid, len(subs), edge.MaxBatchEvents)
	}
	if err := s.space.refuseWhenLow(); err != nil {
		s.refused.Add(int64(len(subs)))
		return err
	}
	prepared := make([]submission, len(subs))
	bytes := int64(0)
	for i := range subs {
		prepared[i] = prepare(&subs[i])
		bytes += int64(len(subs[i].Event.Data))
	}
	return s.w.doOp(ctx, &op{phase: phaseAccept, bytes: bytes, run: func(tx *tx) error { return run(tx, prepared) }})
}

func (tx *tx) acceptAll(prepared []submission) ([]edge.Accepted, error) {
	answers := make([]edge.Accepted, len(prepared))
	for i := range prepared {
		if err := tx.accept(&prepared[i], &answers[i]); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// submission is what can be computed of a submission outside the writer.
type submission struct {
	*edge.Submission
	hash       int64
	digest     [sha256.Size]byte
	extensions sql.NullString
	fault      error
	followUp   bool // exempt from the bound of the backlog
}

func prepare(sub *edge.Submission) submission {
	e := &sub.Event
	p := submission{Submission: sub, hash: keyHash(e.Source, e.ID), digest: e.Digest()}
	if len(e.Extensions) > 0 {
		text, err := json.Marshal(e.Extensions)
		p.extensions, p.fault = sql.NullString{String: string(text), Valid: true}, err
	}
	if e.ID == "" || e.Source == "" || e.Type == "" {
		p.fault = fmt.Errorf("%w: id, source and type must not be empty", edge.ErrInvalid)
	}
	for _, r := range sub.Routes {
		if r.Handler == "" || len(r.Key) > edge.MaxNameBytes {
			p.fault = fmt.Errorf("%w: route %s: no handler, or a key of more than %d bytes", edge.ErrInvalid, r.Route, edge.MaxNameBytes)
		}
		if r.Key == edge.RouteErrorKey && r.Fault == "" {
			p.fault = fmt.Errorf("%w: route %s: the key %s is reserved", edge.ErrInvalid, r.Route, r.Key)
		}
	}
	return p
}

// keyHash is 64 bits of (source, id): what deduplication looks up. The full key
// is compared on a hit.
func keyHash(source, id string) int64 {
	h := sha256.New()
	h.Write([]byte(source))
	h.Write([]byte{0})
	h.Write([]byte(id))
	var sum [sha256.Size]byte
	return int64(binary.BigEndian.Uint64(h.Sum(sum[:0])))
}

// accept stores one event. A fault of the event alone is put into the answer;
// the error returned is the database's.
func (tx *tx) accept(p *submission, a *edge.Accepted) error {
	if a.Err = p.fault; a.Err != nil {
		return nil
	}
	id, digest, err := tx.findEvent(p.hash, p.Event.Source, p.Event.ID)
	switch {
	case err != nil:
		return err
	case id == 0:
		if err := tx.room(p); errors.Is(err, edge.ErrBacklogFull) {
			a.Err = err
			return nil
		} else if err != nil {
			return err
		}
		return tx.acceptNew(p, a)
	case !bytes.Equal(digest, p.digest[:]):
		tx.count("accept_conflicts", 1)
		a.Event = id
		a.Err = fmt.Errorf("%w: source %q id %q was accepted before with other content (event %d)", edge.ErrConflict, p.Event.Source, p.Event.ID, id)
		return nil
	}
	tx.count("accept_existing", 1)
	a.Event, a.Existing = id, true
	if err := tx.flush(); err != nil { // a target of this transaction must be in the file
		return err
	}
	a.Deliveries, err = tx.firstGeneration(id)
	return err
}

// findEvent returns 0 when there is no event with this source and id.
func (tx *tx) findEvent(hash int64, source, id string) (edge.EventID, []byte, error) {
	var n edge.EventID
	var digest []byte
	const query = `SELECT id, sha256 FROM events WHERE hash = ? AND source = ? AND event_id = ?`
	err := tx.row(query, hash, source, id).Scan(&n, &digest)
	if noRows(err) {
		return 0, nil, nil
	}
	return n, digest, err
}

func (tx *tx) firstGeneration(id edge.EventID) ([]edge.DeliveryRef, error) {
	var refs []edge.DeliveryRef
	const query = `SELECT d.id, d.state, h.name, t.key FROM deliveries d
	               JOIN targets t ON t.id = d.target JOIN handlers h ON h.id = t.handler
	               WHERE d.event = ? AND d.generation = 1 ORDER BY d.id`
	err := tx.each(query, func(rows *sql.Rows) error {
		var r edge.DeliveryRef
		err := rows.Scan(&r.ID, &r.State, &r.Target.Handler, &r.Target.Key)
		refs = append(refs, r)
		return err
	}, int64(id))
	return refs, err
}

func (tx *tx) acceptNew(p *submission, a *edge.Accepted) error {
	e := p.Event
	e.N, e.AcceptedMS = tx.nextEvent(), tx.now
	const insert = `INSERT INTO events (id, hash, source, event_id, type, subject, time, content_type, extensions, depth, accepted_ms, sha256, data, trace)
	                VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	data := e.Data
	if data == nil {
		data = []byte{} // NULL means pruned
	}
	err := tx.exec(insert, int64(e.N), p.hash, e.Source, e.ID, e.Type, orNull(e.Subject), orNull(e.Time), orNull(e.ContentType),
		p.extensions, e.Depth, tx.now, p.digest[:], data, orNull(traceText(e.Trace)))
	if err != nil {
		return err
	}
	if tx.events == nil {
		tx.events = map[edge.EventID]*edge.Event{}
	}
	tx.events[e.N] = &e
	tx.count("accepted", 1)
	a.Event = e.N
	share := edge.ShareBytes(&e, len(p.Routes))
	for i := range p.Routes {
		ref, err := tx.acceptRouted(&e, &p.Routes[i], a.Deliveries, share)
		if err != nil {
			return err
		}
		if ref.ID != 0 {
			a.Deliveries = append(a.Deliveries, ref)
		}
	}
	if len(a.Deliveries) == 0 {
		tx.count("accept_unrouted", 1)
		tx.count(bytesUnrouted, int64(len(e.Data)))
	}
	return nil
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// acceptRouted stores one delivery of a new event. Two routes to one target make
// one delivery: the second yields a zero reference.
func (tx *tx) acceptRouted(e *edge.Event, r *edge.Routed, have []edge.DeliveryRef, share int64) (edge.DeliveryRef, error) {
	key := r.Key
	if r.Fault != "" {
		key = edge.RouteErrorKey
	}
	name := edge.Target{Handler: r.Handler, Key: key}
	for i := range have {
		if have[i].Target == name && r.Fault == "" {
			return edge.DeliveryRef{}, nil
		}
	}
	h, err := tx.ensureHandler(r.Handler)
	if err != nil {
		return edge.DeliveryRef{}, err
	}
	t, err := tx.ensureTarget(h, key)
	if err != nil {
		return edge.DeliveryRef{}, err
	}
	d := &delivery{target: t.id, bytes: share}
	d.ID, d.Event, d.Generation, d.Route = tx.nextDelivery(), e.N, 1, r.Route
	d.KeyOf, d.Line, d.Ordered = d.ID, d.ID, t.slots == 1
	d.State, d.DueMS, d.AcceptedMS, d.Version = edge.Pending, tx.now, tx.now, 1
	if r.TTLMS != 0 {
		d.ExpiresMS = tx.now + r.TTLMS
	}
	if r.Fault != "" {
		d.State, d.block, d.Code, d.Ordered = edge.Blocked, blockRoute, edge.CodeRouteError, false
	}
	if tx.claimableAtOnce(d, t) {
		err = tx.insertClaimed(d, t)
	} else {
		err = tx.insertDelivery(d, t)
	}
	return edge.DeliveryRef{ID: d.ID, Target: name, State: d.State}, err
}

// claimableAtOnce reports whether a new delivery may be inserted already started:
// the dispatch stands, a worker is free, nothing is ahead of it, and its handler
// has nothing to inspect. What was ready before it has been claimed already in
// this commit, so it overtakes nobody.
func (tx *tx) claimableAtOnce(d *delivery, t *target) bool {
	h := t.handler
	return tx.dispatching && d.State == edge.Pending && t.open == 0 && t.busy == 0 && t.stall == edge.NoStall && t.servedMS <= tx.now &&
		h.mayClaim(tx.now) && !h.reg.Inspect && !tx.expired(d) && len(tx.w.hands.held) < tx.w.hands.total
}

// insertClaimed stores a new delivery that is claimed and started in the commit
// that accepts it.
func (tx *tx) insertClaimed(d *delivery, t *target) error {
	d.State, d.Execution, d.Executions, d.FirstStartMS = edge.Running, tx.nextExecution(), 1, tx.now
	if err := tx.insertDelivery(d, t); err != nil {
		return err
	}
	c, err := tx.claimed(d, t, 0, true)
	tx.claims = append(tx.claims, c)
	return err
}

// insertDelivery stores a new delivery and notes it everywhere.
func (tx *tx) insertDelivery(d *delivery, t *target) error {
	const insert = `INSERT INTO deliveries (id, event, target, generation, redrive_of, key_of, again, route, ordered, line, state, block,
	                    due_ms, accepted_ms, expires_ms, first_start_ms, attempts, losses, executions, execution, code, version, bytes)
	                VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, ?, ?, ?, ?, ?)`
	var key any
	if d.KeyOf != d.ID {
		key = int64(d.KeyOf)
	}
	err := tx.exec(insert, int64(d.ID), int64(d.Event), t.id, d.Generation, orNil(int64(d.RedriveOf)), key, d.Again, d.Route, d.Ordered,
		int64(d.Line), string(d.State), orNull(d.block), d.DueMS, d.AcceptedMS, orNil(d.ExpiresMS),
		orNil(d.FirstStartMS), d.Executions, orNil(int64(d.Execution)), d.Code, d.Version, d.bytes)
	if err != nil {
		return err
	}
	tx.stateCount("", d.State)
	tx.bytesCount("", d.State, d.bytes)
	if t.slots == 1 && t.open > 0 && t.open == t.openOrdered && d.Ordered && d.Line == d.ID {
		tx.touchTail(t)
	} else {
		tx.touch(t)
	}
	t.sole = nil
	if t.open == 0 && d.Ordered {
		t.sole = &waiting{d.ID, d.State, d.DueMS, false}
	}
	t.open++
	t.kept++
	if d.Ordered {
		t.openOrdered++
	}
	if d.State != edge.Running { // then the claim is the change
		tx.changed(d, t, "")
	}
	return nil
}

func orNil(n int64) any {
	if n == 0 {
		return nil
	}
	return n
}
