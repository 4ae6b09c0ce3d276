package edge_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/edgetest"
	"fencepost/edge/sqlite"
)

// The engine on the durable store, in real time.
func TestEngineOnTheDurableStore(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "edge.db")
	script := edgetest.NewScript().
		For("3", edgetest.Retry("busy"), edgetest.Succeed()).
		For("4", edgetest.Panic("boom"), edgetest.Succeed()).
		For("5", edgetest.Fail("no")).
		For("6", edgetest.Succeed(edgetest.NewEvent("6+", "k1")))
	o := only(handler("h", edge.Idempotent, script.Handle))
	o.Router = to("h")
	o.Handlers[0].Retry = edge.RetryPolicy{Base: 20 * time.Millisecond}
	store, err := sqlite.Open(path, sqlite.Options{})
	require.NoError(t, err)
	tap := edgetest.NewTap(store)
	e, err := edge.New(tap, o)
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context()))
	sub := e.Subscribe(0)
	defer sub.Close()
	var evs []edge.Event
	for i := range 200 {
		evs = append(evs, edgetest.NewEvent(fmt.Sprint(i), fmt.Sprint("k", i%10)))
	}
	as, err := e.EnqueueBatch(t.Context(), evs)
	require.NoError(t, err)
	guard, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, tap.AwaitCount(guard, edge.Succeeded, 200)) // 199 and one follow-up
	require.NoError(t, tap.AwaitCount(guard, edge.Failed, 1))
	c, err := sub.Next(guard)
	require.NoError(t, err)
	require.NotZero(t, c.Seq)
	require.NoError(t, e.WithTarget(t.Context(), edge.Target{Handler: "h", Key: "k1"}, func(context.Context, edge.ExecutionID) error { return nil }))
	s, err := e.Stop(t.Context())
	require.NoError(t, err)
	require.Zero(t, s.Stubborn+s.Unsettled+s.Lost)
	n := e.Totals()
	require.Equal(t, int64(203), n.Claimed, "each once, and two again")
	require.Equal(t, int64(200), n.Succeeded)
	require.Equal(t, int64(2), n.Retrying)
	edgetest.CheckInvariants(t, store)
	tap.History().Check(t, store)
	f, err := store.Facts(t.Context(), as[5].Deliveries[0].ID)
	require.NoError(t, err)
	require.Contains(t, edge.Explain(f, store.Clock().NowMS()), "fencepost redrive")
	require.NoError(t, store.Close())
}

// A process that dies with work under way: the next one goes on at once.
func TestEngineOnTheDurableStoreRecoversAtTheStart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "edge.db")
	release := edgetest.NewLatch()
	defer release.Release()
	script := edgetest.NewScript(func(context.Context, *edge.Claim) edge.Result { <-release.Released(); return edge.Done() }, edgetest.Succeed())
	o := only(handler("h", edge.Idempotent, script.Handle))
	o.Router, o.ShutdownGrace, o.ShutdownWait = to("h"), time.Millisecond, time.Millisecond
	store, err := sqlite.Open(path, sqlite.Options{})
	require.NoError(t, err)
	e, err := edge.New(store, o)
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context()))
	a, err := e.Enqueue(t.Context(), edgetest.NewEvent("1", "k"))
	require.NoError(t, err)
	guard, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = script.Next(guard)
	require.NoError(t, err)
	require.NoError(t, store.Close()) // as its process dies
	s, _ := e.Stop(t.Context())       // the error, ErrClosed, is there if the dispatcher met it first
	require.Equal(t, int64(1), s.Stubborn)

	store, err = sqlite.Open(path, sqlite.Options{})
	require.NoError(t, err)
	tap := edgetest.NewTap(store)
	killed := 0
	o.KillOwner = func(context.Context, string) (int, error) { killed++; return 0, nil }
	e, err = edge.New(tap, o)
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context()))
	d, err := tap.AwaitState(guard, a.Deliveries[0].ID, edge.Succeeded)
	require.NoError(t, err)
	require.Equal(t, 1, killed)
	require.Equal(t, edge.Recovery{Owners: 1, InFlight: 1, Retried: 1}, e.Status().Recovery)
	require.Equal(t, 1, d.Losses)
	_, err = e.Stop(t.Context())
	require.NoError(t, err)
	edgetest.CheckInvariants(t, store)
	require.NoError(t, store.Close())
}
