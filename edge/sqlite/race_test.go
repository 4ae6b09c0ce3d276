package sqlite_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/edgetest"
	"fencepost/edge/sqlite"
)

const raceLeaseMS = 100

// duo is two openings of one file: a works, b takes what a does not renew. Both
// follow one clock.
type duo struct {
	t      *testing.T
	ctx    context.Context
	clock  *edge.Clock
	a, b   *sqlite.Store
	finals map[edge.DeliveryID]int // commits that made a delivery final
	mu     sync.Mutex
	events int
}

func newDuo(t *testing.T, regs ...edge.Registration) *duo {
	t.Helper()
	d := &duo{t: t, ctx: context.Background(), clock: edge.ManualClock(edgetest.StartMS), finals: map[edge.DeliveryID]int{}}
	path := dbPath(t)
	o := sqlite.Options{Share: true, Clock: d.clock, Durability: sqlite.DurabilityNormal}
	d.a, d.b = openAt(t, path, o), openAt(t, path, o)
	for _, s := range []*sqlite.Store{d.a, d.b} {
		s.Watch(d.record)
		require.NoError(t, s.Register(d.ctx, regs, 1000, raceLeaseMS))
	}
	return d
}

func (d *duo) record(cs []edge.Change) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range cs {
		if c.State.Final() {
			d.finals[c.Delivery]++
		}
	}
}

// accept owes a new event to handler h under a key of its own.
func (d *duo) accept(h string) edge.DeliveryID {
	d.t.Helper()
	d.events++
	as, err := d.a.Accept(d.ctx, []edge.Submission{edgetest.Owe(fmt.Sprint("e", d.events), h, fmt.Sprint("k", d.events))})
	require.NoError(d.t, err)
	require.NoError(d.t, as[0].Err)
	return as[0].Deliveries[0].ID
}

// claim lets s take the one delivery that is due.
func (d *duo) claim(s *sqlite.Store, id edge.DeliveryID) edge.Claimed {
	d.t.Helper()
	cs, err := s.Claim(d.ctx, 1)
	require.NoError(d.t, err)
	require.Len(d.t, cs, 1)
	require.Equal(d.t, id, cs[0].Delivery)
	return cs[0]
}

// watch lets thief see the other's leases, and makes them stale in this instant.
func (d *duo) watch(thief *sqlite.Store) {
	d.t.Helper()
	d.sweep(thief, 0)
	d.clock.Advance(raceLeaseMS * time.Millisecond)
}

func (d *duo) sweep(thief *sqlite.Store, want int) {
	d.t.Helper()
	vs, err := thief.VoidStale(d.ctx)
	require.NoError(d.t, err)
	require.Len(d.t, vs, want)
}

func (d *duo) delivery(id edge.DeliveryID) edge.Delivery {
	d.t.Helper()
	x, err := d.a.Delivery(d.ctx, id)
	require.NoError(d.t, err)
	return x
}

// at once runs both; which one is let go first changes from round to round.
func atOnce(round int, f, g func()) {
	if round%2 == 1 {
		f, g = g, f
	}
	var both sync.WaitGroup
	both.Go(f)
	for range round % 5 {
		runtime.Gosched()
	}
	both.Go(g)
	both.Wait()
}

func succeeded(c edge.Claimed) edge.Settlement {
	return edge.Settlement{Execution: c.Fence, Token: c.Token, Outcome: edge.OutcomeSucceeded, Code: "ok"}
}

