package sqlite

import (
	"context"
	"fmt"

	"fencepost/edge"
)

// Acquire takes a target's lease for code that is not a delivery; see
// [edge.Dispatch].
func (s *Store) Acquire(ctx context.Context, name edge.Target) (edge.Lease, error) {
	if name.Handler == "" || len(name.Handler) > edge.MaxNameBytes || len(name.Key) > edge.MaxNameBytes {
		return edge.Lease{}, fmt.Errorf("%w: target %q: handler and key have at most %d bytes, and the handler at least one", edge.ErrInvalid, name, edge.MaxNameBytes)
	}
	var l edge.Lease
	err := s.w.do(ctx, phaseSettle, func(tx *tx) error {
		var err error
		l, err = tx.acquire(name)
		return err
	})
	if err == nil {
		s.w.gave(l.Execution)
	}
	return l, err
}

func (tx *tx) acquire(name edge.Target) (edge.Lease, error) {
	if l := tx.w.store.Hold(); l != nil {
		return edge.Lease{}, fmt.Errorf("%w: nothing is begun while the node is on hold: %s", edge.ErrConflict, l.Detail)
	}
	h, err := tx.ensureHandler(name.Handler)
	if err != nil {
		return edge.Lease{}, err
	}
	t, err := tx.findTarget(h, name.Key)
	if err != nil {
		return edge.Lease{}, err
	}
	if t != nil && !t.free() {
		return edge.Lease{}, fmt.Errorf("%w: %s", edge.ErrBusy, name)
	}
	if t, err = tx.ensureTarget(h, name.Key); err != nil {
		return edge.Lease{}, err
	}
	l := edge.Lease{Token: edge.NewToken(), Target: name, Execution: tx.nextExecution(), Owner: tx.w.store.owner}
	if err := tx.insertExecution(l.Execution, nil, 1, l.Token, 0, true); err != nil {
		return edge.Lease{}, err
	}
	l.ExpiresMS, err = tx.insertLease(t, l.Token, 0, l.Execution)
	tx.count("acquires", 1)
	return l, err
}

// Relinquish ends what Acquire began; see [edge.Dispatch].
func (s *Store) Relinquish(ctx context.Context, id edge.ExecutionID, token edge.Token, o edge.Outcome, code string) error {
	return s.w.doEnd(ctx, func(tx *tx) error {
		var targetID int64
		err := tx.row(`SELECT target FROM leases WHERE token = ? AND execution = ? AND delivery IS NULL`, int64(token), int64(id)).Scan(&targetID)
		if noRows(err) {
			return fmt.Errorf("%w: execution %d", edge.ErrLeaseLost, id)
		}
		if err != nil {
			return err
		}
		x, err := tx.execution(id) // there while its lease is: only one that has ended is pruned
		if err != nil {
			return err
		}
		t, err := tx.target(targetID)
		if err != nil {
			return err
		}
		if ok, err := tx.dropLease(t, token, true); !ok || err != nil {
			return mustChange(ok, err, "relinquish", id)
		}
		return tx.endExecution(x.ID, o, code, "")
	})
}
