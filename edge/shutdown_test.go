package edge_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/edgetest"
)

// stubbornness of a handler at shutdown, by the subject of its event.
func atShutdown(ctx context.Context, c *edge.Claim) edge.Result {
	<-ctx.Done()
	switch c.Event.Subject {
	case "retry":
		return edge.TryAgain("cut", "")
	case "defer":
		return edge.Defer("cut", time.Minute)
	case "unknown":
		return edge.Unknown("cut", "")
	case "done":
		return edge.Done()
	case "failed":
		return edge.GiveUp("no", "")
	case "panic":
		panic("cut")
	default:
		return edge.Result{}
	}
}

func TestShutdownCutsWhatDoesNotEndInTheGrace(t *testing.T) {
	for _, tc := range []struct {
		effect   edge.Effect
		subject  string
		state    edge.State
		outcome  edge.Outcome
		attempts int
	}{
		{edge.Idempotent, "retry", edge.Pending, edge.OutcomeInterrupted, 0},
		{edge.Idempotent, "defer", edge.Pending, edge.OutcomeInterrupted, 0},
		{edge.Idempotent, "unknown", edge.Pending, edge.OutcomeInterrupted, 0},
		{edge.Idempotent, "nothing", edge.Pending, edge.OutcomeInterrupted, 0},
		{edge.Idempotent, "panic", edge.Pending, edge.OutcomeIndeterminate, 1},
		{edge.Idempotent, "done", edge.Succeeded, edge.OutcomeSucceeded, 0},
		{edge.Idempotent, "failed", edge.Failed, edge.OutcomeFailed, 1},
		{edge.Once, "retry", edge.Pending, edge.OutcomeDeferred, 0},
		{edge.Once, "defer", edge.Pending, edge.OutcomeDeferred, 0},
		{edge.Once, "unknown", edge.Blocked, edge.OutcomeInterrupted, 0},
		{edge.Once, "nothing", edge.Blocked, edge.OutcomeInterrupted, 0},
		{edge.Once, "panic", edge.Blocked, edge.OutcomeIndeterminate, 0},
		{edge.Once, "done", edge.Succeeded, edge.OutcomeSucceeded, 0},
	} {
		t.Run(string(tc.effect)+"/"+tc.subject, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := newBench(t, only(handler("h", tc.effect, atShutdown))).start()
				id := b.enqueue("1", tc.subject)
				b.await(id, edge.Running)
				synctest.Wait() // the handler has been called
				began := time.Now()
				s := b.finish()
				require.Equal(t, 20*time.Second, time.Since(began), "the grace is waited out, and no more")
				d, err := b.model.Delivery(t.Context(), id)
				require.NoError(t, err)
				require.Equal(t, tc.state, d.State)
				require.Equal(t, tc.attempts, d.Attempts)
				require.Equal(t, tc.outcome, b.executions(id)[0].Outcome)
				require.Equal(t, int64(1), s.Ended+s.Interrupted+s.Unknown)
				require.Zero(t, s.Lost+s.Stubborn+s.Unsettled)
			})
		})
	}
}

func TestShutdownWaitsForWorkThatEndsInTheGrace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, only(handler("h", edge.Once, func(ctx context.Context, _ *edge.Claim) edge.Result {
			time.Sleep(12 * time.Second)
			require.NoError(t, ctx.Err())
			return edge.Done()
		}))).start()
		first, second := b.enqueue("1", "k"), b.enqueue("2", "k")
		b.await(first, edge.Running)
		time.Sleep(2 * time.Second)
		began := time.Now()
		s := b.finish()
		require.Equal(t, 10*time.Second, time.Since(began))
		require.Equal(t, int64(1), s.Ended)
		require.Equal(t, "stopped in 10s: 1 ended, 0 interrupted", s.String())
		d, err := b.model.Delivery(t.Context(), second)
		require.NoError(t, err)
		require.Equal(t, edge.Pending, d.State, "nothing is claimed once the stop has begun")
		require.Zero(t, d.Executions)
		again, err := b.Stop(context.Background())
		require.NoError(t, err)
		require.Equal(t, s, again)
	})
}

func TestShutdownLeavesAStubbornHandler(t *testing.T) {
	bubble(t, func(t *testing.T) {
		release := edgetest.NewLatch()
		b := newBench(t, only(handler("h", edge.Once, func(context.Context, *edge.Claim) edge.Result {
			<-release.Released()
			return edge.Done()
		}))).start()
		id := b.enqueue("1", "k")
		b.await(id, edge.Running)
		synctest.Wait()
		began := time.Now()
		s, err := b.Stop(context.Background())
		require.NoError(t, err)
		require.LessOrEqual(t, time.Since(began), 21*time.Second, "gone within a second after the grace")
		require.Equal(t, int64(1), s.Stubborn)
		require.Contains(t, s.String(), "1 left running")
		release.Release()
		b.awaitNow(id, edge.Succeeded) // its token still stands
		edgetest.CheckInvariants(t, b.model)
	})
}

func TestShutdownDoesNotHangOnAStoreThatDoesNotAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, only(handler("h", edge.Once, func(context.Context, *edge.Claim) edge.Result { return edge.Done() }))).start()
		b.model.FailNext("Settle", 1<<30)
		id := b.enqueue("1", "k")
		b.await(id, edge.Running)
		time.Sleep(time.Hour)
		require.Equal(t, 1, b.Status().Held)
		d, err := b.model.Delivery(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, edge.Running, d.State, "a held result keeps its lease")
		began := time.Now()
		s, err := b.Stop(context.Background())
		require.NoError(t, err)
		require.LessOrEqual(t, time.Since(began), 21*time.Second)
		require.Equal(t, int64(1), s.Unsettled)
	})
}