// TestQ1_CompletionMeetsTheSweep settles each delivery in the instant in which
// its lease is voided. Whoever is first, it ends once: a completed one gains no
// loss, no execution and no other end.
func TestQ1_CompletionMeetsTheSweep(t *testing.T) {
	t.Parallel()
	d := newDuo(t,
		edge.Registration{Name: "idem", Effect: edge.Idempotent, Slots: 1, Limit: 10},
		edge.Registration{Name: "once", Effect: edge.Once, Slots: 1, Limit: 10})
	const rounds = 1000
	settled, swept := 0, 0
	for round := range rounds {
		effect := []string{"idem", "once"}[round/2%2]
		id := d.accept(effect)
		c := d.claim(d.a, id)
		d.watch(d.b)
		var vs []edge.Voided
		var answer edge.Settled
		var settle, sweep error
		atOnce(round,
			func() { answer, settle = d.a.Settle(d.ctx, succeeded(c)) },
			func() { vs, sweep = d.b.VoidStale(d.ctx) })
		require.NoError(t, sweep)
		switch {
		case len(vs) == 0:
			settled++
			require.NoError(t, settle)
			require.Zero(t, d.delivery(id).Losses)
			require.Equal(t, 1, d.delivery(id).Executions)
		case effect == "once": // its own unresolved loss: the result that was thought lost
			swept++
			require.Equal(t, edge.CodeLostAfterStart, vs[0].Code)
			require.NoError(t, settle)
			require.Equal(t, edge.Succeeded, answer.State)
			require.Equal(t, 1, d.delivery(id).Executions)
		default:
			swept++
			require.Equal(t, edge.Pending, vs[0].State)
			require.ErrorIs(t, settle, edge.ErrLeaseLost)
			again := d.claim(d.b, id)
			require.Greater(t, again.Fence, c.Fence)
			_, err := d.b.Settle(d.ctx, succeeded(again))
			require.NoError(t, err)
			require.Equal(t, 1, d.delivery(id).Losses)
			require.Equal(t, 2, d.delivery(id).Executions)
		}
		final := d.delivery(id)
		require.Equal(t, edge.Succeeded, final.State)
		d.clock.Advance(raceLeaseMS * time.Millisecond)
		d.sweep(d.b, 0)
		require.Equal(t, final, d.delivery(id), "no sweep touches what has ended")
	}
	require.Len(t, d.finals, rounds)
	for id, n := range d.finals {
		require.Equal(t, 1, n, "delivery %d ended more than once", id)
	}
	t.Logf("%d rounds: the completion was first in %d, the sweep in %d", rounds, settled, swept)
	require.Positive(t, settled, "the completion never won: nothing was raced")
	require.Positive(t, swept, "the sweep never won: nothing was raced")
}

