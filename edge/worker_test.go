package edge_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/edgetest"
)

// What a handler answers, and where that leads for each effect.
func TestWorkerConcludesWhatAHandlerAnswers(t *testing.T) {
	answer := func(r edge.Result) edge.HandlerFunc {
		return func(context.Context, *edge.Claim) edge.Result { return r }
	}
	invalid := edgetest.NewEvent("", "k")
	for _, tc := range []struct {
		name      string
		h         edge.HandlerFunc
		once      edge.State // state and code of the delivery for a once handler
		onceCode  string
		idem      edge.State
		idemCode  string
		execution string // code of the execution, for both
	}{
		{"done", answer(edge.Done()), edge.Succeeded, "ok", edge.Succeeded, "ok", "ok"},
		{"succeeded without code", answer(edge.Result{Outcome: edge.OutcomeSucceeded}), edge.Succeeded, "succeeded", edge.Succeeded, "succeeded", "succeeded"},
		{"failed", answer(edge.GiveUp("http_400", "no")), edge.Failed, "http_400", edge.Failed, "http_400", "http_400"},
		{"unknown", answer(edge.Unknown("cut", "")), edge.Blocked, "outcome_unknown", edge.Pending, "cut", "cut"},
		{"misconfigured", answer(edge.Misconfigured("secret_missing", "")), edge.Blocked, "secret_missing", edge.Blocked, "secret_missing", "secret_missing"},
		{"retry", answer(edge.TryAgain("refused", "")), edge.Pending, "refused", edge.Pending, "refused", "refused"},
		{"deferred", answer(edge.Defer("offline", time.Hour)), edge.Pending, "offline", edge.Pending, "offline", "offline"},
		{"zero result", answer(edge.Result{}), edge.Blocked, "outcome_unknown", edge.Pending, "handler_invalid_result", "handler_invalid_result"},
		{"engine's own outcome", answer(edge.Result{Outcome: edge.OutcomeLost}), edge.Blocked, "outcome_unknown", edge.Pending, "handler_invalid_result", "handler_invalid_result"},
		{"bad code", answer(edge.GiveUp("Not A Code", "")), edge.Blocked, "outcome_unknown", edge.Pending, "handler_invalid_result", "handler_invalid_result"},
		{"follow-ups without success", answer(edge.Result{Outcome: edge.OutcomeFailed, FollowUps: []edge.Event{edgetest.NewEvent("f", "k")}}), edge.Blocked, "outcome_unknown", edge.Pending, "handler_invalid_result", "handler_invalid_result"},
		{"invalid follow-up", answer(edge.Done(edgetest.NewEvent("f", "k"), invalid)), edge.Failed, "followup_refused", edge.Failed, "followup_refused", "followup_refused"},
		{"too many follow-ups", answer(edge.Done(make([]edge.Event, 101)...)), edge.Failed, "followup_refused", edge.Failed, "followup_refused", "followup_refused"},
		{"panic", func(context.Context, *edge.Claim) edge.Result { panic("boom") }, edge.Blocked, "outcome_unknown", edge.Pending, "handler_panicked", "handler_panicked"},
		{"panic with nil", func(context.Context, *edge.Claim) edge.Result { panic(nil) }, edge.Blocked, "outcome_unknown", edge.Pending, "handler_panicked", "handler_panicked"},
		{"goroutine ended", func(context.Context, *edge.Claim) edge.Result { runtime.Goexit(); return edge.Done() }, edge.Blocked, "outcome_unknown", edge.Pending, "handler_panicked", "handler_panicked"},
	} {
		for effect, want := range map[edge.Effect][2]string{
			edge.Once:       {string(tc.once), tc.onceCode},
			edge.Idempotent: {string(tc.idem), tc.idemCode},
		} {
			t.Run(fmt.Sprintf("%s/%s", tc.name, effect), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					b := newBench(t, only(handler("h", effect, tc.h)))
					id := b.enqueue("1", "k")
					_, err := b.DispatchOnce(t.Context(), 1)
					require.NoError(t, err)
					d, err := b.model.Delivery(t.Context(), id)
					require.NoError(t, err)
					require.Equal(t, want, [2]string{string(d.State), d.Code})
					xs := b.executions(id)
					require.Len(t, xs, 1)
					require.Equal(t, tc.execution, xs[0].Code)
					ds, err := b.model.Deliveries(t.Context(), edge.DeliveryFilter{})
					require.NoError(t, err)
					require.Len(t, ds, 1, "no follow-up of a refused result is stored")
					b.finish()
				})
			})
		}
	}
}

