package sqlite

import (
	"context"

	"fencepost/edge"
)

// HoldForTest makes a pending delivery held, as a policy that asks for consent
// does at accept.
func (s *Store) HoldForTest(ctx context.Context, id edge.DeliveryID) error {
	return s.w.do(ctx, phaseSettle, func(tx *tx) error {
		d, t, err := tx.deliveryAndTarget(id)
		if err != nil {
			return err
		}
		ok, err := tx.guarded(`UPDATE deliveries SET state = 'held', version = version + 1 WHERE id = ? AND state = 'pending'`, int64(id))
		if err := mustChange(ok, err, "hold", id); err != nil {
			return err
		}
		tx.stateCount(d.State, edge.Held)
		tx.touch(t)
		return nil
	})
}

// ConsumeForTest writes the consumption of a delivery's event by its target.
func (s *Store) ConsumeForTest(ctx context.Context, id edge.DeliveryID) error {
	return s.w.do(ctx, phaseSettle, func(tx *tx) error {
		d, t, err := tx.deliveryAndTarget(id)
		if err != nil {
			return err
		}
		tx.touch(t)
		return tx.consume(d, t)
	})
}

// BoundListsForTest makes listings look at few rows at a time.
func (s *Store) BoundListsForTest(first, next, most int) { s.bounds = listBounds{first, next, most} }

// DispatchesForTest reports whether a dispatch stands.
func (s *Store) DispatchesForTest(ctx context.Context) (stands bool) {
	_ = s.w.doEnd(ctx, func(tx *tx) error { stands = tx.w.standing != nil; return nil })
	return stands
}