// TestR1_MaintenanceIsStoppedBetweenReadAndWrite stops the sweep after it has
// seen a lease, or while it waits for the file, and lets the delivery complete
// meanwhile: it stays done. In the other order the stale completion changes
// nothing that another has decided.
func TestR1_MaintenanceIsStoppedBetweenReadAndWrite(t *testing.T) {
	t.Parallel()
	d := newDuo(t,
		edge.Registration{Name: "idem", Effect: edge.Idempotent, Slots: 1, Limit: 10},
		edge.Registration{Name: "once", Effect: edge.Once, Slots: 1, Limit: 10})
	done := func(id edge.DeliveryID) {
		t.Helper()
		final := d.delivery(id)
		require.Equal(t, edge.Succeeded, final.State)
		require.Zero(t, final.Losses)
		d.clock.Advance(raceLeaseMS * time.Millisecond)
		d.sweep(d.b, 0)
		_, err := d.b.Expire(d.ctx, 10)
		require.NoError(t, err)
		require.Equal(t, final, d.delivery(id))
	}
	for _, effect := range []string{"idem", "once"} {
		// Read, completed, written.
		id := d.accept(effect)
		c := d.claim(d.a, id)
		d.watch(d.b)
		_, err := d.a.Settle(d.ctx, succeeded(c))
		require.NoError(t, err)
		d.sweep(d.b, 0)
		done(id)

		// The sweep's transaction waits for that of the completion.
		id = d.accept(effect)
		c = d.claim(d.a, id)
		d.watch(d.b)
		release := d.a.HoldUpForTest() // a holds the write lock of the file
		settled := make(chan error, 1)
		go func() { _, err := d.a.Settle(d.ctx, succeeded(c)); settled <- err }()
		require.Eventually(t, func() bool { return d.a.QueuedForTest() == 1 }, time.Minute, time.Millisecond)
		swept := make(chan []edge.Voided, 1)
		go func() {
			vs, err := d.b.VoidStale(d.ctx)
			if err == nil {
				swept <- vs
			}
			close(swept)
		}()
		release()
		vs := <-swept
		err = <-settled
		if len(vs) == 0 {
			require.NoError(t, err)
			done(id)
			continue
		}
		require.Len(t, vs, 1)
		if effect == "idem" {
			require.ErrorIs(t, err, edge.ErrLeaseLost)
			_, err = d.a.Settle(d.ctx, succeeded(d.claim(d.a, id))) // it waits again
			require.NoError(t, err)
		} else {
			require.NoError(t, err)
		}
	}

	// Written first: the completion that comes too late is kept and moves nothing.
	id := d.accept("idem")
	late := d.claim(d.a, id)
	d.watch(d.b)
	d.sweep(d.b, 1)
	fresh := d.claim(d.b, id)
	before := d.delivery(id)
	_, err := d.a.Settle(d.ctx, succeeded(late))
	require.ErrorIs(t, err, edge.ErrLeaseLost)
	require.Equal(t, before, d.delivery(id))
	xs, err := d.a.Executions(d.ctx, id)
	require.NoError(t, err)
	require.Equal(t, edge.OutcomeSucceeded, xs[0].LateOutcome)
	_, err = d.b.Settle(d.ctx, edge.Settlement{Execution: fresh.Fence, Token: fresh.Token, Outcome: edge.OutcomeFailed, Code: "no"})
	require.NoError(t, err)
	final := d.delivery(id)
	_, err = d.a.Settle(d.ctx, succeeded(late))
	require.ErrorIs(t, err, edge.ErrLeaseLost)
	require.Equal(t, edge.Failed, final.State)
	require.Equal(t, final, d.delivery(id))
}

// TestR37_BackoffEqualToTheLeaseOnOneFile ends each attempt in the instant in
// which its lease is voided, with a backoff as long as the lease. Each round is
// charged to one budget, once, and the delivery is due once.
func TestR37_BackoffEqualToTheLeaseOnOneFile(t *testing.T) {
	t.Parallel()
	d := newDuo(t, edge.Registration{Name: "idem", Effect: edge.Idempotent, Slots: 1, Limit: 10, MaxLosses: 1 << 20})
	const rounds = 1000
	id := d.accept("idem")
	fence := edge.ExecutionID(0)
	retried, lost := 0, 0
	for round := range rounds {
		worker, thief := d.a, d.b
		if round/2%2 == 1 {
			worker, thief = d.b, d.a
		}
		c := d.claim(worker, id)
		require.Greater(t, c.Fence, fence)
		fence = c.Fence
		d.watch(thief)
		var vs []edge.Voided
		var settle, sweep error
		atOnce(round,
			func() {
				_, settle = worker.Settle(d.ctx, edge.Settlement{
					Execution: c.Fence, Token: c.Token, Outcome: edge.OutcomeRetry, Code: "busy", DelayMS: raceLeaseMS})
			},
			func() { vs, sweep = thief.VoidStale(d.ctx) })
		require.NoError(t, sweep)
		if len(vs) == 0 {
			require.NoError(t, settle)
			retried++
		} else {
			require.ErrorIs(t, settle, edge.ErrLeaseLost)
			lost++
		}
		x := d.delivery(id)
		require.Equal(t, edge.Pending, x.State)
		require.Equal(t, [2]int{retried, lost}, [2]int{x.Attempts, x.Losses})
		require.Equal(t, round+1, x.Executions)
		if len(vs) == 0 {
			require.Equal(t, d.clock.NowMS()+raceLeaseMS, x.DueMS)
			cs, err := thief.Claim(d.ctx, 1)
			require.NoError(t, err)
			require.Empty(t, cs, "not before the backoff is over")
			d.clock.Advance(raceLeaseMS * time.Millisecond)
		}
	}
	c := d.claim(d.a, id)
	_, err := d.a.Settle(d.ctx, succeeded(c))
	require.NoError(t, err)
	require.Equal(t, map[edge.DeliveryID]int{id: 1}, d.finals)
	t.Logf("%d rounds: %d retried, %d lost", rounds, retried, lost)
	require.Positive(t, retried)
	require.Positive(t, lost)
}

