package edgetest

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
)

func short(id, key string, ttl time.Duration) edge.Submission {
	sub := Owe(id, "h", key)
	sub.Routes[0].TTLMS = ttl.Milliseconds()
	return sub
}

func (r *rig) expire() edge.Swept {
	r.t.Helper()
	out, err := r.s.Expire(r.ctx, 100)
	require.NoError(r.t, err)
	return out
}

func expiredWorkIsNotStarted(t *testing.T, r *rig) {
	r.register(started("h", edge.Idempotent))
	ids := r.accept(short("1", "k", 10*time.Second), Owe("2", "h", "k"), short("3", "l", 20*time.Second))
	require.Equal(t, StartMS+int64(10_000), r.expire().Next)
	r.pass(10 * time.Second)
	for _, c := range r.claim(10) {
		require.NotEqual(t, ids[0], c.Delivery, "started at expiry == now")
		r.settle(c, edge.OutcomeRetry, "again")
	}
	r.expire()
	require.Equal(t, edge.Expired, r.delivery(ids[0]).State)
	require.Equal(t, edge.CodeExpired, r.delivery(ids[0]).Code)
	require.Zero(t, r.delivery(ids[0]).FirstStartMS)
	r.pass(10 * time.Second)
	r.expire()
	require.Equal(t, edge.Expired, r.delivery(ids[2]).State, "a waiting retry expires too")
	r.claimOne(ids[1])

	// What is leased when its time comes is not started.
	r.register(registration(edge.Idempotent))
	late := r.accept(short("4", "m", 10*time.Second))[0]
	c := r.claimOne(late)
	r.pass(10 * time.Second)
	require.Zero(t, r.expire().Done, "never while leased")
	_, err := r.s.Start(r.ctx, c.Fence, c.Token)
	require.ErrorIs(t, err, edge.ErrConflict)
	_, err = r.s.Release(r.ctx, edge.Settlement{Execution: c.Fence, Token: c.Token, Outcome: edge.OutcomeInterrupted, Code: edge.CodeStartRefused})
	require.NoError(t, err)
	require.Equal(t, 1, r.expire().Done)
}

func doubtedClockExpiresNothing(t *testing.T, r *rig) {
	r.register(started("h", edge.Idempotent))
	ids := r.accept(short("1", "k", 10*time.Second), Owe("2", "h", "l"))
	r.settle(r.claimNamed("h"), edge.OutcomeRetry, "again")
	r.pass(time.Hour)
	r.clock.Doubt()
	require.Zero(t, r.expire().Done)
	out, err := r.s.Prune(r.ctx, edge.PrunePolicy{SucceededBeforeMS: math.MaxInt64, FailedBeforeMS: math.MaxInt64, DedupeBeforeMS: math.MaxInt64, Limit: 100})
	require.NoError(t, err)
	require.Zero(t, out.Done)
	require.NotContains(t, []edge.State{edge.Expired}, r.delivery(ids[0]).State)
	cs := r.claim(10)
	require.Len(t, cs, 2, "work goes on")
	for _, c := range cs {
		s, err := r.s.Settle(r.ctx, edge.Settlement{
			Execution: c.Fence, Token: c.Token, Outcome: edge.OutcomeRetry, Code: "again", GiveUpAfterMS: 1,
		})
		require.NoError(t, err)
		require.Equal(t, edge.Pending, s.State, "giving up by time stands still")
	}
	r.clock.Confirm()
	require.Equal(t, 1, r.expire().Done)
}

func giveUpByTime(t *testing.T, r *rig) {
	r.register(started("h", edge.Idempotent))
	id := r.accept(Owe("1", "h", "k"))[0]
	retry := func(delay time.Duration) edge.Settled {
		c := r.claimOne(id)
		s, err := r.s.Settle(r.ctx, edge.Settlement{
			Execution: c.Fence, Token: c.Token, Outcome: edge.OutcomeRetry, Code: "down",
			DelayMS: delay.Milliseconds(), GiveUpAfterMS: time.Hour.Milliseconds(),
		})
		require.NoError(t, err)
		return s
	}
	r.pass(time.Minute) // waiting before the first start does not count
	require.Equal(t, edge.Pending, retry(time.Hour).State, "exactly at the limit is in time")
	r.pass(time.Hour)
	s := retry(time.Millisecond)
	require.Equal(t, edge.Failed, s.State)
	require.Equal(t, "down", s.Code, "the handler's own code")
}

