package edgetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
)

func lineHoldsThroughRetries(t *testing.T, r *rig) {
	r.register(started("h", edge.Idempotent))
	h := NewHistory()
	r.s.Watch(h.Record)
	ids := r.accept(Events("e", "h", "k", 5)...)
	for _, id := range ids {
		for attempt := 1; attempt <= 3; attempt++ {
			cs := r.claim(10)
			require.Len(t, cs, 1)
			require.Equal(t, id, cs[0].Delivery)
			require.Equal(t, attempt, cs[0].Attempt)
			require.Equal(t, attempt > 1, cs[0].Retry)
			require.Empty(t, r.claim(10), "two of one line")
			if attempt < 3 {
				r.settle(cs[0], edge.OutcomeRetry, "again")
				r.pass(time.Minute)
				continue
			}
			r.settle(cs[0], edge.OutcomeSucceeded, "ok")
		}
	}
	h.Check(t, r.s)
}

func retryIsDueAtItsTime(t *testing.T, r *rig) {
	r.register(started("h", edge.Idempotent))
	id := r.accept(Owe("1", "h", "k"))[0]
	c := r.claimOne(id)
	s, err := r.s.Settle(r.ctx, edge.Settlement{
		Execution: c.Fence, Token: c.Token, Outcome: edge.OutcomeRetry, Code: "again", DelayMS: 5000,
	})
	require.NoError(t, err)
	require.Equal(t, StartMS+int64(5000), s.DueMS)
	require.Equal(t, s.DueMS, r.target("h", "k").ReadyMS)
	r.pass(4999 * time.Millisecond)
	require.Empty(t, r.claim(1))
	r.pass(time.Millisecond)
	c = r.claimOne(id)
	s, err = r.s.Settle(r.ctx, edge.Settlement{
		Execution: c.Fence, Token: c.Token, Outcome: edge.OutcomeDeferred, Code: "not_now", DelayMS: 10,
	})
	require.NoError(t, err)
	require.Equal(t, r.clock.NowMS()+1000, s.DueMS, "deferred work is put off by a second at least")
	require.Equal(t, 1, r.delivery(id).Attempts, "deferred work is not charged")
}

// blockHead makes the head of h:k blocked for a configuration reason.
func (r *rig) blockHead(id edge.DeliveryID) {
	r.t.Helper()
	r.settle(r.claimOne(id), edge.OutcomeBlocked, "secret_missing")
}

func blockedHeadStallsAndIsSkipped(t *testing.T, r *rig) {
	r.register(started("h", edge.Once))
	ids := r.accept(Events("e", "h", "k", 2)...)
	r.blockHead(ids[0])
	tg := r.target("h", "k")
	require.Equal(t, edge.StallBlocked, tg.Stall)
	require.Equal(t, ids[0], tg.Stalled)
	require.Zero(t, tg.ReadyMS)
	require.Empty(t, r.claim(10))
	version := r.delivery(ids[0]).Version
	_, err := r.s.SkipTarget(r.ctx, tg.Target, version-1, "reason", "me")
	require.ErrorIs(t, err, edge.ErrConflict)
	_, err = r.s.SkipTarget(r.ctx, tg.Target, version, "", "me")
	require.ErrorIs(t, err, edge.ErrInvalid)
	_, err = r.s.ResumeTarget(r.ctx, tg.Target)
	require.ErrorIs(t, err, edge.ErrConflict)
	tg, err = r.s.SkipTarget(r.ctx, tg.Target, version, "reason", "me")
	require.NoError(t, err)
	require.Equal(t, edge.NoStall, tg.Stall)
	require.Equal(t, edge.Failed, r.delivery(ids[0]).State)
	r.claimOne(ids[1])
	_, err = r.s.SkipTarget(r.ctx, edge.Target{Handler: "h", Key: "none"}, 1, "reason", "me")
	require.ErrorIs(t, err, edge.ErrNotFound)
}

func heldHeadStallsAndIsSkipped(t *testing.T, r *rig) {
	r.register(started("h", edge.Once))
	ids := r.accept(Events("e", "h", "k", 2)...)
	r.bench.Hold(t, r.s, ids[0])
	tg := r.target("h", "k")
	require.Equal(t, edge.StallHeld, tg.Stall)
	require.Equal(t, ids[0], tg.Stalled)
	require.Empty(t, r.claim(10))
	_, err := r.s.SkipTarget(r.ctx, tg.Target, r.delivery(ids[0]).Version, "reason", "me")
	require.NoError(t, err)
	require.Equal(t, edge.Cancelled, r.delivery(ids[0]).State)
	r.claimOne(ids[1])
}

func halting(effect edge.Effect) edge.Registration {
	reg := started("h", effect)
	reg.Halt = true
	return reg
}

