package sqlite

import (
	"database/sql"
	"fmt"

	"fencepost/edge"
)

// What a blocked delivery waits for.
const (
	blockOutcome = "outcome" // begun once work of unknown outcome: evidence or a person
	blockConfig  = "config"  // the handler's configuration
	blockRoute   = "route"   // the route's configuration
)

// delivery is a row of deliveries as the writer works on it. Target is not
// filled; target is its id.
type delivery struct {
	edge.Delivery
	target int64
	block  string
	bytes  int64 // what it is counted as; fixed at accept
}

const deliveryColumns = `d.id, d.event, d.target, d.generation, d.redrive_of, d.key_of, d.again, d.route, d.ordered, d.line,
	d.state, d.block, d.due_ms, d.accepted_ms, d.expires_ms, d.first_start_ms, d.attempts, d.losses, d.executions,
	d.execution, d.code, d.cancel_ms, d.finished_ms, d.version, d.bytes`

// scanner collects the nullable columns of a delivery.
type deliveryScan struct {
	d                                                                  *delivery
	redriveOf, keyOf, expires, firstStart, execution, cancel, finished sql.NullInt64
	block                                                              sql.NullString
}

func (s *deliveryScan) dest() []any {
	d := s.d
	return []any{
		&d.ID, &d.Event, &d.target, &d.Generation, &s.redriveOf, &s.keyOf, &d.Again, &d.Route, &d.Ordered, &d.Line,
		&d.State, &s.block, &d.DueMS, &d.AcceptedMS, &s.expires, &s.firstStart, &d.Attempts, &d.Losses, &d.Executions,
		&s.execution, &d.Code, &s.cancel, &s.finished, &d.Version, &d.bytes,
	}
}

func (s *deliveryScan) done() *delivery {
	d := s.d
	d.RedriveOf, d.KeyOf = edge.DeliveryID(s.redriveOf.Int64), edge.DeliveryID(s.keyOf.Int64)
	if d.KeyOf == 0 {
		d.KeyOf = d.ID
	}
	d.ExpiresMS, d.FirstStartMS, d.CancelMS, d.FinishedMS = s.expires.Int64, s.firstStart.Int64, s.cancel.Int64, s.finished.Int64
	d.Execution, d.block = edge.ExecutionID(s.execution.Int64), s.block.String
	return d
}

func scanDelivery(row rowScanner) (*delivery, error) {
	s := deliveryScan{d: &delivery{}}
	if err := row.Scan(s.dest()...); err != nil {
		return nil, err
	}
	return s.done(), nil
}

// delivery returns a delivery as it is in the file.
func (tx *tx) delivery(id edge.DeliveryID) (*delivery, error) {
	if a, ok := tx.w.hands.active[id]; ok {
		return a.d, nil
	}
	d, err := scanDelivery(tx.row(`SELECT `+deliveryColumns+` FROM deliveries d WHERE d.id = ?`, int64(id)))
	if noRows(err) {
		return nil, fmt.Errorf("%w: delivery %d", edge.ErrNotFound, id)
	}
	return d, err
}

// deliveryAndTarget reads what an operator's verb works on.
func (tx *tx) deliveryAndTarget(id edge.DeliveryID) (*delivery, *target, error) {
	d, err := tx.delivery(id)
	if err != nil {
		return nil, nil, err
	}
	t, err := tx.target(d.target)
	return d, t, err
}

// public is the delivery as callers see it.
func (d *delivery) public(t *target) edge.Delivery {
	p := d.Delivery
	p.Target = t.name()
	return p
}

// illegal is the refusal of a move that the table of transitions does not have.
func illegal(d *delivery, on edge.Trigger, hint string) error {
	return &edge.TransitionError{Delivery: d.ID, Event: on, State: d.State, Version: d.Version, Hint: hint}
}

// unfenced and fenced are the guards of a move. Both name the state and version
// that were read; the fenced one also the lease token.
const (
	moveSet = `UPDATE deliveries
	           SET state = ?, block = ?, due_ms = ?, attempts = ?, losses = ?, code = ?, finished_ms = ?, version = version + 1
	           WHERE id = ? AND state = ? AND version = ?`
	moveUnfenced = moveSet
	moveFenced   = moveSet + ` AND EXISTS (SELECT 1 FROM leases WHERE target = deliveries.target AND token = ?)`
)