func pruneKeepsWhatIsNeeded(t *testing.T, r *rig) {
	r.register(halting(edge.Idempotent))
	ids := r.accept(Owe("done", "h", "a"), Owe("halts", "h", "k"), Owe("open", "h", "k"))
	for range 2 {
		cs := r.claim(1)
		require.Len(t, cs, 1)
		if cs[0].Delivery == ids[0] {
			r.settle(cs[0], edge.OutcomeSucceeded, "ok")
		} else {
			r.settle(cs[0], edge.OutcomeFailed, "broken")
		}
	}
	doneEvent := r.delivery(ids[0]).Event
	r.pass(time.Hour)
	prune := func(p edge.PrunePolicy) {
		p.Limit = 100
		_, err := r.s.Prune(r.ctx, p)
		require.NoError(t, err)
		r.check()
	}
	prune(edge.PrunePolicy{SucceededBeforeMS: StartMS, FailedBeforeMS: StartMS})
	require.Equal(t, edge.Succeeded, r.delivery(ids[0]).State, "not old enough")
	prune(edge.PrunePolicy{SucceededBeforeMS: StartMS + 1, FailedBeforeMS: StartMS + 1})
	_, err := r.s.Delivery(r.ctx, ids[0])
	require.ErrorIs(t, err, edge.ErrNotFound)
	require.Equal(t, edge.Failed, r.delivery(ids[1]).State, "a stall names it")
	require.Equal(t, edge.Pending, r.delivery(ids[2]).State)
	e, err := r.s.Event(r.ctx, doneEvent)
	require.NoError(t, err)
	require.Nil(t, e.Data, "the body goes with the last delivery")

	as, err := r.s.Accept(r.ctx, []edge.Submission{Owe("done", "h", "a")})
	require.NoError(t, err)
	require.NoError(t, as[0].Err)
	require.True(t, as[0].Existing, "deduplication outlives the body")
	require.Empty(t, as[0].Deliveries)

	prune(edge.PrunePolicy{SucceededBeforeMS: StartMS + 1, FailedBeforeMS: StartMS + 1, DedupeBeforeMS: r.clock.NowMS()})
	_, err = r.s.Event(r.ctx, doneEvent)
	require.ErrorIs(t, err, edge.ErrNotFound)
	_, err = r.s.Event(r.ctx, r.delivery(ids[2]).Event)
	require.NoError(t, err, "never before its last delivery")
	again := r.accept(Owe("done", "h", "a"))
	require.Greater(t, again[0], ids[2], "no id is used twice")
	require.Equal(t, again[0], r.claim(1)[0].Delivery)
}

func clockStepBack(t *testing.T, r *rig) {
	r.register(started("h", edge.Idempotent))
	ids := r.accept(Events("e", "h", "k", 2)...)
	c := r.claimOne(ids[0])
	_, err := r.s.Settle(r.ctx, edge.Settlement{
		Execution: c.Fence, Token: c.Token, Outcome: edge.OutcomeRetry, Code: "again", DelayMS: 1000,
	})
	require.NoError(t, err)
	const step = 10 * time.Hour
	r.clock.Step(-step)
	require.Empty(t, r.claim(1))
	for more := true; more; {
		out, err := r.s.ClockStepped(r.ctx, -step.Milliseconds(), 60_000, 0, 10)
		require.NoError(t, err)
		more = out.More
	}
	require.LessOrEqual(t, r.delivery(ids[0]).DueMS, r.clock.NowMS()+60_000)
	r.pass(time.Minute)
	r.settle(r.claimOne(ids[0]), edge.OutcomeSucceeded, "ok")
	r.settle(r.claimOne(ids[1]), edge.OutcomeSucceeded, "ok")
}

func deadOwnerIsVoided(t *testing.T, r *rig) {
	regs := []edge.Registration{started("once", edge.Once), started("idem", edge.Idempotent), registration(edge.Once)}
	r.register(regs...)
	ids := r.accept(Owe("1", "once", "k"), Owe("2", "idem", "k"), Owe("3", "h", "k"))
	first := r.s.Owner()
	require.Len(t, r.claim(10), 3)
	_, err := r.s.Acquire(r.ctx, edge.Target{Handler: "once", Key: "borrowed"})
	require.NoError(t, err)
	_, err = r.s.VoidOwner(r.ctx, first)
	require.ErrorIs(t, err, edge.ErrConflict, "one is not dead while one asks")
	r.restart(regs...)
	require.NotEqual(t, first, r.s.Owner())
	dead, err := r.s.DeadOwners(r.ctx)
	require.NoError(t, err)
	require.Equal(t, []string{first}, dead)
	require.Empty(t, r.claim(10), "expiry or death alone frees nothing")
	voided, err := r.s.VoidOwner(r.ctx, first)
	require.NoError(t, err)
	require.Len(t, voided, 4)
	for _, v := range voided {
		require.Equal(t, first, v.Owner)
	}
	dead, err = r.s.DeadOwners(r.ctx)
	require.NoError(t, err)
	require.Empty(t, dead)
	require.Equal(t, edge.Blocked, r.delivery(ids[0]).State)
	require.Equal(t, edge.CodeLostAfterStart, r.delivery(ids[0]).Code)
	require.Equal(t, edge.Pending, r.delivery(ids[1]).State)
	require.Equal(t, edge.Pending, r.delivery(ids[2]).State, "it had not started")
	require.Len(t, r.claim(10), 2)
}

