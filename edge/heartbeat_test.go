package edge_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/edgetest"
)

// counting counts calls of Renew.
type counting struct {
	edge.Store
	renews atomic.Int64
	tokens atomic.Int64 // of the largest call
}

func (c *counting) Renew(ctx context.Context, live []edge.Token) (edge.Renewed, error) {
	c.renews.Add(1)
	c.tokens.Store(max(c.tokens.Load(), int64(len(live))))
	return c.Store.Renew(ctx, live)
}

func TestHeartbeatRenewsInBatchesAndSleepsWhenIdle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := edgetest.NewModel(nil)
		store := &counting{Store: m}
		o := edge.Options{Router: to("h"), Handlers: []edge.HandlerSpec{handler("h", edge.Idempotent, func(ctx context.Context, _ *edge.Claim) edge.Result {
			time.Sleep(90 * time.Second)
			return edge.Done()
		})}}
		e, err := edge.New(store, o)
		require.NoError(t, err)
		require.NoError(t, e.Start(t.Context()))
		for _, key := range []string{"a", "b", "c"} {
			_, err := e.Enqueue(t.Context(), edgetest.NewEvent(key, key))
			require.NoError(t, err)
		}
		time.Sleep(91 * time.Second)
		require.Equal(t, int64(4), store.renews.Load(), "at 20, 40, 60 and 80 s")
		require.Equal(t, int64(3), store.tokens.Load(), "all live leases in one call")
		time.Sleep(24 * time.Hour)
		require.Equal(t, int64(4), store.renews.Load(), "nothing is renewed while nothing is live")
		require.Equal(t, int64(3), e.Totals().Succeeded)
		_, err = e.Stop(context.Background())
		require.NoError(t, err)
		edgetest.CheckInvariants(t, m)
	})
}

// trusting runs one handler on a store whose renewals fail from the start, and
// returns when and why the handler's context was done.
func trusting(t *testing.T, fault func(m *edgetest.Model), effect edge.Effect) (b *bench, id edge.DeliveryID, after time.Duration, cause error) {
	type end struct {
		after time.Duration
		cause error
	}
	ended := make(chan end, 1)
	o := only(handler("h", effect, func(ctx context.Context, c *edge.Claim) edge.Result {
		if c.Attempt > 1 {
			return edge.Done()
		}
		began := time.Now()
		<-ctx.Done()
		ended <- end{time.Since(began), context.Cause(ctx)}
		return edge.TryAgain("cut", "")
	}))
	b = newBench(t, o).start()
	fault(b.model)
	id = b.enqueue("1", "k")
	e := <-ended
	return b, id, e.after, e.cause
}

func TestTrustEndsATenthBeforeTheLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, id, after, cause := trusting(t, func(m *edgetest.Model) { m.FailNext("Renew", 1<<20) }, edge.Idempotent)
		require.ErrorIs(t, cause, edge.ErrLeaseLost)
		require.Equal(t, 54*time.Second, after)
		b.awaitNow(id, edge.Succeeded)
		require.Equal(t, "cut", b.executions(id)[0].Code, "the token still stood, so the result was taken")
		b.finish()
	})
}

func TestARenewalThatHangsDoesNotDelayTheEndOfTrust(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, id, after, cause := trusting(t, func(m *edgetest.Model) { m.DelayCommits("Renew", 19*time.Second); m.FailNext("Renew", 3) }, edge.Idempotent)
		require.ErrorIs(t, cause, edge.ErrLeaseLost)
		require.Equal(t, 54*time.Second, after)
		b.model.DelayCommits("Renew", 0)
		b.awaitNow(id, edge.Succeeded)
		b.finish()
	})
}

func TestALeaseThatIsGoneCancelsTheHandler(t *testing.T) {
	bubble(t, func(t *testing.T) {
		causes := make(chan error, 1)
		b := newBench(t, only(handler("h", edge.Once, func(ctx context.Context, _ *edge.Claim) edge.Result {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return edge.Done()
		}))).start()
		id := b.enqueue("1", "k")
		b.await(id, edge.Running)
		began := time.Now()
		stealLease(t, b.model, id)
		require.ErrorIs(t, <-causes, edge.ErrLeaseLost)
		require.LessOrEqual(t, time.Since(began), 20*time.Second, "with the next renewal")
		d := b.awaitNow(id, edge.Succeeded)
		require.Equal(t, 1, d.Losses, "the late result ended the delivery's own unresolved loss")
		b.finish()
	})
}

// stealLease takes the lease of a running delivery as another process does that
// has seen no renewal for a full lease on its own clock.
func stealLease(t *testing.T, m *edgetest.Model, id edge.DeliveryID) {
	t.Helper()
	clock := edge.ManualClock(m.Clock().NowMS())
	thief := m.Open(clock)
	_, err := thief.VoidStale(t.Context())
	require.NoError(t, err)
	clock.Advance(edge.DefaultLease)
	vs, err := thief.VoidStale(t.Context())
	require.NoError(t, err)
	require.Len(t, vs, 1)
	require.Equal(t, id, vs[0].Delivery)
}

func TestCancelReachesARunningHandler(t *testing.T) {
	bubble(t, func(t *testing.T) {
		causes := make(chan error, 1)
		b := newBench(t, only(handler("h", edge.Idempotent, func(ctx context.Context, _ *edge.Claim) edge.Result {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return edge.TryAgain("cut", "")
		}))).start()
		id := b.enqueue("1", "k")
		b.await(id, edge.Running)
		began := time.Now()
		d, err := b.Cancel(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, edge.Running, d.State)
		require.ErrorIs(t, <-causes, edge.ErrCancelled)
		require.Zero(t, time.Since(began))
		require.Equal(t, edge.CodeCancelled, b.awaitNow(id, edge.Cancelled).Code)
		again, err := b.Cancel(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, edge.Cancelled, again.State)
		_, err = b.Cancel(t.Context(), 999)
		require.ErrorIs(t, err, edge.ErrNotFound)
		b.finish()
	})
}

