package metrics

import (
	"context"

	"fencepost/edge"
)

// Source is what a scrape reads of a node. The methods without a context must
// not wait for anything.
type Source interface {
	Counters(ctx context.Context) (map[string]int64, error)
	Handlers(ctx context.Context) ([]edge.HandlerInfo, error)
	// Waiting is when the oldest delivery that waits was accepted,
	// milliseconds UTC, 0 when none does, and how many of each handler are
	// leased or running.
	Waiting(ctx context.Context) (oldestMS int64, inFlight map[string]int, err error)

	Storage() edge.Storage
	Commits() (commits, operations int64)
	Engine() edge.Status
	Totals() edge.Counters
	Uplinks() []edge.UplinkState
	Ready() bool
	NowMS() int64
}
