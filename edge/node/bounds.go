package node

import (
	"fencepost/edge"
	"fencepost/edge/config"
	"fencepost/edge/sqlite"
)

// retentionOf is what the engine is told to keep.
func retentionOf(r config.Retention) edge.Retention {
	return edge.Retention{
		Succeeded: r.Succeeded, SucceededBytes: r.SucceededBytes,
		Failed: r.Failed, FailedBytes: r.FailedBytes, Dedupe: r.Dedupe,
	}
}

// limitsOf is what the store is told to hold at most.
func limitsOf(s config.Storage) sqlite.Limits {
	return sqlite.Limits{MaxBacklogBytes: s.MaxBacklogBytes, DropOldest: s.DropHandlers, LowWaterBytes: s.LowWaterBytes}
}

// reserveBytes is kept aside for a full disk, beside the database.
const reserveBytes = 8 << 20