// move writes where a delivery goes, by one guarded statement, and all that goes
// with it: counters, the target's numbers, the consumption, the change to
// publish. token is 0 for a move that is not fenced; block says what a blocked
// delivery waits for; outcome is that of the execution which the move ends.
func (tx *tx) move(d *delivery, t *target, on edge.Trigger, v edge.Verdict, block string, outcome edge.Outcome) error {
	return tx.moveWith(d, t, on, v, block, outcome, 0)
}

func (tx *tx) moveWith(d *delivery, t *target, on edge.Trigger, v edge.Verdict, block string, outcome edge.Outcome, token edge.Token) error {
	if !edge.Legal(d.State, on) {
		return illegal(d, on, "")
	}
	var blocked, finished any
	if v.To == edge.Blocked {
		blocked = block
	}
	if v.To.Final() {
		finished = tx.now
	}
	due := d.DueMS
	if v.To == edge.Pending {
		due = v.DueMS
	}
	args := []any{string(v.To), blocked, due, v.Attempts, v.Losses, v.Code, finished, int64(d.ID), string(d.State), d.Version}
	text := moveUnfenced
	if token != 0 {
		text, args = moveFenced, append(args, int64(token))
	}
	ok, err := tx.guarded(text, args...)
	if err := mustChange(ok, err, string(on), d.ID); err != nil {
		return err
	}
	return tx.moved(d, t, v, block, due, outcome)
}

// moved follows a written move in memory.
func (tx *tx) moved(d *delivery, t *target, v edge.Verdict, block string, due int64, outcome edge.Outcome) error {
	tx.stateCount(d.State, v.To)
	tx.bytesCount(d.State, v.To, d.bytes)
	t.sole = nil
	d.State, d.DueMS, d.Attempts, d.Losses, d.Code, d.block = v.To, due, v.Attempts, v.Losses, v.Code, block
	d.Version++
	if v.To != edge.Leased && v.To != edge.Running {
		delete(tx.w.hands.active, d.ID)
	}
	if v.To.Final() {
		d.FinishedMS = tx.now
		t.open--
		if d.Ordered {
			t.openOrdered--
		}
		tx.count("final_"+string(v.To), 1)
		tx.finishedAt()
	}
	tx.touch(t)
	tx.changed(d, t, outcome)
	if v.To != edge.Succeeded {
		return nil
	}
	return tx.consume(d, t)
}

// consume writes the consumption: this event's effect for this target is done.
func (tx *tx) consume(d *delivery, t *target) error {
	const insert = `INSERT INTO consumptions (event, target) VALUES (?, ?) ON CONFLICT DO NOTHING`
	isNew, err := tx.guarded(insert, int64(d.Event), t.id)
	if isNew {
		t.kept++
	}
	return err
}

func (tx *tx) consumed(event edge.EventID, targetID int64) (bool, error) {
	var one int
	err := tx.row(`SELECT 1 FROM consumptions WHERE event = ? AND target = ?`, int64(event), targetID).Scan(&one)
	if noRows(err) {
		return false, nil
	}
	return err == nil, err
}

func (tx *tx) stateCount(from, to edge.State) {
	if from == to {
		return
	}
	if from != "" {
		tx.count(stateCounter(from), -1)
	}
	if to != "" {
		tx.count(stateCounter(to), 1)
	}
}

func stateCounter(s edge.State) string { return "state." + string(s) }

// halt stops the line of a strict target whose head failed, when the handler
// asks for it. Only a settle or a spent budget halts.
func (tx *tx) halt(d *delivery, t *target) {
	if d.State != edge.Failed || !d.Ordered || t.handler.reg == nil || !t.handler.reg.Halt {
		return
	}
	t.stall, t.stalled = edge.StallHalted, d.ID
	tx.count("halts", 1)
	tx.touch(t)
}
