package sqlite

import "fencepost/edge"

// Storage tells what the store holds and has left; see [edge.Storage]. It reads
// no rows and does not wait for the writer.
func (s *Store) Storage() edge.Storage {
	return edge.Storage{
		OpenBytes: s.bytes.open.Load(), MaxOpenBytes: s.limits.Load().MaxBacklogBytes,
		SucceededBytes: s.bytes.done.Load() + s.bytes.stray.Load(), FailedBytes: s.bytes.fail.Load(),
		Refused: s.refused.Load(),
	}
}
