package node

import (
	"context"
	"slices"

	"fencepost/edge"
	"fencepost/edge/metrics"
)

// scraped is a node as the metrics see it.
type scraped struct{ n *Node }

var _ metrics.Source = scraped{}

func (s scraped) Counters(ctx context.Context) (map[string]int64, error) {
	return s.n.store.Counters(ctx)
}

// Handlers leaves out those that were taken out of the configuration and owe
// nothing: nobody could end an alert about their gates.
func (s scraped) Handlers(ctx context.Context) ([]edge.HandlerInfo, error) {
	all, err := s.n.store.Handlers(ctx)
	if err != nil {
		return nil, err
	}
	absent, err := s.n.store.Absent(ctx)
	return slices.DeleteFunc(all, func(h edge.HandlerInfo) bool { return absent[h.Name] }), err
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
