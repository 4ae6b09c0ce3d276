package edge_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/edgetest"
)

func TestHandlerTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		o := only(handler("h", edge.Once, func(ctx context.Context, _ *edge.Claim) edge.Result {
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), edge.ErrTimeout)
			return edge.Result{}
		}))
		o.Handlers[0].Timeout = 7 * time.Second
		b := newBench(t, o).start()
		began := time.Now()
		id := b.enqueue("1", "k")
		d := b.awaitNow(id, edge.Blocked)
		require.Equal(t, 7*time.Second, time.Since(began))
		require.Equal(t, edge.CodeOutcomeUnknown, d.Code)
		require.Equal(t, edge.CodeHandlerTimeout, b.executions(id)[0].Code)
		b.finish()
	})
}

func TestStubbornHandlersAreReplacedUpToABound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		release := edgetest.NewLatch()
		o := only(handler("h", edge.Once, func(ctx context.Context, c *edge.Claim) edge.Result {
			if c.Event.Subject[0] == 's' { // ignores its context
				<-release.Released()
			}
			return edge.Done()
		}))
		o.Handlers[0].Concurrency, o.Handlers[0].Timeout = 1, 10*time.Second
		o.Workers, o.MaxStubborn = 1, 2
		b := newBench(t, o).start()
		s1 := b.enqueue("1", "s1")
		b.await(s1, edge.Running)
		quick := b.enqueue("2", "q1")
		time.Sleep(14 * time.Second)
		d, err := b.model.Delivery(t.Context(), quick)
		require.NoError(t, err)
		require.Equal(t, edge.Pending, d.State, "the only slot is taken")
		b.awaitNow(quick, edge.Succeeded) // its slot is replaced
		require.Equal(t, 1, b.Status().Stubborn)
		require.NoError(t, b.Ready())

		time.Sleep(10 * time.Minute)
		d, err = b.model.Delivery(t.Context(), s1)
		require.NoError(t, err)
		require.Equal(t, edge.Running, d.State, "the target stays visibly running for as long as the handler lives")

		b.await(b.enqueue("3", "s2"), edge.Running)
		time.Sleep(time.Minute)
		b.await(b.enqueue("4", "s3"), edge.Running)
		time.Sleep(time.Minute)
		require.Equal(t, 3, b.Status().Stubborn)
		require.ErrorContains(t, b.Ready(), "3 handlers ignore")
		stuck := b.enqueue("5", "q2")
		time.Sleep(time.Hour)
		d, err = b.model.Delivery(t.Context(), stuck)
		require.NoError(t, err)
		require.Equal(t, edge.Pending, d.State, "past the bound no slot is replaced")

		release.Release()
		b.awaitNow(stuck, edge.Succeeded)
		require.Equal(t, edge.Succeeded, b.awaitNow(s1, edge.Succeeded).State, "its result is settled as usual")
		require.Zero(t, b.Status().Stubborn)
		require.NoError(t, b.Ready())
		b.finish()
	})
}

func TestSlotsGoBackWhenAStubbornHandlerReturns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		release, hold := edgetest.NewLatch(), edgetest.NewLatch()
		script := edgetest.NewScript().
			For("s", func(context.Context, *edge.Claim) edge.Result { <-release.Released(); return edge.Done() }).
			For("a", func(context.Context, *edge.Claim) edge.Result { <-hold.Released(); return edge.Done() })
		o := only(handler("h", edge.Once, script.Handle))
		o.Handlers[0].Concurrency, o.Handlers[0].Timeout = 1, 10*time.Second
		b := newBench(t, o).start()
		s := b.enqueue("s", "s")
		time.Sleep(16 * time.Second)
		release.Release()
		b.awaitNow(s, edge.Succeeded)
		b.await(b.enqueue("a", "a"), edge.Running)
		waits := b.enqueue("b", "b")
		time.Sleep(9 * time.Second)
		d, err := b.model.Delivery(t.Context(), waits)
		require.NoError(t, err)
		require.Equal(t, edge.Pending, d.State, "the limit is one again")
		hold.Release()
		b.awaitNow(waits, edge.Succeeded)
		b.finish()
	})
}

func TestAStubbornInspectionIsReplacedToo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		release := edgetest.NewLatch()
		script := edgetest.NewScript()
		o := only(edge.HandlerSpec{Name: "h", Concurrency: 1, Handler: inspecting{script.Handle, func(_ context.Context, c *edge.Claim) edge.Inspection {
			if c.Event.ID == "s" {
				<-release.Released()
			}
			return edge.Inspection{}
		}}})
		b := newBench(t, o).start()
		s := b.enqueue("s", "s")
		b.await(s, edge.Leased)
		b.awaitNow(b.enqueue("q", "q"), edge.Succeeded)
		require.Equal(t, 1, b.Status().Stubborn)
		release.Release()
		require.Equal(t, edge.CodeInspectionFailed, b.awaitNow(s, edge.Pending).Code)
		b.awaitNow(s, edge.Succeeded)
		b.finish()
	})
}
