package sqlite_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"fencepost/edge"
	"fencepost/edge/sqlite"
)

// mark is the begin or the end of a handler's call.
type mark struct {
	target edge.Target
	fence  edge.ExecutionID
	event  string
	begin  bool
	by     int
}

// TestShareTwoEngines lets two engines work on one file through two openings: the
// leases alone keep them apart. Per target never two at once, in order, each
// delivery once, and both have done work.
func TestShareTwoEngines(t *testing.T) {
	none := goleak.IgnoreCurrent()
	const deliveries, targets = 2000, 50
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	path := dbPath(t)
	var mu sync.Mutex
	var marks []mark
	done := make(chan struct{})
	finished := 0
	var engines [2]*edge.Engine
	var stores [2]*sqlite.Store
	for by := range engines {
		note := func(c *edge.Claim, begin bool) {
			mu.Lock()
			defer mu.Unlock()
			marks = append(marks, mark{c.Target, c.Fence, c.Event.ID, begin, by})
			if !begin {
				if finished++; finished == deliveries {
					close(done)
				}
			}
		}
		s, err := sqlite.Open(path, sqlite.Options{Share: true})
		require.NoError(t, err)
		e, err := edge.New(s, edge.Options{Shared: true, Router: byType, Workers: 8, Handlers: []edge.HandlerSpec{
			spec("hook", func(_ context.Context, c *edge.Claim) edge.Result {
				note(c, true)
				defer note(c, false)
				return edge.Done()
			})}})
		require.NoError(t, err)
		stores[by], engines[by] = s, e
	}
	var evs []edge.Event
	for i := range deliveries {
		evs = append(evs, eventFor("hook", fmt.Sprintf("%04d", i), fmt.Sprint("k", i%targets)))
	}
	for _, e := range engines {
		require.NoError(t, e.Start(ctx))
	}
	const batch = 100
	for i := 0; i < deliveries; i += batch { // each of them accepts half
		as, err := engines[i/batch%2].EnqueueBatch(ctx, evs[i:i+batch])
		require.NoError(t, err)
		for _, a := range as {
			require.NoError(t, a.Err)
			require.False(t, a.Existing)
		}
	}
	select {
	case <-done:
	case <-ctx.Done():
		require.Fail(t, "not all is delivered", "%d of %d", finished, deliveries)
	}
	for _, e := range engines {
		s, err := e.Stop(ctx)
		require.NoError(t, err)
		require.Zero(t, s.Lost+s.Unsettled+s.Stubborn)
	}
	judgeMarks(t, marks, deliveries, targets)
	counters, err := stores[0].Counters(ctx)
	require.NoError(t, err)
	require.Equal(t, int64(deliveries), counters["state.succeeded"])
	require.Equal(t, int64(deliveries), counters["starts"])
	vs, err := stores[1].Check(ctx, true)
	require.NoError(t, err)
	require.Empty(t, vs)
	for _, s := range stores {
		require.NoError(t, s.Close())
	}
	goleak.VerifyNone(t, none)
}

func judgeMarks(t *testing.T, marks []mark, deliveries, targets int) {
	t.Helper()
	open := map[edge.Target]edge.ExecutionID{}
	fences := map[edge.Target]edge.ExecutionID{}
	last := map[edge.Target]string{}
	calls := map[string]int{}
	var by [2]int
	for _, m := range marks {
		if !m.begin {
			require.Equal(t, open[m.target], m.fence)
			delete(open, m.target)
			continue
		}
		require.Zero(t, open[m.target], "target %s: fences %d and %d at once", m.target, open[m.target], m.fence)
		require.Greater(t, m.fence, fences[m.target])
		require.Greater(t, m.event, last[m.target], "target %s is out of order", m.target)
		open[m.target], fences[m.target], last[m.target] = m.fence, m.fence, m.event
		calls[m.event]++
		by[m.by]++
	}
	require.Empty(t, open)
	require.Len(t, fences, targets)
	require.Len(t, calls, deliveries)
	for id, n := range calls {
		require.Equal(t, 1, n, "event %s", id)
	}
	t.Logf("%d deliveries: %d by the first engine, %d by the second", deliveries, by[0], by[1])
	require.Positive(t, by[0])
	require.Positive(t, by[1])
}
