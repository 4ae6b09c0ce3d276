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