// failHead fails the head of h:k, which halts the line.
func (r *rig) failHead(id edge.DeliveryID) {
	r.t.Helper()
	r.settle(r.claimOne(id), edge.OutcomeFailed, "broken")
	tg := r.target("h", "k")
	require.Equal(r.t, edge.StallHalted, tg.Stall)
	require.Equal(r.t, id, tg.Stalled)
	require.Zero(r.t, tg.ReadyMS)
	require.Empty(r.t, r.claim(10))
}

func haltAndResume(t *testing.T, r *rig) {
	r.register(halting(edge.Idempotent))
	ids := r.accept(Events("e", "h", "k", 3)...)
	r.failHead(ids[0])
	tg, err := r.s.ResumeTarget(r.ctx, edge.Target{Handler: "h", Key: "k"})
	require.NoError(t, err)
	require.Equal(t, edge.NoStall, tg.Stall)
	r.failHead(ids[1])
	_, err = r.s.SkipTarget(r.ctx, tg.Target, 0, "", "")
	require.NoError(t, err, "a halted target is resumed by skip")
	r.claimOne(ids[2])
	_, err = r.s.ResumeTarget(r.ctx, tg.Target)
	require.ErrorIs(t, err, edge.ErrConflict)
}

func haltAndRedrive(t *testing.T, r *rig) {
	r.register(halting(edge.Idempotent))
	ids := r.accept(Events("e", "h", "k", 3)...)
	r.settle(r.claimOne(ids[0]), edge.OutcomeSucceeded, "ok")
	r.failHead(ids[1])
	d, err := r.s.Redrive(r.ctx, edge.Redrive{Delivery: ids[1]})
	require.NoError(t, err)
	require.Equal(t, r.delivery(ids[1]).Line, d.Line)
	require.Equal(t, edge.NoStall, r.target("h", "k").Stall)
	r.settle(r.claimOne(d.ID), edge.OutcomeSucceeded, "ok")
	r.claimOne(ids[2])
}

func onlySettleAndSpentBudgetsHalt(t *testing.T, r *rig) {
	reg := halting(edge.Once)
	reg.MaxLosses = 1
	r.register(reg)
	stall := func() edge.Stall { return r.target("h", "k").Stall }
	resume := func() {
		_, err := r.s.ResumeTarget(r.ctx, edge.Target{Handler: "h", Key: "k"})
		require.NoError(t, err)
	}
	ids := r.accept(Events("e", "h", "k", 7)...)

	c := r.claimOne(ids[0])
	_, err := r.s.Settle(r.ctx, edge.Settlement{Execution: c.Fence, Token: c.Token, Outcome: edge.OutcomeRetry, Code: "again", MaxAttempts: 1})
	require.NoError(t, err)
	require.Equal(t, edge.StallHalted, stall(), "a spent retry budget")
	resume()

	r.claimOne(ids[1])
	require.Len(t, r.lose(), 1)
	_, err = r.s.Resolve(r.ctx, edge.Resolution{Delivery: ids[1], Version: r.delivery(ids[1]).Version, As: edge.ResolveFailed, Reason: "no"})
	require.NoError(t, err)
	require.Equal(t, edge.NoStall, stall(), "resolve does not halt")

	_, err = r.s.Cancel(r.ctx, ids[2])
	require.NoError(t, err)
	require.Equal(t, edge.NoStall, stall(), "cancel does not halt")

	c = r.claimOne(ids[3])
	require.Len(t, r.lose(), 1)
	_, err = r.s.Settle(r.ctx, edge.Settlement{Execution: c.Fence, Token: c.Token, Outcome: edge.OutcomeFailed, Code: "broken"})
	require.NoError(t, err)
	require.Equal(t, edge.StallHalted, stall(), "a late settle is a settle")
	resume()

	reg.Effect = edge.Idempotent
	r.register(reg)
	r.claimOne(ids[4])
	require.Len(t, r.lose(), 1)
	require.Equal(t, edge.CodeBudgetExhausted, r.delivery(ids[4]).Code)
	require.Equal(t, edge.StallHalted, stall(), "spent losses")
	resume()

	c = r.claimOne(ids[5])
	_, err = r.s.Cancel(r.ctx, ids[5])
	require.NoError(t, err)
	_, err = r.s.Settle(r.ctx, edge.Settlement{Execution: c.Fence, Token: c.Token, Outcome: edge.OutcomeRetry, Code: "again", MaxAttempts: 1})
	require.NoError(t, err)
	require.Equal(t, edge.Cancelled, r.delivery(ids[5]).State)
	r.claimOne(ids[6])
}

