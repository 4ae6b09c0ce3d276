package sqlite

import "context"

// Waiting is when the oldest delivery that waits was accepted, milliseconds UTC,
// 0 when none does, and how many deliveries of each handler are leased or running.
// It looks at a bounded number of index entries and at the leases: the cost is the
// same whatever waits.
func (s *Store) Waiting(ctx context.Context) (oldestMS int64, inFlightOf map[string]int, err error) {
	inFlightOf = map[string]int{}
	err = s.read(ctx, func(ctx context.Context, q queryer) error {
		if err := inFlight(ctx, q, inFlightOf); err != nil {
			return err
		}
		oldest, err := worst(ctx, q, 1)
		if err == nil && len(oldest) > 0 {
			oldestMS = oldest[0].OldestMS
		}
		return err
	})
	return oldestMS, inFlightOf, err
}

// Operations is how many operations the commits since opening held.
func (s *Store) Operations() int64 { return s.w.operations.Load() }

// Absent are the handlers that no running configuration names and for which
// nothing waits: what is left of handlers that were taken out of one. Of each it
// looks at two index entries.
func (s *Store) Absent(ctx context.Context) (map[string]bool, error) {
	const query = `SELECT h.name FROM handlers h WHERE h.gate = 'missing'
	               AND NOT EXISTS (SELECT 1 FROM targets t INDEXED BY targets_ready WHERE t.handler = h.id AND t.ready_ms IS NOT NULL)
	               AND NOT EXISTS (SELECT 1 FROM targets t INDEXED BY targets_stalled WHERE t.handler = h.id AND t.stall IS NOT NULL)`
	absent := map[string]bool{}
	err := s.read(ctx, func(ctx context.Context, q queryer) error {
		var names []string
		err := q.SelectContext(ctx, &names, query)
		for _, name := range names {
			absent[name] = true
		}
		return err
	})
	return absent, err
}
