package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"fencepost/edge"
)

// tx is one transaction of the writer. now is fixed for all that happens in it.
type tx struct {
	w           *writer
	now         int64
	seq         sequences
	counters    map[string]int64
	changes     []edge.Change
	claims      []edge.Claimed // of the standing dispatch
	dirty       []*target
	rated       []*handler                   // whose buckets were taken from
	events      map[edge.EventID]*edge.Event // accepted in this transaction: claims need not read them
	added       []heldKey
	removed     []heldLease
	onceRun     bool // a once execution was started
	newOwner    int64
	undo        []func() // restore what is remembered beside the file, when nothing is committed
	dispatching bool     // the standing dispatch claims in this transaction
	accepted    bool     // the accepts of the batch have run
	looked      int      // deliveries looked at for something to drop
	finished    bool     // a delivery has become final
	wrote       bool
}

type sequences struct {
	event, delivery, execution, target, commit int64
	chain                                      int64
}

// beginTx begins immediately, so that no statement inside can meet a busy
// database, and reads the sequences.
func (w *writer) beginTx() (*tx, error) {
	if _, err := w.begin.Exec(); err != nil {
		return nil, err
	}
	tx := &tx{w: w, now: w.clock.NowMS()}
	if w.store.o.Share {
		w.othersWrote()
	}
	const read = `SELECT event, delivery, execution, target, commit_no, chain FROM sequences WHERE id = 1`
	err := tx.row(read).Scan(&tx.seq.event, &tx.seq.delivery, &tx.seq.execution, &tx.seq.target, &tx.seq.commit, &tx.seq.chain)
	if err != nil {
		return tx, err
	}
	w.cache.trim()
	if err := tx.loadBytes(); err != nil {
		return tx, err
	}
	return tx, tx.loadHandlers()
}

// runBatch runs the operations by phase, with the standing dispatch claiming
// after the settles and again after the accepts.
func (tx *tx) runBatch(batch []*op, dispatching bool) error {
	tx.dispatching = dispatching && tx.w.store.Hold() == nil
	var waiting []*op // claims that found nothing before the accepts
	for p := phaseSettle; p < phases; p++ {
		for _, o := range batch {
			if o.phase != p {
				continue
			}
			if err := tx.runOp(o); err != nil {
				return err
			}
			if p == phaseClaim && o.err == nil {
				waiting = append(waiting, o)
			}
		}
		if err := tx.flush(); err != nil {
			return err
		}
		if tx.dispatching && p != phaseClaim {
			claims, err := tx.claimReady(noLimit)
			if err != nil {
				return err
			}
			tx.claims = append(tx.claims, claims...)
		}
	}
	tx.accepted = true
	for _, o := range waiting {
		if err := tx.runOp(o); err != nil {
			return err
		}
	}
	return tx.flush()
}

// runOp runs one operation. One of edge's errors belongs to the operation's
// caller; any other is returned and voids the batch.
func (tx *tx) runOp(o *op) error {
	o.err = o.run(tx)
	if o.err == nil || refusal(o.err) {
		return nil
	}
	return o.err
}

