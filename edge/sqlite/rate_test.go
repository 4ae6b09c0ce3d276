package sqlite_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/sqlite"
)

// TestRateLimitSleepsUntilTheNextToken: work that waits for a token is claimed when
// the token is there, by one timer for each, and without a look between.
func TestRateLimitSleepsUntilTheNextToken(t *testing.T) {
	t.Parallel()
	const interval = 300 * time.Millisecond
	s := openAt(t, dbPath(t), sqlite.Options{Clock: edge.NewClock(nil)})
	register(t, s, edge.Registration{Name: "hook", Rate: edge.Rate{Interval: interval, Burst: 2}})
	for i := range 4 {
		acceptOne(t, s, fmt.Sprint(i), fmt.Sprint("key-", i))
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	type arrival struct {
		claimed edge.Claimed
		atMS    int64
	}
	claims := make(chan arrival, 8)
	began := s.Clock().NowMS()
	go func() {
		ended <- s.Dispatch(ctx, func(cs []edge.Claimed) {
			for _, c := range cs {
				claims <- arrival{c, s.Clock().NowMS()}
			}
		})
	}()
	var all []arrival
	for range 2 {
		all = append(all, wait(t, claims, "a full bucket"))
	}
	n := s.Wakeups()
	for range 2 {
		all = append(all, wait(t, claims, "the next token"))
	}
	require.GreaterOrEqual(t, all[2].atMS, began+interval.Milliseconds()-1)
	require.GreaterOrEqual(t, all[3].atMS, began+2*interval.Milliseconds()-1)
	require.LessOrEqual(t, s.Wakeups()-n, int64(8), "timers, not a poll")
	for _, a := range all {
		_, err := s.Settle(context.Background(), settlement(a.claimed, edge.OutcomeSucceeded))
		require.NoError(t, err)
	}
	cancel()
	require.NoError(t, wait(t, ended, "dispatch goes on"))
}

// TestBucketOfAnotherProcess: two processes that share a file share its buckets.
func TestBucketOfAnotherProcess(t *testing.T) {
	t.Parallel()
	path, clock := dbPath(t), edge.ManualClock(1_700_000_000_000)
	one := openAt(t, path, sqlite.Options{Clock: clock, Share: true})
	two := openAt(t, path, sqlite.Options{Clock: clock, Share: true})
	limited := edge.Registration{Name: "hook", Rate: edge.Rate{Interval: time.Second, Burst: 3}}
	register(t, one, limited)
	register(t, two, limited)
	for i := range 10 {
		acceptOne(t, one, fmt.Sprint(i), fmt.Sprint("key-", i))
	}
	got := 0
	for _, s := range []*sqlite.Store{one, two, one, two} {
		cs, err := s.Claim(context.Background(), 2)
		require.NoError(t, err)
		got += len(cs)
		for _, c := range cs {
			_, err := s.Settle(context.Background(), settlement(c, edge.OutcomeSucceeded))
			require.NoError(t, err)
		}
	}
	require.Equal(t, 3, got)
}
