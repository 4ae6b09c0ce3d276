package sqlite

import "fencepost/edge"

// What finishes while the clock is doubted is stored with a reading that may be
// decades off. The file remembers the span of such readings, and when the clock
// is right again what lies in the span counts as finished then: it is neither
// pruned at once nor kept for decades.
const (
	doubtedFrom = "doubted_from_ms"
	doubtedTo   = "doubted_to_ms"
)

// finishedAt notes that a delivery has become final at tx.now.
func (tx *tx) finishedAt() { tx.finished = true }

// noteDoubt extends the span of doubted readings by that of this transaction.
func (tx *tx) noteDoubt() error {
	if !tx.finished || !tx.w.clock.Doubted() {
		return nil
	}
	from, err := tx.numberSetting(doubtedFrom)
	if err != nil {
		return err
	}
	to, err := tx.numberSetting(doubtedTo)
	if err != nil {
		return err
	}
	now := max(tx.now, 1) // 0 is none
	if from == 0 || now < from {
		if err := tx.setting(doubtedFrom, now); err != nil {
			return err
		}
	}
	if now > to {
		return tx.setting(doubtedTo, now)
	}
	return nil
}

// adopt gives what finished at doubted readings a finish time that is right.
func (s *pruning) adopt() error {
	from, err := s.numberSetting(doubtedFrom)
	if from == 0 || err != nil {
		return err
	}
	to, err := s.numberSetting(doubtedTo)
	if err != nil {
		return err
	}
	as := s.now
	if as >= from && as <= to {
		as = to + 1 // out of the span, or it would be found again
	}
	const succeeded = `SELECT id FROM deliveries WHERE state = 'succeeded' AND finished_ms >= ? AND finished_ms <= ? ORDER BY finished_ms LIMIT ?`
	const failed = `SELECT id FROM deliveries
	                WHERE (state = 'failed' OR state = 'cancelled' OR state = 'expired') AND finished_ms >= ? AND finished_ms <= ?
	                ORDER BY finished_ms LIMIT ?`
	for _, query := range [...]string{succeeded, failed} {
		ids, err := s.ids(query, from, to, s.left)
		if err != nil {
			return err
		}
		for _, id := range ids {
			delete(s.w.hands.active, edge.DeliveryID(id))
			if err := s.exec(`UPDATE deliveries SET finished_ms = ? WHERE id = ? AND finished_ms IS NOT NULL`, as, id); err != nil {
				return err
			}
			s.left--
		}
		if s.left == 0 {
			return nil
		}
	}
	return s.exec(`DELETE FROM settings WHERE name = ? OR name = ?`, doubtedFrom, doubtedTo)
}