// A cancel that another process asked for arrives with the next renewal.
func TestCancelFromElsewhereArrivesWithTheRenewal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		causes := make(chan error, 1)
		b := newBench(t, only(handler("h", edge.Idempotent, func(ctx context.Context, _ *edge.Claim) edge.Result {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return edge.TryAgain("cut", "")
		}))).start()
		id := b.enqueue("1", "k")
		b.await(id, edge.Running)
		began := time.Now()
		_, err := b.model.Cancel(t.Context(), id)
		require.NoError(t, err)
		require.ErrorIs(t, <-causes, edge.ErrCancelled)
		require.LessOrEqual(t, time.Since(began), 20*time.Second)
		b.awaitNow(id, edge.Cancelled)
		b.finish()
	})
}

// tardy delivers claims long after their commit, as a process does that was
// stopped in between.
type tardy struct{ edge.Store }

func (s tardy) Dispatch(ctx context.Context, deliver func([]edge.Claimed)) error {
	return s.Store.Dispatch(ctx, func(cs []edge.Claimed) {
		time.Sleep(30 * time.Second)
		deliver(cs)
	})
}

func TestTrustCountsFromTheClaimAndNotFromItsArrival(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := edgetest.NewModel(nil)
		m.FailNext("Renew", 1<<20)
		after := make(chan time.Duration, 1)
		e, err := edge.New(tardy{m}, edge.Options{Router: to("h"), Handlers: []edge.HandlerSpec{
			handler("h", edge.Idempotent, func(ctx context.Context, c *edge.Claim) edge.Result {
				began := time.Now()
				<-ctx.Done()
				after <- time.Since(began)
				return edge.GiveUp("cut", "")
			})}})
		require.NoError(t, err)
		require.NoError(t, e.Start(t.Context()))
		_, err = e.Enqueue(t.Context(), edgetest.NewEvent("1", "k"))
		require.NoError(t, err)
		require.InDelta(t, 24*time.Second, <-after, float64(2*time.Millisecond))
		_, err = e.Stop(context.Background())
		require.NoError(t, err)
	})
}

// A claim whose commit took longer than its lease is trusted: its handler is not
// called, for once work too, and it is given back uncharged.
func TestNothingBeginsUnderALeaseThatIsNotTrusted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := edgetest.NewModel(nil)
		late := &lateOnce{Store: m}
		script := edgetest.NewScript()
		e, err := edge.New(late, edge.Options{Router: to("h"), Handlers: []edge.HandlerSpec{handler("h", edge.Once, script.Handle)}})
		require.NoError(t, err)
		require.NoError(t, e.Start(t.Context()))
		a, err := e.Enqueue(t.Context(), edgetest.NewEvent("1", "k"))
		require.NoError(t, err)
		time.Sleep(54*time.Second + time.Millisecond)
		require.Empty(t, script.Calls())
		time.Sleep(2 * time.Second)
		d, err := m.Delivery(t.Context(), a.Deliveries[0].ID)
		require.NoError(t, err)
		require.Equal(t, edge.Succeeded, d.State)
		require.Zero(t, d.Attempts+d.Losses)
		require.Equal(t, 2, d.Executions)
		require.Len(t, script.Calls(), 1)
		_, err = e.Stop(context.Background())
		require.NoError(t, err)
		edgetest.CheckInvariants(t, m)
	})
}

// lateOnce delivers its first claims when their lease is trusted no longer.
type lateOnce struct {
	edge.Store
	was bool
}

func (s *lateOnce) Dispatch(ctx context.Context, deliver func([]edge.Claimed)) error {
	return s.Store.Dispatch(ctx, func(cs []edge.Claimed) {
		if !s.was {
			s.was = true
			time.Sleep(54 * time.Second)
		}
		deliver(cs)
	})
}

// refusing refuses the first settlement for good, as no store should.
type refusing struct {
	edge.Store
	refused atomic.Bool
}

func (s *refusing) Settle(ctx context.Context, x edge.Settlement) (edge.Settled, error) {
	if s.refused.CompareAndSwap(false, true) {
		return edge.Settled{}, edge.ErrInvalid
	}
	return s.Store.Settle(ctx, x)
}

func TestALeaseWhoseEndWasRefusedIsVoidedAndNotLeftForEver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := edgetest.NewModel(nil)
		script := edgetest.NewScript()
		e, err := edge.New(&refusing{Store: m}, edge.Options{Router: to("h"), Handlers: []edge.HandlerSpec{handler("h", edge.Idempotent, script.Handle)}})
		require.NoError(t, err)
		require.NoError(t, e.Start(t.Context()))
		a, err := e.Enqueue(t.Context(), edgetest.NewEvent("1", "k"))
		require.NoError(t, err)
		time.Sleep(90 * time.Second)
		d, err := m.Delivery(t.Context(), a.Deliveries[0].ID)
		require.NoError(t, err)
		require.Equal(t, edge.Succeeded, d.State)
		require.Equal(t, 1, d.Losses)
		require.Len(t, script.Calls(), 2)
		require.Equal(t, int64(1), e.Totals().Unavailable)
		_, err = e.Stop(context.Background())
		require.NoError(t, err)
		edgetest.CheckInvariants(t, m)
	})
}