// TestQ20_R17_AnExpiredLeaseFollowsItsBudget loses the lease of a delivery again
// and again. With losses left it is pending, for the reason "lease lost" and
// whatever its retries have spent; with none left, and only then, it has failed.
func TestQ20_R17_AnExpiredLeaseFollowsItsBudget(t *testing.T) {
	t.Parallel()
	const losses = 3
	for name, inspect := range map[string]bool{"started": false, "claimed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDuo(t, edge.Registration{Name: "idem", Effect: edge.Idempotent, Slots: 1, Limit: 10, MaxLosses: losses, Inspect: inspect})
			id := d.accept("idem")
			c := d.claim(d.a, id) // an attempt of two is spent before the first loss
			retry := edge.Settlement{Execution: c.Fence, Token: c.Token, Outcome: edge.OutcomeRetry, Code: "busy", DelayMS: 1, MaxAttempts: 2}
			var err error
			if inspect {
				_, err = d.a.Release(d.ctx, retry)
			} else {
				_, err = d.a.Settle(d.ctx, retry)
			}
			require.NoError(t, err)
			d.clock.Advance(time.Millisecond)
			for n := 1; n <= losses; n++ {
				lost := d.claim(d.a, id)
				d.watch(d.b)
				d.sweep(d.b, 1)
				x := d.delivery(id)
				require.Equal(t, n, x.Losses)
				require.Equal(t, 1, x.Attempts, "a loss is no attempt")
				xs, err := d.a.Executions(d.ctx, id)
				require.NoError(t, err)
				require.Equal(t, edge.OutcomeLost, xs[n].Outcome)
				require.Equal(t, edge.CodeLeaseLost, xs[n].Code)
				require.Equal(t, lost.Fence, xs[n].ID)
				if n == losses {
					require.Equal(t, edge.Failed, x.State)
					require.Equal(t, edge.CodeBudgetExhausted, x.Code)
					break
				}
				require.Equal(t, edge.Pending, x.State, "never failed with losses left")
				require.Equal(t, edge.CodeLeaseLost, x.Code)
				require.LessOrEqual(t, x.DueMS, d.clock.NowMS(), "and due at once")
			}
			require.Equal(t, map[edge.DeliveryID]int{id: 1}, d.finals)
			cs, err := d.a.Claim(d.ctx, 1)
			require.NoError(t, err)
			require.Empty(t, cs)
		})
	}
}