func TestPanicTextIsBoundedAndScrubbed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, only(handler("h", edge.Idempotent, func(context.Context, *edge.Claim) edge.Result {
			panic(errors.New("get https://bob:hunter2@host/x: token=abc123 \x1b[31m" + strings.Repeat("é", 2000)))
		})))
		id := b.enqueue("1", "k")
		_, err := b.DispatchOnce(t.Context(), 1)
		require.NoError(t, err)
		detail := b.executions(id)[0].Detail
		require.True(t, strings.HasPrefix(detail, "panic: get https://***@host/x: token=***"), detail)
		require.NotContains(t, detail, "hunter2")
		require.NotContains(t, detail, "abc123")
		require.NotContains(t, detail, "\x1b")
		require.NotContains(t, detail, "goroutine")
		require.LessOrEqual(t, len(detail), 512)
		require.True(t, strings.HasSuffix(detail, "[truncated]"))
		b.finish()
	})
}

func TestDetailIsCutWithAMark(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, only(handler("h", edge.Idempotent, edgetest.NewScript(
			edgetest.Answer(edge.GiveUp("no", strings.Repeat("ü", edge.MaxDetailBytes)+"\xff"))).Handle)))
		id := b.enqueue("1", "k")
		_, err := b.DispatchOnce(t.Context(), 1)
		require.NoError(t, err)
		detail := b.executions(id)[0].Detail
		require.LessOrEqual(t, len(detail), edge.MaxDetailBytes)
		require.True(t, strings.HasSuffix(detail, "ü [truncated]"))
		b.finish()
	})
}

func TestFollowUpsAreRoutedAndBoundInDepth(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, only(handler("h", edge.Transactional, func(_ context.Context, c *edge.Claim) edge.Result {
			return edge.Done(edgetest.NewEvent(c.Event.ID+"+", "k"))
		}))).start()
		b.enqueue("e", "k")
		require.NoError(t, b.tap.AwaitCount(t.Context(), edge.Failed, 1))
		ds, err := b.model.Deliveries(t.Context(), edge.DeliveryFilter{})
		require.NoError(t, err)
		require.Len(t, ds, edge.MaxFollowUpDepth+1, "the first event and a chain of 16")
		require.Equal(t, edge.CodeFollowUpRefused, ds[0].Code)
		last, err := b.model.Event(t.Context(), ds[0].Event)
		require.NoError(t, err)
		require.Equal(t, edge.MaxFollowUpDepth, last.Depth)
		b.finish()
	})
}

// inspecting is a handler with an inspection.
type inspecting struct {
	edge.HandlerFunc
	inspect func(ctx context.Context, c *edge.Claim) edge.Inspection
}

func (h inspecting) Inspect(ctx context.Context, c *edge.Claim) edge.Inspection {
	return h.inspect(ctx, c)
}