func TestShutdownGivesBackWhatIsOnlyClaimed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		script := edgetest.NewScript()
		b := newBench(t, only(edge.HandlerSpec{Name: "h", Handler: inspecting{script.Handle, func(ctx context.Context, _ *edge.Claim) edge.Inspection {
			<-ctx.Done()
			return edge.Inspection{}
		}}})).start()
		id := b.enqueue("1", "k")
		b.await(id, edge.Leased)
		began := time.Now()
		s := b.finish()
		require.Zero(t, time.Since(began), "nothing that has not begun is waited for")
		require.Equal(t, int64(1), s.Interrupted)
		d, err := b.model.Delivery(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, edge.Pending, d.State)
		require.Zero(t, d.Attempts)
		require.Empty(t, script.Calls())
		require.Equal(t, edge.CodeShutdown, b.executions(id)[0].Code)
	})
}

// Q14: stop during a surplus of claimable work. Attempts are handler starts, and
// nothing is given up without them.
func TestQ14_AttemptsEqualHandlerStarts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		script := edgetest.NewScript(func(ctx context.Context, c *edge.Claim) edge.Result {
			select {
			case <-ctx.Done():
			case <-time.After(time.Duration(c.Delivery%7) * time.Second):
			}
			return edge.TryAgain("busy", "")
		})
		o := only(handler("h", edge.Idempotent, script.Handle))
		o.Handlers[0].Concurrency, o.ShutdownGrace = 3, 2*time.Second
		o.Handlers[0].Retry = edge.RetryPolicy{MaxAttempts: 4}
		m := edgetest.NewModel(nil)
		var ids []edge.DeliveryID
		for round := range 10 {
			b := benchOn(t, m.Open(nil), o).start()
			if round == 0 {
				for i := range 20 {
					ids = append(ids, b.enqueue(string(rune('a'+i)), string(rune('a'+i%8))))
				}
			}
			time.Sleep(3 * time.Second)
			s, err := b.Stop(context.Background())
			require.NoError(t, err)
			require.Zero(t, s.Lost+s.Unsettled+s.Stubborn)
			edgetest.CheckInvariants(t, m)
		}
		last := benchOn(t, m.Open(nil), o).start()
		calls := func(id edge.DeliveryID) (n int) {
			for _, c := range script.Calls() {
				if c.Delivery == id {
					n++
				}
			}
			return n
		}
		interrupted := 0
		for _, id := range ids {
			require.Eventually(t, func() bool {
				d, err := m.Delivery(context.Background(), id)
				return err == nil && d.State == edge.Failed
			}, time.Hour, time.Second)
			d, err := m.Delivery(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, 4, d.Attempts, "given up after real starts only")
			charged, givenBack := 0, 0
			for _, x := range last.executions(id) {
				switch x.Outcome {
				case edge.OutcomeRetry:
					charged++
				case edge.OutcomeDeferred: // stopped between the commit of the start and the call
					givenBack++
				default:
					interrupted++
				}
			}
			require.Equal(t, d.Attempts, charged)
			require.Equal(t, d.Executions-givenBack, calls(id), "each other execution is one call of the handler")
		}
		require.Positive(t, interrupted, "the stops cut something")
		last.finish()
	})
}

func TestRunEndsWhenItsContextDoes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, only(handler("h", edge.Once, edgetest.NewScript().Handle)))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan edge.Summary)
		go func() {
			s, err := b.Run(ctx)
			if err != nil {
				t.Error(err)
			}
			done <- s
		}()
		b.awaitNow(b.enqueue("1", "k"), edge.Succeeded)
		cancel()
		<-done
		b.finish()
	})
}

func TestRunEndsWhenTheStoreFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, only(handler("h", edge.Once, func(ctx context.Context, _ *edge.Claim) edge.Result {
			<-ctx.Done()
			return edge.Done()
		})))
		done := make(chan error)
		go func() {
			_, err := b.Run(t.Context())
			done <- err
		}()
		b.await(b.enqueue("1", "k"), edge.Running)
		synctest.Wait()
		began := time.Now()
		b.model.Break()
		require.ErrorIs(t, <-done, edge.ErrStorage)
		require.Less(t, time.Since(began), time.Second, "a failed store is not waited for")
		require.ErrorIs(t, b.Ready(), edge.ErrStorage)
	})
}

// TestStopStoresWhatHasReturned stops while the store is slower than the time that
// handlers get: the result of one that has returned is stored all the same.
func TestStopStoresWhatHasReturned(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, only(handler("h", edge.Once, atShutdown))).start()
		id := b.enqueue("1", "done")
		b.await(id, edge.Running)
		synctest.Wait() // the handler has been called
		b.model.DelayCommits("Settle", 3*time.Second)
		s := b.finish()
		require.Zero(t, s.Unsettled, s.String())
		d, err := b.model.Delivery(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, edge.Succeeded, d.State)
	})
}

// TestRunThatIsStoppedWhileItStartsIsNoFault ends before the recovery could read.
func TestRunThatIsStoppedWhileItStartsIsNoFault(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, only(handler("h", edge.Once, edgetest.NewScript().Handle)))
		b.model.FailNext("DeadOwners", 1)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := b.Run(ctx)
		require.NoError(t, err)
	})
}
