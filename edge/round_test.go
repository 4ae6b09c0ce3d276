package edge_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/edgetest"
)

func TestDispatchOnceCountsEachClaimOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		script := edgetest.NewScript().
			For("fail", edgetest.Fail("no")).For("retry", edgetest.Retry("busy")).
			For("defer", edgetest.Postpone("offline", time.Minute)).For("unknown", edgetest.Doubt("cut")).
			For("block", edgetest.Misconfigure("no_secret")).For("panic", edgetest.Panic("boom"))
		b := newBench(t, only(handler("h", edge.Once, script.Handle)))
		for _, id := range []string{"ok", "ok2", "fail", "retry", "defer", "unknown", "block", "panic"} {
			b.enqueue(id, id)
		}
		n, err := b.DispatchOnce(t.Context(), 0)
		require.NoError(t, err)
		require.Equal(t, edge.Counters{
			Claimed: 8, Started: 8, Succeeded: 2, Failed: 1, Retrying: 1, Deferred: 1, Blocked: 3, Unknown: 2,
		}, n)
		require.Equal(t, n, b.Totals())
		n, err = b.DispatchOnce(t.Context(), 0)
		require.NoError(t, err)
		require.Zero(t, n, "nothing is due")
		b.finish()
	})
}

func TestDispatchOnceIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, only(handler("h", edge.Once, edgetest.NewScript().Handle)))
		for i := range 20 {
			b.enqueue(fmt.Sprint(i), fmt.Sprint(i))
		}
		for _, limit := range []int{-1, 1001} {
			_, err := b.DispatchOnce(t.Context(), limit)
			require.ErrorIs(t, err, edge.ErrInvalid)
		}
		n, err := b.DispatchOnce(t.Context(), 3)
		require.NoError(t, err)
		require.Equal(t, int64(3), n.Succeeded)
		n, err = b.DispatchOnce(t.Context(), 0)
		require.NoError(t, err)
		require.Equal(t, int64(16), n.Succeeded, "the default")
		b.start()
		_, err = b.DispatchOnce(t.Context(), 1)
		require.ErrorIs(t, err, edge.ErrConflict)
		b.finish()
		_, err = b.DispatchOnce(t.Context(), 1)
		require.ErrorIs(t, err, edge.ErrClosed)
	})
}

func TestRoundsNeverOverlap(t *testing.T) {
	bubble(t, func(t *testing.T) {
		script := edgetest.NewScript(func(context.Context, *edge.Claim) edge.Result {
			time.Sleep(10 * time.Second)
			return edge.Done()
		})
		b := newBench(t, only(handler("h", edge.Once, script.Handle)))
		b.enqueue("1", "a")
		b.enqueue("2", "b")
		began := time.Now()
		done := make(chan edge.Counters)
		for range 2 {
			go func() {
				n, err := b.DispatchOnce(t.Context(), 1)
				if err != nil {
					t.Error(err)
				}
				done <- n
			}()
		}
		require.Equal(t, int64(1), (<-done).Succeeded)
		require.Equal(t, int64(1), (<-done).Succeeded)
		require.Equal(t, 20*time.Second, time.Since(began))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		b.enqueue("3", "c")
		go func() { _, _ = b.DispatchOnce(t.Context(), 1) }()
		time.Sleep(time.Millisecond)
		_, err := b.DispatchOnce(ctx, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded, "a waiting call gives up with its context")
		b.finish()
	})
}

func TestARoundEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, only(handler("h", edge.Idempotent, atShutdown)))
		id := b.enqueue("1", "retry")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		n, err := b.DispatchOnce(ctx, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, edge.Counters{Claimed: 1, Started: 1, Interrupted: 1}, n)
		b.awaitNow(id, edge.Pending)
		b.finish()
	})
}

// Behaviour 46, ruling 12: one item's storage failure does not stop the batch.
func TestOneStorageFailureDoesNotTouchTheRestOfTheRound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		script := edgetest.NewScript()
		ready := func(context.Context, *edge.Claim) edge.Inspection { return edge.Inspection{} }
		b := newBench(t, only(edge.HandlerSpec{Name: "h", Handler: inspecting{script.Handle, ready}}))
		for i := range 5 {
			b.enqueue(fmt.Sprint(i), fmt.Sprint(i))
		}
		b.model.FailNext("Start", 1)
		b.model.FailNext("Settle", 2)
		b.model.FailNext("Expire", 1)
		n, err := b.DispatchOnce(t.Context(), 5)
		require.NoError(t, err)
		require.Equal(t, edge.Counters{Claimed: 5, Started: 4, Succeeded: 4, Interrupted: 1}, n)
		b.finish()
	})
}

func TestARoundWithoutRecoveryClaimsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := quiet(t)
		b.enqueue("1", "k")
		b.model.FailNext("DeadOwners", 2)
		n, err := b.DispatchOnce(t.Context(), 5)
		require.ErrorIs(t, err, edge.ErrUnavailable)
		require.Zero(t, n)
		require.ErrorIs(t, b.Start(t.Context()), edge.ErrUnavailable, "nor does Start dispatch")
		require.Error(t, b.Ready())
		n, err = b.DispatchOnce(t.Context(), 5)
		require.NoError(t, err)
		require.Equal(t, int64(1), n.Succeeded)
		b.finish()
	})
}

func TestStopDuringARound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		script := edgetest.NewScript()
		b := newBench(t, only(handler("h", edge.Once, script.Handle)))
		id := b.enqueue("1", "k")
		b.model.DelayCommits("Claim", 5*time.Second)
		done := make(chan edge.Counters)
		go func() {
			n, err := b.DispatchOnce(t.Context(), 1)
			if err != nil {
				t.Error(err)
			}
			done <- n
		}()
		time.Sleep(time.Second)
		stop, err := b.Stop(context.Background())
		require.NoError(t, err)
		require.Zero(t, stop.Stubborn)
		require.Equal(t, edge.Counters{Claimed: 1, Interrupted: 1}, <-done, "what is claimed after the stop began is given back")
		require.Empty(t, script.Calls())
		d, err := b.model.Delivery(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, edge.Pending, d.State)
	})
}