func resolveRetryTakesThePlace(t *testing.T, r *rig) {
	r.register(started("h", edge.Once))
	ids := r.accept(Events("e", "h", "k", 3)...)
	c := r.claimOne(ids[0])
	require.Len(t, r.lose(), 1)
	d, err := r.s.Resolve(r.ctx, edge.Resolution{Delivery: ids[0], Version: r.delivery(ids[0]).Version, As: edge.ResolveRetry, Reason: "it did not happen"})
	require.NoError(t, err)
	require.Equal(t, ids[0], d.RedriveOf)
	require.Equal(t, ids[0], d.KeyOf)
	require.Equal(t, ids[0], d.Line)
	require.Equal(t, 2, d.Generation)
	require.Equal(t, edge.Failed, r.delivery(ids[0]).State)
	n := r.claimOne(d.ID)
	require.Equal(t, c.Key, n.Key, "the idempotency key stays")
	require.Greater(t, n.Fence, c.Fence)
	_, err = r.s.Settle(r.ctx, edge.Settlement{Execution: c.Fence, Token: c.Token, Outcome: edge.OutcomeSucceeded, Code: "late"})
	require.ErrorIs(t, err, edge.ErrLeaseLost, "a person has decided")
	r.settle(n, edge.OutcomeSucceeded, "ok")
	r.claimOne(ids[1])
}

func unorderedTargetsUseTheirSlots(t *testing.T, r *rig) {
	reg := started("h", edge.Once)
	reg.Slots = 3
	r.register(reg)
	ids := r.accept(Events("e", "h", "k", 5)...)
	cs := r.claim(10)
	require.Len(t, cs, 3)
	require.Equal(t, 3, r.target("h", "k").Busy)
	r.settle(cs[1], edge.OutcomeBlocked, "secret_missing")
	require.Equal(t, edge.NoStall, r.target("h", "k").Stall)
	next := r.claim(10)
	require.Len(t, next, 1)
	require.Equal(t, ids[3], next[0].Delivery)
	r.settle(cs[0], edge.OutcomeFailed, "broken")
	require.Len(t, r.claim(10), 1, "a failed one holds nobody")
}

func changedOrderWaitsForOldRows(t *testing.T, r *rig) {
	strict, loose := started("h", edge.Idempotent), started("h", edge.Idempotent)
	loose.Slots = 2
	r.register(strict)
	old := r.accept(Events("old", "h", "k", 2)...)
	c := r.claimOne(old[0])
	r.register(loose)
	fresh := r.accept(Events("new", "h", "k", 3)...)
	require.Equal(t, 2, r.target("h", "k").Slots)
	require.Empty(t, r.claim(10), "the old line goes on one by one")
	r.settle(c, edge.OutcomeSucceeded, "ok")
	r.settle(r.claimOne(old[1]), edge.OutcomeSucceeded, "ok")
	cs := r.claim(10)
	require.Len(t, cs, 2)
	require.Equal(t, fresh[0], cs[0].Delivery)

	r.register(strict)
	last := r.accept(Events("last", "h", "k", 1)...)
	for range 3 {
		require.NotEmpty(t, cs)
		r.settle(cs[0], edge.OutcomeSucceeded, "ok")
		cs = append(cs[1:], r.claim(10)...)
	}
	require.Len(t, cs, 1)
	require.Equal(t, last[0], cs[0].Delivery)
}

// placeOutlivesChangedOrder: what is tried again in its place keeps it, though
// the handler no longer asks for order.
func placeOutlivesChangedOrder(t *testing.T, r *rig) {
	strict, loose := started("h", edge.Once), started("h", edge.Once)
	loose.Slots = 2
	r.register(strict)
	ids := r.accept(Events("e", "h", "k", 3)...)
	r.settle(r.claimOne(ids[0]), edge.OutcomeIndeterminate, "unclear")
	r.register(loose)
	late := r.accept(Owe("late", "h", "k"))[0]
	again, err := r.s.Resolve(r.ctx, edge.Resolution{Delivery: ids[0], Version: r.delivery(ids[0]).Version, As: edge.ResolveRetry, Reason: "looked", By: "ann"})
	require.NoError(t, err)
	for _, id := range []edge.DeliveryID{again.ID, ids[1], ids[2], late} {
		r.settle(r.claimOne(id), edge.OutcomeSucceeded, "ok")
	}
}

// manyTargets accepts n events for the handler, each with a target of its own.
func (r *rig) manyTargets(prefix, handler string, n int) []edge.DeliveryID {
	var ids []edge.DeliveryID
	for i := range n {
		ids = append(ids, r.accept(Owe(fmt.Sprintf("%s-%d", prefix, i), handler, fmt.Sprintf("%s-%d", prefix, i)))...)
	}
	return ids
}