func TestInspectionDecidesBeforeTheStart(t *testing.T) {
	says := func(i edge.Inspection) func(context.Context, *edge.Claim) edge.Inspection {
		return func(context.Context, *edge.Claim) edge.Inspection { return i }
	}
	for _, tc := range []struct {
		name     string
		inspect  func(context.Context, *edge.Claim) edge.Inspection
		state    edge.State
		code     string
		attempts int
		called   bool
	}{
		{"ready", says(edge.Inspection{}), edge.Succeeded, "ok", 0, true},
		{"retry", says(edge.Inspection{Outcome: edge.OutcomeRetry, Code: "no_disk"}), edge.Pending, "no_disk", 1, false},
		{"deferred", says(edge.Inspection{Outcome: edge.OutcomeDeferred, Code: "offline"}), edge.Pending, "offline", 0, false},
		{"blocked", says(edge.Inspection{Outcome: edge.OutcomeBlocked}), edge.Blocked, "blocked", 0, false},
		{"malformed outcome", says(edge.Inspection{Outcome: edge.OutcomeSucceeded}), edge.Pending, "handler_inspection_failed", 1, false},
		{"malformed code", says(edge.Inspection{Outcome: edge.OutcomeRetry, Code: "Oh no"}), edge.Pending, "handler_inspection_failed", 1, false},
		{"panic", func(context.Context, *edge.Claim) edge.Inspection { panic("boom") }, edge.Pending, "handler_inspection_failed", 1, false},
		{"goroutine ended", func(context.Context, *edge.Claim) edge.Inspection { runtime.Goexit(); return edge.Inspection{} }, edge.Pending, "handler_inspection_failed", 1, false},
		{"too slow", func(ctx context.Context, _ *edge.Claim) edge.Inspection { <-ctx.Done(); return edge.Inspection{} }, edge.Pending, "handler_inspection_failed", 1, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				script := edgetest.NewScript()
				b := newBench(t, only(edge.HandlerSpec{Name: "h", Handler: inspecting{script.Handle, tc.inspect}}))
				id := b.enqueue("1", "k")
				n, err := b.DispatchOnce(t.Context(), 1)
				require.NoError(t, err)
				d, err := b.model.Delivery(t.Context(), id)
				require.NoError(t, err)
				require.Equal(t, tc.state, d.State)
				require.Equal(t, tc.code, d.Code)
				require.Equal(t, tc.attempts, d.Attempts)
				require.Equal(t, tc.called, len(script.Calls()) == 1)
				require.Equal(t, tc.called, n.Started == 1)
				b.finish()
			})
		})
	}
}

func TestStartThatIsRefusedGivesBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		script := edgetest.NewScript()
		var b *bench
		h := inspecting{script.Handle, func(ctx context.Context, c *edge.Claim) edge.Inspection {
			if len(script.Calls()) == 0 && c.Attempt == 1 && c.Fence == 1 {
				_, err := b.SetGate(ctx, "h", edge.GateOff, "test", 0)
				require.NoError(t, err)
			}
			return edge.Inspection{}
		}}
		b = newBench(t, only(edge.HandlerSpec{Name: "h", Handler: h}))
		id := b.enqueue("1", "k")
		n, err := b.DispatchOnce(t.Context(), 1)
		require.NoError(t, err)
		require.Equal(t, edge.Counters{Claimed: 1, Interrupted: 1}, n)
		require.Empty(t, script.Calls())
		d, err := b.model.Delivery(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, edge.Pending, d.State)
		require.Zero(t, d.Attempts)
		b.finish()
	})
}

// A start whose answer is lost: the handler is not called, nothing is charged,
// and a once delivery is not left for a person.
func TestStartWithoutAnswerIsTakenBack(t *testing.T) {
	for name, fault := range map[string]func(m *edgetest.Model){
		"not committed": func(m *edgetest.Model) { m.FailNext("Start", 1) },
		"committed":     func(m *edgetest.Model) { m.FailAfterNext("Start", 1) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				script := edgetest.NewScript()
				ready := func(context.Context, *edge.Claim) edge.Inspection { return edge.Inspection{} }
				b := newBench(t, only(edge.HandlerSpec{Name: "h", Handler: inspecting{script.Handle, ready}}))
				id := b.enqueue("1", "k")
				fault(b.model)
				n, err := b.DispatchOnce(t.Context(), 1)
				require.NoError(t, err)
				require.Equal(t, edge.Counters{Claimed: 1, Interrupted: 1}, n)
				require.Empty(t, script.Calls())
				d, err := b.model.Delivery(t.Context(), id)
				require.NoError(t, err)
				require.Equal(t, edge.Pending, d.State)
				require.Zero(t, d.Attempts)
				time.Sleep(2 * time.Second)
				_, err = b.DispatchOnce(t.Context(), 1)
				require.NoError(t, err)
				b.await(id, edge.Succeeded)
				b.finish()
			})
		})
	}
}

