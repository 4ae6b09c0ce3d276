package edgetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
)

func (r *rig) gate(handler string) edge.HandlerInfo {
	r.t.Helper()
	hs, err := r.s.Handlers(r.ctx)
	require.NoError(r.t, err)
	for _, h := range hs {
		if h.Name == handler {
			return h
		}
	}
	require.Failf(r.t, "no handler", "%q", handler)
	return edge.HandlerInfo{}
}

func (r *rig) setGate(g edge.Gate, resumeMS int64) {
	r.t.Helper()
	_, err := r.s.SetGate(r.ctx, "h", g, "testing", resumeMS)
	require.NoError(r.t, err)
}

func gatesAreTestedAtClaimAndStart(t *testing.T, r *rig) {
	r.register(registration(edge.Once))
	ids := r.accept(Owe("1", "h", "a"), Owe("2", "h", "b"))
	before := r.delivery(ids[1])
	c := r.claimOne(ids[0])
	r.setGate(edge.GateOff, 0)
	require.Empty(t, r.claim(10))
	_, err := r.s.Start(r.ctx, c.Fence, c.Token)
	require.ErrorIs(t, err, edge.ErrConflict)
	_, err = r.s.Release(r.ctx, edge.Settlement{Execution: c.Fence, Token: c.Token, Outcome: edge.OutcomeInterrupted, Code: edge.CodeGateClosed})
	require.NoError(t, err)
	require.Equal(t, before, r.delivery(ids[1]), "a gate changes no delivery")
	require.Equal(t, edge.GateOff, r.gate("h").Gate)

	r.setGate(edge.GatePaused, r.clock.NowMS()+5000)
	r.pass(4999 * time.Millisecond)
	require.Empty(t, r.claim(10))
	require.Equal(t, edge.GatePaused, r.gate("h").Gate)
	r.pass(time.Millisecond)
	paused := r.gate("h")
	require.Equal(t, edge.GateOn, paused.Gate, "a pause that is over is none")
	require.Empty(t, paused.GateCode)
	require.Zero(t, paused.ResumeMS)
	require.Len(t, r.claim(10), 2, "a pause ends by itself")

	r.setGate(edge.GateOff, 0)
	r.setGate(edge.GateOn, 0)
	_, err = r.s.SetGate(r.ctx, "h", edge.GateMissing, "", 0)
	require.ErrorIs(t, err, edge.ErrInvalid)
	_, err = r.s.SetGate(r.ctx, "nobody", edge.GateOn, "", 0)
	require.ErrorIs(t, err, edge.ErrNotFound)
}

func missingHandlerKeepsItsWork(t *testing.T, r *rig) {
	r.register(started("h", edge.Idempotent))
	id := r.accept(Owe("1", "h", "k"))[0]
	before := r.delivery(id)
	r.register(started("other", edge.Idempotent))
	require.Equal(t, edge.GateMissing, r.gate("h").Gate)
	require.Empty(t, r.claim(10))
	_, err := r.s.SetGate(r.ctx, "h", edge.GateOn, "", 0)
	require.NoError(t, err)
	require.Equal(t, edge.GateMissing, r.gate("h").Gate, "a missing handler stays missing")
	require.Empty(t, r.claim(10))
	unknown := r.accept(Owe("2", "never-seen", "k"))[0]
	require.Equal(t, edge.GateMissing, r.gate("never-seen").Gate)
	require.Equal(t, before, r.delivery(id))
	r.register(started("h", edge.Idempotent), started("never-seen", edge.Idempotent))
	require.Equal(t, edge.GateOn, r.gate("h").Gate)
	cs := r.claim(10)
	require.Len(t, cs, 2)
	require.ElementsMatch(t, []edge.DeliveryID{id, unknown}, []edge.DeliveryID{cs[0].Delivery, cs[1].Delivery})
}

func settleClosesTheGate(t *testing.T, r *rig) {
	r.register(started("h", edge.Idempotent))
	ids := r.accept(Events("e", "h", "k", 1)...)
	c := r.claimOne(ids[0])
	s, err := r.s.Settle(r.ctx, edge.Settlement{
		Execution: c.Fence, Token: c.Token, Outcome: edge.OutcomeDeferred, Code: edge.CodeEndpointGone,
		GateOff: true, GateCode: edge.CodeEndpointGone,
	})
	require.NoError(t, err)
	require.Equal(t, edge.Pending, s.State)
	require.Zero(t, r.delivery(ids[0]).Attempts, "it is not charged")
	require.Equal(t, edge.GateOff, r.gate("h").Gate)
	require.Equal(t, edge.CodeEndpointGone, r.gate("h").GateCode)
	r.pass(time.Hour)
	require.Empty(t, r.claim(1))
	r.setGate(edge.GateOn, 0)
	c = r.claimOne(ids[0])
	_, err = r.s.Settle(r.ctx, edge.Settlement{
		Execution: c.Fence, Token: c.Token, Outcome: edge.OutcomeRetry, Code: "too_many",
		PauseMS: 60_000, GateCode: edge.CodePausedByEndpoint,
	})
	require.NoError(t, err)
	require.Equal(t, edge.GatePaused, r.gate("h").Gate)
	r.pass(59_999 * time.Millisecond)
	require.Empty(t, r.claim(1))
	r.pass(time.Millisecond)
	r.claimOne(ids[0])
}

