package edge_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/edgetest"
)

func TestWithTargetKeepsDeliveriesOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		at := edge.Target{Handler: "h", Key: "k"}
		script := edgetest.NewScript()
		b := newBench(t, only(handler("h", edge.Once, script.Handle))).start()
		before := b.awaitNow(b.enqueue("0", "k"), edge.Succeeded)
		var fence edge.ExecutionID
		var id edge.DeliveryID
		err := b.WithTarget(t.Context(), at, func(ctx context.Context, f edge.ExecutionID) error {
			fence = f
			id = b.enqueue("1", "k")
			require.ErrorIs(t, b.WithTarget(ctx, at, nil), edge.ErrBusy)
			time.Sleep(5 * time.Minute) // five leases: it is renewed
			require.NoError(t, ctx.Err())
			require.Len(t, script.Calls(), 1)
			return nil
		})
		require.NoError(t, err)
		require.Greater(t, fence, before.Execution)
		b.awaitNow(id, edge.Succeeded)
		require.Greater(t, script.Calls()[1].Fence, fence)
		b.finish()
	})
}

func TestWithTargetGivesTheTargetBackInEveryPath(t *testing.T) {
	bubble(t, func(t *testing.T) {
		at := edge.Target{Handler: "other", Key: "k"}
		b := quiet(t).start()
		boom := errors.New("boom")
		free := func() {
			t.Helper()
			ts, err := b.model.Targets(t.Context(), edge.TargetFilter{Handler: "other"})
			require.NoError(t, err)
			for _, i := range ts {
				require.Zero(t, i.Busy)
			}
		}
		require.ErrorIs(t, b.WithTarget(t.Context(), at, func(context.Context, edge.ExecutionID) error { return boom }), boom)
		free()
		require.PanicsWithValue(t, "boom", func() {
			_ = b.WithTarget(t.Context(), at, func(context.Context, edge.ExecutionID) error { panic("boom") })
		})
		free()
		b.model.FailNext("Relinquish", 5)
		require.NoError(t, b.WithTarget(t.Context(), at, func(context.Context, edge.ExecutionID) error { return nil }))
		free()
		ctx, cancel := context.WithCancel(t.Context())
		require.ErrorIs(t, b.WithTarget(ctx, at, func(ctx context.Context, _ edge.ExecutionID) error {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		}), context.Canceled)
		free()
		require.ErrorIs(t, b.WithTarget(t.Context(), edge.Target{Handler: "Bad"}, nil), edge.ErrInvalid)
		require.ErrorIs(t, b.WithTarget(t.Context(), edge.Target{Handler: "h", Key: "!route"}, nil), edge.ErrInvalid)
		b.finish()
		require.ErrorIs(t, b.WithTarget(t.Context(), at, nil), edge.ErrClosed)
	})
}

func TestWithTargetTellsThatTheLeaseIsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := quiet(t).start()
		began := time.Now()
		err := b.WithTarget(t.Context(), edge.Target{Handler: "h", Key: "k"}, func(ctx context.Context, _ edge.ExecutionID) error {
			stealLease(t, b.model, 0)
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), edge.ErrLeaseLost)
			return nil
		})
		require.ErrorIs(t, err, edge.ErrLeaseLost)
		require.LessOrEqual(t, time.Since(began), 20*time.Second)
		b.finish()
	})
}

func TestShutdownEndsWithTarget(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := quiet(t).start()
		ended := make(chan error)
		go func() {
			ended <- b.WithTarget(t.Context(), edge.Target{Handler: "h", Key: "k"}, func(ctx context.Context, _ edge.ExecutionID) error {
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}()
		time.Sleep(time.Second)
		began := time.Now()
		go func() { _, _ = b.Stop(context.Background()) }()
		require.ErrorIs(t, <-ended, edge.ErrShutdown)
		require.Equal(t, 20*time.Second, time.Since(began))
		b.finish()
	})
}