// R12: the store fails while a result is recorded, three times and for longer
// than a lease; the record is repeated, and the row does not stay claimed.
func TestR12_AResultIsHeldUntilTheStoreTakesIt(t *testing.T) {
	for name, fault := range map[string]func(m *edgetest.Model){
		"three times":                func(m *edgetest.Model) { m.FailNext("Settle", 3) },
		"three times after a commit": func(m *edgetest.Model) { m.FailAfterNext("Settle", 3) },
		"longer than a lease":        func(m *edgetest.Model) { m.FailNext("Settle", 100) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				script := edgetest.NewScript()
				o := only(handler("h", edge.Once, script.Handle))
				o.Lease = 30 * time.Second
				b := newBench(t, o).start()
				fault(b.model)
				id := b.enqueue("1", "k")
				d := b.awaitNow(id, edge.Succeeded)
				require.Equal(t, "ok", d.Code)
				require.Len(t, script.Calls(), 1)
				require.Zero(t, d.Losses)
				b.finish()
				require.Equal(t, int64(1), b.Totals().Succeeded)
			})
		})
	}
}

// R44: retries inside the storage layer must not call the handler again.
func TestR44_StorageRetriesNeverCallTheHandlerAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var calls atomic.Int64
		b := newBench(t, only(handler("h", edge.Transactional, func(_ context.Context, c *edge.Claim) edge.Result {
			n := calls.Add(1)
			if c.Event.Depth > 0 {
				return edge.Done()
			}
			return edge.Done(edgetest.NewEvent(fmt.Sprintf("%s-%d", c.Event.ID, n), "k"))
		}))).start()
		b.model.FailAfterNext("Settle", 4)
		id := b.enqueue("1", "k")
		b.awaitNow(id, edge.Succeeded)
		require.NoError(t, b.tap.AwaitCount(t.Context(), edge.Succeeded, 2))
		b.finish()
		require.Equal(t, int64(2), calls.Load(), "one for the event and one for its follow-up")
		ds, err := b.model.Deliveries(t.Context(), edge.DeliveryFilter{})
		require.NoError(t, err)
		require.Len(t, ds, 2, "one set of mutations")
	})
}

// R6: a handler that takes three leases, with heartbeats, is started once.
func TestR6_AHandlerLongerThanItsLeaseIsStartedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		o := only(handler("h", edge.Once, edgetest.NewScript(func(ctx context.Context, _ *edge.Claim) edge.Result {
			select {
			case <-ctx.Done():
				return edge.Unknown("cut", context.Cause(ctx).Error())
			case <-time.After(3 * time.Minute):
				return edge.Done()
			}
		}).Handle))
		m := edgetest.NewModel(nil)
		b := benchOn(t, m, o).start()
		other := benchOn(t, m.Open(nil), edge.Options{Handlers: o.Handlers, Shared: true}).start()
		id := b.enqueue("1", "k") // either of the two may take it
		time.Sleep(4 * time.Minute)
		d, err := m.Delivery(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, edge.Succeeded, d.State)
		require.Len(t, b.executions(id), 1)
		require.Zero(t, d.Losses)
		other.finish()
		b.finish()
	})
}

// R31: the delay counts from the end of a long attempt, not from its start.
func TestR31_TheDelayCountsFromTheEndOfTheAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var starts, ends times
		o := only(handler("h", edge.Idempotent, func(context.Context, *edge.Claim) edge.Result {
			starts.mark()
			if len(starts.all()) == 2 {
				return edge.Done()
			}
			time.Sleep(30 * time.Second)
			ends.mark()
			return edge.TryAgain("busy", "")
		}))
		o.Handlers[0].Retry = edge.RetryPolicy{Base: 5 * time.Second}
		b := newBench(t, o).start()
		b.awaitNow(b.enqueue("1", "k"), edge.Succeeded)
		b.finish()
		require.InDelta(t, 5*time.Second, starts.all()[1].Sub(ends.all()[0]), float64(10*time.Millisecond))
	})
}

