package sqlite_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/sqlite"
)

// Handlers come, change and go while events are accepted and delivered: nothing
// is lost, every line keeps its order, a handler that was given up is never
// called again, and what went for a while is done when it is back.
func TestReload_OfAnEngineUnderLoad(t *testing.T) {
	t.Parallel()
	const senders, each, reloads = 4, 60, 24
	var retired, made, late, changed atomic.Int64
	handler := func(name string, generation int) edge.HandlerSpec {
		var closed atomic.Bool
		made.Add(1)
		h := spec(name, func(context.Context, *edge.Claim) edge.Result {
			runtime.Gosched()
			if closed.Load() {
				late.Add(1)
			}
			return edge.Done()
		})
		h.Revision, h.Concurrency = fmt.Sprint(generation), 2+generation%7
		h.Retired = func() { closed.Store(true); retired.Add(1) }
		return h
	}
	options := func(generation int) edge.Options {
		o := edge.Options{Handlers: []edge.HandlerSpec{handler("stays", generation)}, Router: byType, Workers: 4 + generation%5}
		if generation%2 == 0 {
			o.Handlers = append(o.Handlers, handler("comes-and-goes", generation))
		}
		return o
	}
	m := newMachine(t, dbPath(t), sqlite.Options{}, options(0))
	require.NoError(t, m.Start(m.ctx))
	var mu sync.Mutex
	var ids []edge.DeliveryID
	var sending sync.WaitGroup
	for s := range senders {
		sending.Go(func() {
			for i := range each {
				before := changed.Load()
				a, err := m.Enqueue(m.ctx, eventFor([]string{"stays", "comes-and-goes"}[i%2], fmt.Sprintf("%d-%d", s, i), fmt.Sprint(i%3)))
				if err != nil || len(a.Deliveries) != 1 {
					t.Errorf("%v: %v", a, err)
					return
				}
				mu.Lock()
				ids = append(ids, a.Deliveries[0].ID)
				mu.Unlock()
				for changed.Load() == before && i%10 == 0 && before < reloads && m.ctx.Err() == nil { // let a reload come in between
					runtime.Gosched()
				}
			}
		})
	}
	for n := 1; n <= reloads; n++ {
		require.NoError(t, m.Reload(m.ctx, options(n)))
		changed.Add(1)
	}
	sending.Wait()
	require.Len(t, ids, senders*each)
	for _, id := range ids { // the last generation has both
		_, err := m.tap.AwaitState(m.ctx, id, edge.Succeeded)
		require.NoError(t, err)
	}
	_, err := m.Stop(context.Background())
	require.NoError(t, err)
	require.Zero(t, late.Load(), "a handler was called after it was given up")
	require.Equal(t, made.Load()-2, retired.Load(), "all but those in force")
	m.tap.History().Check(t, m.store)
}