func lossesHaveTheirBudget(t *testing.T, r *rig) {
	r.register(started("h", edge.Idempotent))
	id := r.accept(Owe("1", "h", "k"))[0]
	for i := 1; i < edge.DefaultMaxLosses; i++ {
		c := r.claimOne(id)
		voided := r.lose()
		require.Len(t, voided, 1)
		require.Equal(t, c.Fence, voided[0].Execution)
		require.Equal(t, r.s.Owner(), voided[0].Owner)
		require.Equal(t, edge.Pending, r.delivery(id).State)
		require.Equal(t, i, r.delivery(id).Losses)
	}
	require.True(t, r.claimOne(id).Retry)
	r.lose()
	d := r.delivery(id)
	require.Equal(t, edge.Failed, d.State)
	require.Equal(t, edge.CodeBudgetExhausted, d.Code)
	require.Zero(t, d.Attempts, "losses do not spend attempts")
}

func acquireTakesTheTarget(t *testing.T, r *rig) {
	r.register(started("h", edge.Once))
	at := edge.Target{Handler: "h", Key: "k"}
	l, err := r.s.Acquire(r.ctx, at)
	require.NoError(t, err)
	_, err = r.s.Acquire(r.ctx, at)
	require.ErrorIs(t, err, edge.ErrBusy)
	id := r.accept(Owe("1", "h", "k"))[0]
	require.Empty(t, r.claim(10), "it is busy")
	require.ErrorIs(t, r.s.Relinquish(r.ctx, l.Execution, l.Token+1, edge.OutcomeSucceeded, "ok"), edge.ErrLeaseLost)
	require.NoError(t, r.s.Relinquish(r.ctx, l.Execution, l.Token, edge.OutcomeSucceeded, "ok"))
	require.ErrorIs(t, r.s.Relinquish(r.ctx, l.Execution, l.Token, edge.OutcomeSucceeded, "ok"), edge.ErrLeaseLost)
	c := r.claimOne(id)
	require.Greater(t, c.Fence, l.Execution, "fences grow over both")
	_, err = r.s.Acquire(r.ctx, at)
	require.ErrorIs(t, err, edge.ErrBusy)
	r.settle(c, edge.OutcomeBlocked, "secret_missing")
	l, err = r.s.Acquire(r.ctx, at)
	require.NoError(t, err, "allowed while stalled")
	r.check()
	require.Len(t, r.lose(), 1)
	require.ErrorIs(t, r.s.Relinquish(r.ctx, l.Execution, l.Token, edge.OutcomeSucceeded, "ok"), edge.ErrLeaseLost)
	require.Equal(t, edge.StallBlocked, r.target("h", "k").Stall)
}

// Age and bytes of each class of final deliveries are its own, and the oldest go
// first.
func pruneByBytes(t *testing.T, r *rig) {
	r.register(started("h", edge.Idempotent))
	var ids []edge.DeliveryID
	for i := range 6 {
		id := r.accept(Owe(string(rune('a'+i)), "h", "k"))[0]
		ids = append(ids, id)
		o := edge.OutcomeSucceeded
		if i%2 == 1 {
			o = edge.OutcomeFailed
		}
		r.settle(r.claimOne(id), o, "done")
		r.pass(time.Second)
	}
	sub := Owe("a", "h", "k")
	share := edge.ShareBytes(&sub.Event, 1)
	left := func() []edge.DeliveryID {
		t.Helper()
		ds, err := r.s.Deliveries(r.ctx, edge.DeliveryFilter{})
		require.NoError(t, err)
		var left []edge.DeliveryID
		for _, d := range ds {
			left = append([]edge.DeliveryID{d.ID}, left...)
		}
		return left
	}
	prune := func(p edge.PrunePolicy) {
		t.Helper()
		p.Limit = 100
		_, err := r.s.Prune(r.ctx, p)
		require.NoError(t, err)
		r.check()
	}
	prune(edge.PrunePolicy{SucceededBytes: 3 * share, FailedBytes: 3 * share})
	require.Equal(t, ids, left(), "at the bounds")
	prune(edge.PrunePolicy{SucceededBytes: 2 * share})
	require.Equal(t, ids[1:], left())
	prune(edge.PrunePolicy{FailedBytes: share})
	require.Equal(t, []edge.DeliveryID{ids[2], ids[4], ids[5]}, left())
	prune(edge.PrunePolicy{SucceededBeforeMS: r.clock.NowMS()})
	require.Equal(t, []edge.DeliveryID{ids[5]}, left())
}