func settleAgainIsAnswered(t *testing.T, r *rig) {
	r.register(started("h", edge.Idempotent))
	id := r.accept(Owe("1", "h", "k"))[0]
	c := r.claimOne(id)
	s := edge.Settlement{Execution: c.Fence, Token: c.Token, Outcome: edge.OutcomeSucceeded, Code: "ok", Detail: "done"}
	first, err := r.s.Settle(r.ctx, s)
	require.NoError(t, err)
	require.False(t, first.Repeated)
	again, err := r.s.Settle(r.ctx, s)
	require.NoError(t, err)
	require.True(t, again.Repeated)
	require.Equal(t, first.State, again.State)
	require.Equal(t, first.Code, again.Code)
	for name, change := range map[string]func(*edge.Settlement){
		"outcome": func(s *edge.Settlement) { s.Outcome = edge.OutcomeFailed },
		"code":    func(s *edge.Settlement) { s.Code = "other" },
		"detail":  func(s *edge.Settlement) { s.Detail = "other" },
	} {
		other := s
		change(&other)
		_, err = r.s.Settle(r.ctx, other)
		require.ErrorIs(t, err, edge.ErrConflict, name)
	}
	_, err = r.s.Settle(r.ctx, edge.Settlement{Execution: c.Fence + 100, Token: c.Token, Outcome: edge.OutcomeSucceeded, Code: "ok"})
	require.Error(t, err)
	counters, err := r.s.Counters(r.ctx)
	require.NoError(t, err)
	require.EqualValues(t, 1, counters["final_succeeded"])
}

func lateOutcomeIsKept(t *testing.T, r *rig) {
	r.register(started("h", edge.Idempotent))
	id := r.accept(Owe("1", "h", "k"))[0]
	c := r.claimOne(id)
	require.Len(t, r.lose(), 1)
	_, err := r.s.Settle(r.ctx, edge.Settlement{Execution: c.Fence, Token: c.Token, Outcome: edge.OutcomeSucceeded, Code: "ok"})
	require.ErrorIs(t, err, edge.ErrLeaseLost)
	xs, err := r.s.Executions(r.ctx, id)
	require.NoError(t, err)
	require.Len(t, xs, 1)
	require.Equal(t, edge.OutcomeLost, xs[0].Outcome)
	require.Equal(t, edge.OutcomeSucceeded, xs[0].LateOutcome)
	require.Equal(t, edge.Pending, r.delivery(id).State)

	// With work that must not be repeated the late result decides, once.
	r.register(started("h", edge.Once))
	c = r.claimOne(id)
	require.Len(t, r.lose(), 1)
	require.Equal(t, edge.Blocked, r.delivery(id).State)
	_, err = r.s.Settle(r.ctx, edge.Settlement{Execution: c.Fence, Token: c.Token, Outcome: edge.OutcomeRetry, Code: "again"})
	require.ErrorIs(t, err, edge.ErrLeaseLost, "only succeeded and failed decide")
	s, err := r.s.Settle(r.ctx, edge.Settlement{Execution: c.Fence, Token: c.Token, Outcome: edge.OutcomeSucceeded, Code: "ok"})
	require.NoError(t, err)
	require.Equal(t, edge.Succeeded, s.State)
	require.Equal(t, edge.Succeeded, r.delivery(id).State)
	again, err := r.s.Settle(r.ctx, edge.Settlement{Execution: c.Fence, Token: c.Token, Outcome: edge.OutcomeSucceeded, Code: "ok"})
	require.NoError(t, err)
	require.True(t, again.Repeated)
	_, err = r.s.Settle(r.ctx, edge.Settlement{Execution: c.Fence, Token: c.Token, Outcome: edge.OutcomeFailed, Code: "ok"})
	require.Error(t, err)
	require.Equal(t, edge.Succeeded, r.delivery(id).State)
}

