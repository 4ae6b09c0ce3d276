package sqlite

import "context"

// CheckSpaceForTest looks at the disk as the timer does, after a look that is under
// way.
func (s *Store) CheckSpaceForTest() {
	s.space.checking.Lock()
	defer s.space.checking.Unlock()
	s.space.checkLocked()
}

// DiskForTest makes the store see a disk with this much free, or one that is
// read-only, from the next look on.
func (s *Store) DiskForTest(free int64, readOnly bool) {
	s.space.checking.Lock()
	defer s.space.checking.Unlock()
	s.space.look = func(string) (disk, error) { return disk{free: free, readOnly: readOnly}, nil }
}

// LogForTest sets the bounds of the log to parts of the standard ones; 0 means
// that there are none. It returns where the log must end.
func (s *Store) LogForTest(ctx context.Context, part int64) (most int64, err error) {
	b := logBounds{1 << 60, 1 << 60, 1 << 60}
	if part > 0 {
		b = logBounds{standardLog.soft / part, standardLog.hard / part, standardLog.most / part}
	}
	const promise = 64 << 20 // P10
	return promise / max(part, 1), s.w.doEnd(ctx, func(tx *tx) error { tx.w.keeper.bounds = b; return nil })
}

// LogPeakForTest is how long the log has been at most, and how many tries to
// empty it a snapshot made fail.
func (s *Store) LogPeakForTest(ctx context.Context) (peak, tries int64, err error) {
	err = s.w.doEnd(ctx, func(tx *tx) error { peak, tries = tx.w.keeper.peak, tx.w.keeper.tries; return nil })
	return peak, tries, err
}

// SnapshotForTest takes a snapshot, calls begun, and keeps it until it is ended by
// ctx or by the store, which is the error.
func (s *Store) SnapshotForTest(ctx context.Context, begun func()) error {
	return s.readUnbounded(ctx, func(ctx context.Context, q queryer) error {
		var n int
		if err := q.GetContext(ctx, &n, `SELECT count(*) FROM events`); err != nil {
			return err
		}
		begun()
		<-ctx.Done()
		return ctx.Err()
	})
}

// VerifyWriterForTest reads the settings of the writer's connection back.
func (s *Store) VerifyWriterForTest(ctx context.Context) error {
	return s.w.doEnd(ctx, func(tx *tx) error { return verify(ctx, tx.w.conn, s.o, false) })
}