// refusal reports whether err is an answer to the caller, given before anything
// was written.
func refusal(err error) bool {
	for _, known := range [...]error{edge.ErrInvalid, edge.ErrNotFound, edge.ErrConflict, edge.ErrLeaseLost, edge.ErrBusy} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// finish writes what is kept once per commit, and commits.
func (tx *tx) finish() error {
	if !tx.wrote {
		_, err := tx.w.conn.ExecContext(context.Background(), "ROLLBACK")
		return err
	}
	if err := tx.noteDoubt(); err != nil {
		return err
	}
	const counter = `INSERT INTO counters (name, value) VALUES (?1, ?2)
	                 ON CONFLICT (name) DO UPDATE SET value = value + ?2`
	for name, n := range tx.counters {
		if n == 0 {
			continue
		}
		if err := tx.exec(counter, name, n); err != nil {
			return err
		}
	}
	if err := tx.writeBuckets(); err != nil {
		return err
	}
	tx.seq.commit++
	if !tx.w.store.o.unmarked {
		tx.seq.chain = chainAfter(tx.seq.chain, tx.w.store.owner, tx.now, tx.seq)
		const ring = `INSERT INTO marks (slot, commit_no, chain) VALUES (?1, ?2, ?3)
		              ON CONFLICT (slot) DO UPDATE SET commit_no = ?2, chain = ?3`
		if err := tx.exec(ring, tx.seq.commit%ringSize, tx.seq.commit, tx.seq.chain); err != nil {
			return err
		}
	}
	const seq = `UPDATE sequences SET event = ?, delivery = ?, execution = ?, target = ?, commit_no = ?, chain = ? WHERE id = 1`
	if err := tx.exec(seq, tx.seq.event, tx.seq.delivery, tx.seq.execution, tx.seq.target, tx.seq.commit, tx.seq.chain); err != nil {
		return err
	}
	if _, err := tx.w.commit.Exec(); err != nil {
		return err
	}
	if tx.newOwner != 0 {
		tx.w.owner = tx.newOwner
	}
	return nil
}

func (tx *tx) exec(text string, args ...any) error {
	s, err := tx.w.stmt(text)
	if err != nil {
		return err
	}
	tx.wrote = true
	_, err = s.Exec(args...)
	return err
}

// guarded runs one conditional write and reports whether it changed a row.
func (tx *tx) guarded(text string, args ...any) (bool, error) {
	s, err := tx.w.stmt(text)
	if err != nil {
		return false, err
	}
	tx.wrote = true
	r, err := s.Exec(args...)
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	return n > 0, err
}

// row runs a statement that yields at most one row, to its end.
func (tx *tx) row(text string, args ...any) rowScanner {
	s, err := tx.w.stmt(text)
	if err != nil {
		return failedRow{err}
	}
	return s.QueryRow(args...)
}

// each calls scan for every row of a query.
func (tx *tx) each(text string, scan func(*sql.Rows) error, args ...any) error {
	s, err := tx.w.stmt(text)
	if err != nil {
		return err
	}
	rows, err := s.Query(args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

type rowScanner interface{ Scan(dest ...any) error }

type failedRow struct{ err error }

func (r failedRow) Scan(...any) error { return r.err }

func (tx *tx) count(name string, n int64) {
	if tx.counters == nil {
		tx.counters = map[string]int64{}
	}
	tx.counters[name] += n
}

// changed notes a change for publication after the commit.
func (tx *tx) changed(d *delivery, t *target, outcome edge.Outcome) {
	c := edge.Change{
		AtMS: tx.now, Delivery: d.ID, Event: d.Event,
		Target: t.name(), State: d.State, Code: d.Code,
		Execution: d.Execution, Outcome: outcome, Attempts: d.Attempts,
	}
	if d.State == edge.Pending {
		c.DueMS = d.DueMS
	}
	tx.changes = append(tx.changes, c)
}

// mustChange turns a guarded write that changed nothing, though the rows read in
// this transaction said that it would, into an error: the guard and the code
// disagree, and nothing may be stored.
func mustChange(ok bool, err error, what string, id any) error {
	if err == nil && !ok {
		return fmt.Errorf("guard of %s refused %v", what, id)
	}
	return err
}

func (tx *tx) nextEvent() edge.EventID {
	tx.seq.event++
	return edge.EventID(tx.seq.event)
}

func (tx *tx) nextDelivery() edge.DeliveryID {
	tx.seq.delivery++
	return edge.DeliveryID(tx.seq.delivery)
}

func (tx *tx) nextExecution() edge.ExecutionID {
	tx.seq.execution++
	return edge.ExecutionID(tx.seq.execution)
}

func (tx *tx) nextTarget() int64 {
	tx.seq.target++
	return tx.seq.target
}