func releaseOfALostLeaseWritesNothing(t *testing.T, r *rig) {
	r.register(registration(edge.Once))
	id := r.accept(Owe("1", "h", "k"))[0]
	c := r.claimOne(id)
	require.Len(t, r.lose(), 1)
	before, err := r.s.Executions(r.ctx, id)
	require.NoError(t, err)
	_, err = r.s.Release(r.ctx, edge.Settlement{Execution: c.Fence, Token: c.Token, Outcome: edge.OutcomeInterrupted, Code: "late"})
	require.ErrorIs(t, err, edge.ErrLeaseLost)
	after, err := r.s.Executions(r.ctx, id)
	require.NoError(t, err)
	require.Equal(t, before, after)
	c = r.claimOne(id)
	_, err = r.s.Cancel(r.ctx, id)
	require.NoError(t, err)
	_, err = r.s.Release(r.ctx, edge.Settlement{Execution: c.Fence, Token: c.Token, Outcome: edge.OutcomeInterrupted, Code: "late"})
	require.ErrorIs(t, err, edge.ErrLeaseLost, "the lease went with the cancelled delivery")
}

func staleWorkerChangesNothing(t *testing.T, r *rig) {
	r.register(started("h", edge.Idempotent))
	id := r.accept(Owe("1", "h", "k"))[0]
	stale := r.claimOne(id)
	require.Len(t, r.lose(), 1)
	c := r.claimOne(id)
	require.Greater(t, c.Fence, stale.Fence)
	require.NotEqual(t, c.Token, stale.Token)
	before := r.look(id)
	for _, o := range []edge.Outcome{edge.OutcomeSucceeded, edge.OutcomeFailed, edge.OutcomeRetry} {
		_, err := r.s.Settle(r.ctx, edge.Settlement{Execution: stale.Fence, Token: stale.Token, Outcome: o, Code: "stale"})
		require.ErrorIs(t, err, edge.ErrLeaseLost)
		_, err = r.s.Settle(r.ctx, edge.Settlement{Execution: c.Fence, Token: stale.Token, Outcome: o, Code: "stale"})
		require.ErrorIs(t, err, edge.ErrLeaseLost)
	}
	out, err := r.s.Renew(r.ctx, []edge.Token{stale.Token, c.Token})
	require.NoError(t, err)
	require.Equal(t, []edge.Token{stale.Token}, out.Lost)
	require.Equal(t, before, r.look(id))
	r.settle(c, edge.OutcomeSucceeded, "ok")
}

func followUpsAreAllOrNothing(t *testing.T, r *rig) {
	r.register(started("h", edge.Transactional), started("next", edge.Idempotent))
	ids := r.accept(Owe("1", "h", "k"), Owe("2", "h", "k"), Owe("taken", "next", "k"))
	r.settle(r.claimNamed("next"), edge.OutcomeSucceeded, "ok")
	c := r.claimOne(ids[0])
	s, err := r.s.Settle(r.ctx, edge.Settlement{
		Execution: c.Fence, Token: c.Token, Outcome: edge.OutcomeSucceeded, Code: "ok",
		FollowUps: []edge.Submission{Owe("f1", "next", "k"), Owe("f2", "next", "k"), Owe("taken", "next", "k")},
	})
	require.NoError(t, err)
	require.Len(t, s.FollowUps, 3)
	require.True(t, s.FollowUps[2].Existing)
	require.Len(t, s.FollowUps[0].Deliveries, 1)

	c = r.claimOneOf("h")
	clash := Owe("taken", "next", "k")
	clash.Event.Data = []byte("other")
	s, err = r.s.Settle(r.ctx, edge.Settlement{
		Execution: c.Fence, Token: c.Token, Outcome: edge.OutcomeSucceeded, Code: "ok",
		FollowUps: []edge.Submission{Owe("f3", "next", "k"), clash},
	})
	require.NoError(t, err)
	require.Equal(t, edge.Failed, s.State)
	require.Equal(t, edge.CodeFollowUpRefused, s.Code)
	as, err := r.s.Accept(r.ctx, []edge.Submission{Owe("f3", "next", "k")})
	require.NoError(t, err)
	require.False(t, as[0].Existing, "none was accepted")
}

// claimNamed claims all that is due and returns the one of a handler; the
// others go back.
func (r *rig) claimNamed(handler string) edge.Claimed {
	r.t.Helper()
	var found edge.Claimed
	for _, c := range r.claim(100) {
		if c.Target.Handler == handler && found.Fence == 0 {
			found = c
			continue
		}
		r.settle(c, edge.OutcomeDeferred, "not_this")
	}
	require.NotZero(r.t, found.Fence, "nothing of %s was claimed", handler)
	r.pass(time.Second)
	return found
}

