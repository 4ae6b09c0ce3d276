package node

import (
	"context"

	"fencepost/edge"
	"fencepost/edge/metrics"
)

// scraped is a node as the metrics see it.
type scraped struct{ n *Node }

var _ metrics.Source = scraped{}

func (s scraped) Counters(ctx context.Context) (map[string]int64, error) {
	return s.n.store.Counters(ctx)
}

func (s scraped) Handlers(ctx context.Context) ([]edge.HandlerInfo, error) {
	return s.n.store.Handlers(ctx)
}

func (s scraped) Waiting(ctx context.Context) (oldestMS int64, inFlight map[string]int, err error) {
	return s.n.store.Waiting(ctx)
}

func (s scraped) Storage() edge.Storage       { return s.n.store.Storage() }
func (s scraped) Commits() (n, ops int64)     { return s.n.store.Commits(), s.n.store.Operations() }
func (s scraped) Engine() edge.Status         { return s.n.engine.Status() }
func (s scraped) Totals() edge.Counters       { return s.n.engine.Totals() }
func (s scraped) Uplinks() []edge.UplinkState { return s.n.engine.Uplinks() }
func (s scraped) Ready() bool                 { return s.n.engine.Ready() == nil }
func (s scraped) NowMS() int64                { return s.n.store.Clock().NowMS() }