// inRetry brings n targets of the handler into retry, all due.
func (r *rig) inRetry(prefix, handler string, n int) {
	r.t.Helper()
	r.manyTargets(prefix, handler, n)
	for n > 0 {
		cs := r.claim(n)
		require.NotEmpty(r.t, cs)
		for _, c := range cs {
			r.settle(c, edge.OutcomeRetry, "again")
		}
		n -= len(cs)
	}
	r.pass(time.Second)
}

func countRetries(cs []edge.Claimed) (n int) {
	for _, c := range cs {
		if c.Retry {
			n++
		}
	}
	return n
}

func retriesGetAQuarterAndAtMostHalf(t *testing.T, r *rig) {
	reg := started("h", edge.Idempotent)
	reg.Limit = 10
	r.register(reg)
	r.inRetry("bad", "h", 20)
	r.manyTargets("good", "h", 20)
	cs := r.claim(100)
	require.Len(t, cs, 10)
	require.Equal(t, 5, countRetries(cs), "older retries get half and no more")

	r.pass(rigLease)
	for _, c := range cs {
		r.settle(c, edge.OutcomeSucceeded, "ok")
	}
	cs = r.claim(100)
	require.GreaterOrEqual(t, countRetries(cs), 3, "a quarter, rounded up")
	require.LessOrEqual(t, countRetries(cs), 5)
	for _, c := range cs {
		r.settle(c, edge.OutcomeSucceeded, "ok")
	}
	for cs = r.claim(100); len(cs) > 0; cs = r.claim(100) {
		for _, c := range cs {
			r.settle(c, edge.OutcomeSucceeded, "ok")
		}
	}
	r.inRetry("worse", "h", 12)
	require.Equal(t, 10, countRetries(r.claim(100)), "without first tries there is no cap")
}

func oneSlotAlternates(t *testing.T, r *rig) {
	reg := started("h", edge.Idempotent)
	reg.Limit = 1
	r.register(reg)
	r.inRetry("bad", "h", 3)
	r.manyTargets("good", "h", 3)
	var kinds []bool
	for range 6 {
		cs := r.claim(10)
		require.Len(t, cs, 1)
		kinds = append(kinds, cs[0].Retry)
		r.settle(cs[0], edge.OutcomeSucceeded, "ok")
	}
	for i := 1; i < len(kinds); i++ {
		require.NotEqual(t, kinds[i-1], kinds[i], "%v", kinds)
	}
}

func limitsHold(t *testing.T, r *rig) {
	a, b := started("a", edge.Idempotent), started("b", edge.Idempotent)
	a.Limit = 3
	require.NoError(t, r.s.Register(r.ctx, []edge.Registration{a, b}, 5, rigLease.Milliseconds()))
	r.manyTargets("a", "a", 10)
	cs := r.claim(100)
	require.Len(t, cs, 3)
	r.manyTargets("b", "b", 10)
	require.Len(t, r.claim(100), 2, "the limit of all")
	r.s.SetLimit("a", 4, 8)
	more := r.claim(100)
	require.Len(t, more, 3)
	r.settle(cs[0], edge.OutcomeSucceeded, "ok")
	require.Len(t, r.claim(1), 1)
	require.Empty(t, r.claim(100))
}

func rotationIsFair(t *testing.T, r *rig) {
	r.register(started("h", edge.Idempotent))
	r.accept(Events("huge", "h", "huge", 30)...)
	r.pass(time.Millisecond)
	for _, key := range []string{"a", "b", "c"} {
		r.accept(Events(key, "h", key, 3)...)
	}
	r.pass(time.Millisecond)
	served := map[string]int{}
	for range 12 {
		cs := r.claim(1)
		require.Len(t, cs, 1)
		served[cs[0].Target.Key]++
		r.pass(time.Millisecond)
		r.settle(cs[0], edge.OutcomeSucceeded, "ok")
	}
	require.Equal(t, map[string]int{"huge": 3, "a": 3, "b": 3, "c": 3}, served)
}

func handlersTakeTurns(t *testing.T, r *rig) {
	r.register(started("a", edge.Idempotent), started("z", edge.Idempotent))
	r.accept(Events("a", "a", "k", 6)...)
	r.accept(Events("z", "z", "k", 6)...)
	r.pass(time.Millisecond)
	served := map[string]int{}
	for range 6 {
		cs := r.claim(1)
		require.Len(t, cs, 1)
		served[cs[0].Target.Handler]++
		r.pass(time.Millisecond)
		r.settle(cs[0], edge.OutcomeSucceeded, "ok")
	}
	require.Equal(t, map[string]int{"a": 3, "z": 3}, served)
}
