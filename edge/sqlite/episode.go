package sqlite

import (
	"context"
	"fmt"

	"fencepost/edge"
)

// SetEpisode keeps the episode of a handler; see [edge.Operator].
func (s *Store) SetEpisode(ctx context.Context, name string, e edge.Episode) error {
	return s.w.do(ctx, phaseSettle, func(tx *tx) error {
		h := tx.w.hands.byName[name]
		if h == nil {
			return fmt.Errorf("%w: handler %q", edge.ErrNotFound, name)
		}
		if e == (edge.Episode{}) {
			return tx.exec(`DELETE FROM episodes WHERE handler = ?`, h.id)
		}
		const upsert = `INSERT INTO episodes (handler, began_ms, since_ms, failures, code) VALUES (?1, ?2, ?3, ?4, ?5)
		                ON CONFLICT (handler) DO UPDATE SET began_ms = ?2, since_ms = ?3, failures = ?4, code = ?5`
		return tx.exec(upsert, h.id, e.BeganMS, e.SinceMS, e.Failures, e.Code)
	})
}
