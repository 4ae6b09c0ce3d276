package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"fencepost/edge"

	"github.com/jmoiron/sqlx"
)

// attend compares the database with its side file before anything is written. It
// reads on a connection that cannot write: closing one that can would play the
// log into the database, and what a damaged log still holds would be gone.
func (s *Store) attend(ctx context.Context) error {
	db, err := sqlx.Open(driverName, s.readOnlyURI())
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	conn, err := db.Connx(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	s.here = s.o.host()
	r, markErr, st, err := s.compare(ctx, conn)
	if err != nil {
		return err
	}
	if err := s.glance(ctx, conn, st.marked); err != nil {
		return err
	}
	s.lastEnd = lastEnd(r, markErr, s.here)
	s.names = append(st.former, edge.OneName(st.node)...)
	if s.o.restored != nil {
		s.found = s.o.restored
		s.found.foundChain = st.seq.chain
	}
	switch {
	case s.o.OnLoss == LossLook:
		return nil
	case s.found != nil && s.found.Hold && s.o.OnLoss == LossRefuse:
		return &LossError{s.path, s.found.Loss}
	}
	if markErr != nil && st.fresh() && st.seq.commit > 0 {
		s.log.Info("a side file is kept from now on, which tells of commits that get lost", "path", markPath(s.path), "commit", st.seq.commit)
	}
	next := record{turn: r.turn, host: s.here, ino: st.ino, dev: st.dev, normal: s.o.Durability == DurabilityNormal, lone: !s.o.Share}
	next.no, next.chain, next.seq = st.seq.commit, st.seq.chain, st.seq
	next.syncedNo, next.synced = next.no, next.chain
	if markErr == nil && s.found == nil && r.normal && !r.clean { // what the process before did not sync still is not
		next.syncedNo, next.synced, next.normal = r.syncedNo, r.synced, true
	}
	copy(next.node[:], st.node)
	s.next = next
	s.machineKnown = st.machine == s.here.machine || s.here.machine == 0
	return s.keepHold(st.hold, st.holdErr)
}

// LastEnd is how the process before this one ended, as the side file tells it:
// clean, killed (nothing that it committed is lost), power_loss (or another start
// of the machine); "" when it is not known, as among sharers.
func (s *Store) LastEnd() string { return s.lastEnd }

func lastEnd(r record, markErr error, here host) string {
	switch {
	case markErr != nil || !r.lone:
		return ""
	case r.clean:
		return "clean"
	case here.sameStart(r.host):
		return "killed"
	}
	return "power_loss"
}

// look compares the database with its side file for a reader.
func (s *Store) look(ctx context.Context) error {
	conn, err := s.rdb.Connx(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	s.here = s.o.host()
	_, _, st, err := s.compare(ctx, conn)
	if err != nil {
		return err
	}
	s.names = append(st.former, edge.OneName(st.node)...)
	return s.keepHold(st.hold, st.holdErr)
}

// compare judges the database by its side file. Among sharers another one may
// commit, or make the side file, between the two readings: what is found then is
// looked at again.
func (s *Store) compare(ctx context.Context, conn *sqlx.Conn) (r record, markErr error, st fileState, err error) {
	for try := 0; ; try++ {
		r, markErr = readMark(s.path) // first: it is never ahead of what is read after it
		if markErr != nil && !errors.Is(markErr, errNoMark) && !errors.Is(markErr, errBadMark) {
			return r, markErr, st, markErr
		}
		if st, err = readState(ctx, conn, s.path); err != nil {
			return r, markErr, st, err
		}
		s.found = judge(r, markErr, &st, s.here, s.alone())
		if s.found == nil || !s.o.Share || try == 3 {
			return r, markErr, st, nil
		}
	}
}

// keepMark opens the side file for the writer and writes down what attend found.
// It comes before every other operation of the store.
func (s *Store) keepMark(ctx context.Context) error {
	if s.o.OnLoss == LossLook || s.o.unmarked {
		return nil
	}
	m, err := openMark(s.path, s.next, s.o.Share)
	if err != nil {
		return fmt.Errorf("open %s: %w", markPath(s.path), err)
	}
	s.w.mark = m
	if s.found == nil && s.machineKnown {
		return m.put()
	}
	if m.lock != nil { // another sharer that opens now must see what this one did
		ok, err := takeWithin(m.lock, openPatience)
		if err != nil {
			return err
		}
		m.locked = ok
		defer func() { m.locked = false; _ = m.lock.Unlock() }()
	}
	renamed := ""
	err = s.w.do(ctx, phaseSettle, func(tx *tx) (err error) {
		renamed, err = tx.recordFinding(s.found, s.here)
		return err
	})
	if err != nil {
		return err
	}
	if renamed != "" {
		last := &s.names[len(s.names)-1]
		last.Event, last.Delivery = s.before.event, s.before.delivery
		s.names = append(s.names, edge.OneName(renamed)...)
		copy(m.r.node[:], renamed)
	}
	if err := m.put(); err != nil {
		return err
	}
	s.tellFinding(renamed)
	return nil
}

func (s *Store) tellFinding(renamed string) {
	f := s.found
	switch {
	case f == nil:
	case f.Hold:
		hold := f.Loss
		s.hold.CompareAndSwap(nil, &hold)
		s.log.Error("database and side file disagree: events are taken, nothing is dispatched until a person decides", "kind", string(f.Kind),
			"expected_commit", f.ExpectedNo, "found_commit", f.FoundNo, "detail", f.Detail, "renamed", renamed, "do", wayOut(&f.Loss))
	case f.Kind != "":
		s.log.Warn("the power went, and durability \"normal\" may lose its last second; work goes on",
			"expected_commit", f.ExpectedNo, "found_commit", f.FoundNo, "detail", f.Detail)
	}
}

// wayOut says what a person does about a loss.
func wayOut(l *edge.Loss) string {
	if l.Lost && l.AcceptedMS == 0 {
		return "restore a backup, or: fencepost accept-loss --reason TEXT, then fencepost resume --reason TEXT"
	}
	return "look whether another node works on a copy of this file, then: fencepost resume --reason TEXT"
}

// recordFinding stores a finding with its consequences. The same finding is
// stored once, however often a start was cut short.
func (tx *tx) recordFinding(f *finding, here host) (renamed string, err error) {
	if here.machine != 0 {
		const machine = `INSERT INTO settings (name, value) VALUES ('machine', ?1) ON CONFLICT (name) DO UPDATE SET value = ?1`
		if err := tx.exec(machine, strconv.FormatInt(int64(here.machine), 10)); err != nil {
			return "", err
		}
	}
	if f == nil {
		return "", nil
	}
	tx.w.store.before = tx.seq
	if f.jump {
		tx.jumpIDs(f.over)
	}
	if f.Kind == "" {
		return "", nil
	}
	var known int
	const again = `SELECT count(*) FROM losses WHERE kind = ? AND expected_no = ? AND expected_chain = ? AND hold = 1`
	if err := tx.row(again, string(f.Kind), f.ExpectedNo, f.expectedChain).Scan(&known); err != nil || known > 0 {
		return "", err
	}
	f.FoundMS = tx.now
	const insert = `INSERT INTO losses (found_ms, kind, expected_no, expected_chain, found_no, found_chain, detail, lost, hold)
	                VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id`
	tx.wrote = true
	err = tx.row(insert, f.FoundMS, string(f.Kind), f.ExpectedNo, f.expectedChain, f.FoundNo, f.foundChain, f.Detail, f.Lost, f.Hold).Scan(&f.ID)
	if err != nil {
		return "", err
	}
	if a := f.accepted; a.Reason != "" {
		f.AcceptedMS, f.AcceptedBy, f.AcceptedReason = tx.now, a.By, a.Reason
		const accept = `UPDATE losses SET accepted_ms = ?, accepted_by = ?, accepted_reason = ? WHERE id = ?`
		if err := tx.exec(accept, tx.now, a.By, a.Reason, f.ID); err != nil {
			return "", err
		}
	}
	if !f.rename {
		return "", nil
	}
	return tx.renameNode()
}

// jumpIDs moves all ids past those that may have been given out without the file
// knowing; over are the last ones that the side file saw.
func (tx *tx) jumpIDs(over sequences) {
	for _, id := range [...]struct {
		seq  *int64
		over int64
	}{
		{&tx.seq.event, over.event}, {&tx.seq.delivery, over.delivery}, {&tx.seq.execution, over.execution}, {&tx.seq.target, over.target},
	} {
		*id.seq = max(*id.seq, id.over) + idJump
	}
	tx.wrote = true
}

// renameNode gives what is numbered from now on a new name.
func (tx *tx) renameNode() (string, error) {
	const former = `INSERT INTO former_nodes (name, event, delivery, until_ms) SELECT value, ?, ?, ? FROM settings WHERE name = 'node'`
	before := tx.w.store.before
	if err := tx.exec(former, before.event, before.delivery, tx.now); err != nil {
		return "", err
	}
	name := edge.NewName()[:8]
	return name, tx.exec(`UPDATE settings SET value = ? WHERE name = 'node'`, name)
}