// TestR2_AHandlerThatIsNotKnownIsNotTerminal lets a process that lacks a handler
// take the leases of one that has it: the work waits and is not given up.
func TestR2_AHandlerThatIsNotKnownIsNotTerminal(t *testing.T) {
	t.Parallel()
	regs := []edge.Registration{
		{Name: "idem", Effect: edge.Idempotent, Slots: 1, Limit: 10},
		{Name: "once", Effect: edge.Once, Slots: 1, Limit: 10},
		{Name: "look", Effect: edge.Once, Slots: 1, Limit: 10, Inspect: true},
	}
	d := newDuo(t, regs...)
	ids := []edge.DeliveryID{d.accept("idem"), d.accept("once"), d.accept("look"), d.accept("other")}
	cs, err := d.a.Claim(d.ctx, 10)
	require.NoError(t, err)
	require.Len(t, cs, 3)
	require.NoError(t, d.b.Register(d.ctx, []edge.Registration{{Name: "other", Effect: edge.Idempotent, Slots: 1, Limit: 10}}, 10, raceLeaseMS))
	d.watch(d.b)
	d.sweep(d.b, 3)
	for range 20 { // it looks again and again
		own := d.claim(d.b, ids[3])
		_, err := d.b.Settle(d.ctx, edge.Settlement{Execution: own.Fence, Token: own.Token, Outcome: edge.OutcomeRetry, Code: "busy", DelayMS: 1})
		require.NoError(t, err)
		d.watch(d.b)
		d.sweep(d.b, 0)
	}
	want := map[edge.DeliveryID][2]string{
		ids[0]: {string(edge.Pending), edge.CodeLeaseLost},
		ids[1]: {string(edge.Blocked), edge.CodeLostAfterStart},
		ids[2]: {string(edge.Pending), edge.CodeLeaseLost},
	}
	for id, w := range want {
		x := d.delivery(id)
		require.Equal(t, w, [2]string{string(x.State), x.Code})
		require.Equal(t, 1, x.Losses)
		require.Zero(t, x.Attempts)
	}
	f, err := d.b.Facts(d.ctx, ids[0])
	require.NoError(t, err)
	require.Contains(t, edge.Explain(f, d.clock.NowMS()), "No running configuration names handler idem. The delivery waits, uncharged")
	require.NoError(t, d.b.Register(d.ctx, regs, 10, raceLeaseMS))
	cs, err = d.b.Claim(d.ctx, 10)
	require.NoError(t, err)
	require.Len(t, cs, 2, "it runs when the handler is back; begun once work waits for a person")
	for _, c := range cs {
		if !c.Started {
			_, err = d.b.Start(d.ctx, c.Fence, c.Token)
			require.NoError(t, err)
		}
		_, err = d.b.Settle(d.ctx, succeeded(c))
		require.NoError(t, err)
	}
	require.Equal(t, map[edge.DeliveryID]int{ids[0]: 1, ids[2]: 1}, d.finals)
}

// TestRenewSparesAClaimThatItCouldNotName asks for a renewal while a claim is
// being committed, for longer than its lease lasts. Whoever asked knew nothing of
// it, so it stands; the next one, which does not name it either, voids it.
func TestRenewSparesAClaimThatItCouldNotName(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	clock := edge.ManualClock(edgetest.StartMS)
	s := openAt(t, dbPath(t), sqlite.Options{Clock: clock})
	require.NoError(t, s.Register(ctx, []edge.Registration{{Name: "idem", Effect: edge.Idempotent, Slots: 1, Limit: 10}}, 10, raceLeaseMS))
	_, err := s.Accept(ctx, []edge.Submission{edgetest.Owe("1", "idem", "k")})
	require.NoError(t, err)

	first := s.HoldUpForTest()
	claims := make(chan []edge.Claimed, 1)
	go func() { cs, _ := s.Claim(ctx, 1); claims <- cs }()
	require.Eventually(t, func() bool { return s.QueuedForTest() == 1 }, time.Minute, time.Millisecond)
	second := make(chan func(), 1)
	go func() { second <- s.HoldUpForTest() }()
	require.Eventually(t, func() bool { return s.QueuedForTest() == 2 }, time.Minute, time.Millisecond)
	first()
	release := <-second // the transaction of the claim has begun
	renewed := make(chan edge.Renewed, 1)
	go func() { r, _ := s.Renew(ctx, nil); renewed <- r }()
	require.Eventually(t, func() bool { return s.QueuedForTest() == 1 }, time.Minute, time.Millisecond)
	clock.Advance(2 * raceLeaseMS * time.Millisecond)
	release()
	cs := <-claims
	require.Len(t, cs, 1)
	require.Less(t, cs[0].ExpiresMS, clock.NowMS())
	require.Empty(t, (<-renewed).Voided)
	r, err := s.Renew(ctx, nil)
	require.NoError(t, err)
	require.Len(t, r.Voided, 1)
	require.Equal(t, cs[0].Fence, r.Voided[0].Execution)
}