func (r *rig) claimOneOf(handler string) edge.Claimed {
	r.t.Helper()
	return r.claimNamed(handler)
}

func executionsAreBounded(t *testing.T, r *rig) {
	r.register(started("h", edge.Idempotent))
	id := r.accept(Owe("1", "h", "k"))[0]
	var fences []edge.ExecutionID
	for range 30 {
		c := r.claimOne(id)
		fences = append(fences, c.Fence)
		r.settle(c, edge.OutcomeRetry, "again")
		r.pass(time.Second)
	}
	xs, err := r.s.Executions(r.ctx, id)
	require.NoError(t, err)
	var kept []edge.ExecutionID
	for _, x := range xs {
		kept = append(kept, x.ID)
	}
	require.Equal(t, append(append([]edge.ExecutionID(nil), fences[:3]...), fences[10:]...), kept)
	require.Equal(t, 30, r.delivery(id).Executions)
	require.Equal(t, 30, r.delivery(id).Attempts)
}

func redriveMakesOneNewGeneration(t *testing.T, r *rig) {
	r.register(started("h", edge.Idempotent))
	sub := Owe("1", "h", "k")
	sub.Routes[0].TTLMS = 1_000_000
	ids := r.accept(sub, Owe("2", "h", "k"))
	c := r.claimOne(ids[0])
	_, err := r.s.Redrive(r.ctx, edge.Redrive{Delivery: ids[0]})
	require.ErrorIs(t, err, edge.ErrConflict)
	r.settle(c, edge.OutcomeFailed, "broken")
	d, err := r.s.Redrive(r.ctx, edge.Redrive{Delivery: ids[0]})
	require.NoError(t, err)
	require.Equal(t, 2, d.Generation)
	require.Equal(t, d.ID, d.Line, "it joins the tail")
	require.Equal(t, ids[0], d.KeyOf)
	require.Zero(t, d.ExpiresMS, "expiry is not inherited")
	require.Zero(t, d.Attempts)
	_, err = r.s.Redrive(r.ctx, edge.Redrive{Delivery: ids[0]})
	require.ErrorIs(t, err, edge.ErrConflict)
	require.ErrorContains(t, err, fmt.Sprint(d.ID), "it names the newer one")
	r.settle(r.claimOne(ids[1]), edge.OutcomeSucceeded, "ok")
	n := r.claimOne(d.ID)
	require.Equal(t, c.Key, n.Key)
	r.settle(n, edge.OutcomeFailed, "broken")
	d, err = r.s.Redrive(r.ctx, edge.Redrive{Delivery: d.ID, NewKey: true})
	require.NoError(t, err)
	require.Equal(t, d.ID, d.KeyOf)
	require.Equal(t, 3, d.Generation)
	require.NotEqual(t, c.Key, r.claimOne(d.ID).Key)
	_, err = r.s.Redrive(r.ctx, edge.Redrive{Delivery: 999})
	require.ErrorIs(t, err, edge.ErrNotFound)
}

func againIsInherited(t *testing.T, r *rig) {
	r.register(started("h", edge.Idempotent))
	id := r.accept(Owe("1", "h", "k"))[0]
	r.settle(r.claimOne(id), edge.OutcomeSucceeded, "ok")
	d, err := r.s.Redrive(r.ctx, edge.Redrive{Delivery: id, Again: true})
	require.NoError(t, err)
	require.True(t, d.Again)
	r.settle(r.claimOne(d.ID), edge.OutcomeFailed, "broken")
	d, err = r.s.Redrive(r.ctx, edge.Redrive{Delivery: d.ID})
	require.NoError(t, err)
	require.True(t, d.Again, "else it would be taken for consumed")
	r.settle(r.claimOne(d.ID), edge.OutcomeSucceeded, "ok")
}

func alreadyConsumedDoesNotStart(t *testing.T, r *rig) {
	r.register(started("h", edge.Idempotent))
	ids := r.accept(faulty("1"))
	d, err := r.s.Reroute(r.ctx, ids[0], edge.Routed{Route: "mended", Handler: "h", Key: "k"})
	require.NoError(t, err)
	r.bench.Consume(t, r.s, d.ID)
	require.Empty(t, r.claim(10))
	d = r.delivery(d.ID)
	require.Equal(t, edge.Succeeded, d.State)
	require.Equal(t, edge.CodeAlreadyConsumed, d.Code)
	require.Zero(t, d.Executions)
	require.Zero(t, d.FirstStartMS)
}
