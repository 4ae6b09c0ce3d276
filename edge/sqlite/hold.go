package sqlite

import (
	"context"
	"fmt"

	"fencepost/edge"
)

const lossColumns = `id, kind, found_ms, expected_no, found_no, detail, lost, hold, coalesce(accepted_ms, 0), coalesce(accepted_by, ''),
	coalesce(accepted_reason, ''), coalesce(resumed_ms, 0), coalesce(resumed_by, ''), coalesce(resumed_reason, '')`

func scanLoss(r rowScanner) (l edge.Loss, err error) {
	err = r.Scan(&l.ID, &l.Kind, &l.FoundMS, &l.ExpectedNo, &l.FoundNo, &l.Detail, &l.Lost, &l.Hold,
		&l.AcceptedMS, &l.AcceptedBy, &l.AcceptedReason, &l.ResumedMS, &l.ResumedBy, &l.ResumedReason)
	return l, err
}

// firstHold selects what holds the dispatch: first what must be accepted.
const firstHold = `SELECT ` + lossColumns + ` FROM losses INDEXED BY losses_open WHERE hold = 1 ORDER BY lost AND accepted_ms IS NULL DESC, id LIMIT 1`

func (s *Store) keepHold(l edge.Loss, err error) error {
	switch {
	case noRows(err):
		s.hold.Store(nil)
		return nil
	case err != nil:
		return err
	}
	s.hold.Store(&l)
	return nil
}

// Hold is the loss that holds the dispatch; nil when nothing does.
func (s *Store) Hold() *edge.Loss { return s.hold.Load() }

// Losses are the latest disagreements between database and side file, newest
// first.
func (s *Store) Losses(ctx context.Context, limit int) ([]edge.Loss, error) {
	var ls []edge.Loss
	err := s.read(ctx, func(ctx context.Context, q queryer) error {
		ls = nil
		rows, err := q.QueryxContext(ctx, `SELECT `+lossColumns+` FROM losses ORDER BY id DESC LIMIT ?`, limit)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			l, err := scanLoss(rows)
			if err != nil {
				return err
			}
			ls = append(ls, l)
		}
		return rows.Err()
	})
	return ls, err
}

// AcceptLoss records that a person goes on with what is there, and returns the
// loss that still holds the dispatch. edge.ErrConflict: nothing is to be
// accepted.
func (s *Store) AcceptLoss(ctx context.Context, d edge.Decided) (edge.Loss, error) {
	const accept = `UPDATE losses SET accepted_ms = ?, accepted_by = ?, accepted_reason = ? WHERE lost = 1 AND hold = 1 AND accepted_ms IS NULL`
	return s.decide(ctx, d, func(tx *tx) error {
		ok, err := tx.guarded(accept, tx.now, d.By, d.Reason)
		if err == nil && !ok {
			err = fmt.Errorf("%w: no loss waits to be accepted", edge.ErrConflict)
		}
		return err
	})
}

// Resume records that a person ends the hold, and ends it. edge.ErrConflict:
// there is none, or a loss must be accepted first.
func (s *Store) Resume(ctx context.Context, d edge.Decided) (edge.Loss, error) {
	const (
		open   = `SELECT count(*) FROM losses INDEXED BY losses_open WHERE hold = 1 AND lost = 1 AND accepted_ms IS NULL`
		resume = `UPDATE losses SET hold = 0, resumed_ms = ?, resumed_by = ?, resumed_reason = ? WHERE hold = 1`
	)
	return s.decide(ctx, d, func(tx *tx) error {
		var n int
		if err := tx.row(open).Scan(&n); err != nil {
			return err
		}
		if n > 0 {
			return fmt.Errorf("%w: something was lost; say first that work goes on without it: fencepost accept-loss --reason TEXT", edge.ErrConflict)
		}
		ok, err := tx.guarded(resume, tx.now, d.By, d.Reason)
		if err == nil && !ok {
			err = fmt.Errorf("%w: nothing is on hold", edge.ErrConflict)
		}
		return err
	})
}

func (s *Store) decide(ctx context.Context, d edge.Decided, write func(tx *tx) error) (edge.Loss, error) {
	var last edge.Loss
	if err := d.Validate(); err != nil {
		return last, err
	}
	var held edge.Loss
	var heldErr error
	err := s.w.do(ctx, phaseSettle, func(tx *tx) error {
		if err := write(tx); err != nil {
			return err
		}
		var err error
		if last, err = scanLoss(tx.row(`SELECT ` + lossColumns + ` FROM losses ORDER BY id DESC LIMIT 1`)); err != nil {
			return err
		}
		held, heldErr = scanLoss(tx.row(firstHold))
		if noRows(heldErr) {
			return nil
		}
		return heldErr
	})
	if err != nil {
		return last, err
	}
	err = s.keepHold(held, heldErr)
	s.w.poke()
	return last, err
}