// R32: short delays are met, not raised to some hidden least delay.
func TestR32_AShortDelayIsMet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var starts times
		o := only(handler("h", edge.Idempotent, func(context.Context, *edge.Claim) edge.Result {
			starts.mark()
			if len(starts.all()) == 4 {
				return edge.Done()
			}
			return edge.TryAgain("busy", "")
		}))
		o.Jitter = nil // the real one
		o.Handlers[0].Retry = edge.RetryPolicy{Base: time.Second, Max: time.Second}
		b := newBench(t, o).start()
		b.awaitNow(b.enqueue("1", "k"), edge.Succeeded)
		b.finish()
		at := starts.all()
		for i := 1; i < len(at); i++ {
			gap := at[i].Sub(at[i-1])
			require.GreaterOrEqual(t, gap, time.Second)
			require.LessOrEqual(t, gap, 1200*time.Millisecond)
		}
	})
}

// R37: a backoff equal to the lease leaves no window in which two things move
// the same delivery.
func TestR37_BackoffEqualToTheLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const rounds = 1000
		var running, calls atomic.Int64
		o := only(handler("h", edge.Idempotent, func(context.Context, *edge.Claim) edge.Result {
			if running.Add(1) > 1 {
				panic("two at once")
			}
			defer running.Add(-1)
			time.Sleep(time.Second) // ends as the lease of the claim does
			if calls.Add(1) == rounds {
				return edge.Done()
			}
			return edge.TryAgain("busy", "")
		}))
		o.Lease = time.Second
		o.Handlers[0].Retry = edge.RetryPolicy{Base: time.Second, Max: time.Second, MaxAttempts: 2 * rounds}
		m := edgetest.NewModel(nil)
		b := benchOn(t, m, o).start()
		other := benchOn(t, m.Open(nil), edge.Options{Handlers: o.Handlers, Lease: time.Second, Shared: true}).start()
		id := b.enqueue("1", "k")
		var d edge.Delivery
		require.Eventually(t, func() bool {
			var err error
			d, err = m.Delivery(context.Background(), id)
			return err == nil && d.State.Final()
		}, 3*time.Hour, time.Second)
		require.Equal(t, edge.Succeeded, d.State)
		require.Equal(t, int64(rounds), calls.Load())
		require.Equal(t, rounds, d.Executions)
		require.Zero(t, d.Losses)
		other.finish()
		b.finish()
	})
}

// What happens between claim and start decides what the start does.
func TestStartMeetsAConsumptionOrALostLease(t *testing.T) {
	for name, tc := range map[string]struct {
		during func(t *testing.T, b *bench, c *edge.Claim)
		want   edge.Counters
		state  edge.State
	}{
		"consumed": {
			func(t *testing.T, b *bench, c *edge.Claim) { require.NoError(t, b.model.Consume(c.Event.N, c.Target)) },
			edge.Counters{Claimed: 1, Consumed: 1}, edge.Succeeded,
		},
		"lease lost": {
			func(t *testing.T, b *bench, c *edge.Claim) { stealLease(t, b.model, c.Delivery) },
			edge.Counters{Claimed: 1, Lost: 1}, edge.Pending,
		},
		"cancelled": {
			func(t *testing.T, b *bench, c *edge.Claim) {
				d, err := b.Cancel(t.Context(), c.Delivery)
				require.NoError(t, err)
				require.Equal(t, edge.Cancelled, d.State)
			},
			edge.Counters{Claimed: 1, Lost: 1}, edge.Cancelled,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				script := edgetest.NewScript()
				var b *bench
				h := inspecting{script.Handle, func(_ context.Context, c *edge.Claim) edge.Inspection {
					tc.during(t, b, c)
					return edge.Inspection{}
				}}
				b = newBench(t, only(edge.HandlerSpec{Name: "h", Handler: h}))
				id := b.enqueue("1", "k")
				n, err := b.DispatchOnce(t.Context(), 1)
				require.NoError(t, err)
				require.Equal(t, tc.want, n)
				require.Empty(t, script.Calls())
				d, err := b.model.Delivery(t.Context(), id)
				require.NoError(t, err)
				require.Equal(t, tc.state, d.State)
				b.finish()
			})
		})
	}
}
