package sqlite

import "fencepost/edge"

// Storage tells what the store holds and has left; see [edge.Storage]. It reads
// no rows and does not wait for the writer.
func (s *Store) Storage() edge.Storage {
	sp, l := s.space, s.limits.Load()
	st := edge.Storage{
		SpentReserve: sp.spent.Load(),
		FileBytes:    sizeOf(s.path), LogBytes: sizeOf(s.path + "-wal"), ReserveBytes: sp.kept.Load(),
		FreeBytes: sp.free.Load(), LowWaterBytes: l.LowWaterBytes,
		OpenBytes: s.bytes.open.Load(), MaxOpenBytes: l.MaxBacklogBytes,
		SucceededBytes: s.bytes.done.Load() + s.bytes.stray.Load(), FailedBytes: s.bytes.fail.Load(),
		DaysLeft: -1, Refused: s.refused.Load(), ReadersCut: s.readers.counted(),
	}
	st.State, st.Reason = sp.state()
	if st.FreeBytes >= 0 {
		sp.mu.Lock()
		st.DaysLeft = sp.pace.daysUntil(s.o.Clock.Mono(), st.FileBytes, st.FreeBytes-st.LowWaterBytes)
		sp.mu.Unlock()
	}
	return st
}
