package edgetest

import (
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
)

// subject is the delivery that a trigger is tried on.
type subject struct {
	id    edge.DeliveryID
	claim edge.Claimed // its last execution, if any
	stale edge.Claimed // an earlier execution of it, which was lost
}

// tokenKind says what a fenced trigger presents.
type tokenKind string

const (
	rightToken  tokenKind = "right"
	staleToken  tokenKind = "stale"
	absentToken tokenKind = "absent"
	mixedToken  tokenKind = "mixed" // the right execution with the stale token
)

type key struct {
	kind      tokenKind
	execution edge.ExecutionID
	token     edge.Token
}

func (s subject) right() key { return s.token(rightToken) }

func (s subject) token(kind tokenKind) key {
	switch kind {
	case rightToken:
		return key{kind, s.claim.Fence, s.claim.Token}
	case staleToken:
		return key{kind, s.stale.Fence, s.stale.Token}
	case mixedToken:
		return key{kind, s.claim.Fence, s.stale.Token}
	}
	return key{kind, s.claim.Fence, 0}
}

// situation is a state of a delivery with what else decides about its moves.
type situation struct {
	name string
	make func(r *rig) subject
}

var situations = []situation{
	{"held", func(r *rig) subject {
		s := r.fresh(edge.Once)
		r.bench.Hold(r.t, r.s, s.id)
		return s
	}},
	{"pending", func(r *rig) subject { return r.fresh(edge.Once) }},
	{"pending, redriven", func(r *rig) subject { return r.redriven() }},
	{"pending, waiting", func(r *rig) subject {
		s := r.runningOnce()
		_, err := r.s.Settle(r.ctx, edge.Settlement{
			Execution: s.claim.Fence, Token: s.claim.Token, Outcome: edge.OutcomeRetry, Code: "first", DelayMS: time.Hour.Milliseconds(),
		})
		require.NoError(r.t, err)
		return s
	}},
	{"leased", func(r *rig) subject { return r.leased(edge.Once) }},
	{"leased, redriven", func(r *rig) subject {
		s := r.redriven()
		s.claim = r.claimOne(s.id)
		return s
	}},
	{"running once", func(r *rig) subject { return r.runningOnce() }},
	{"running idempotent", func(r *rig) subject { return r.running(edge.Idempotent) }},
	{"running once, cancel asked", func(r *rig) subject { return r.cancelling(r.runningOnce()) }},
	{"running idempotent, cancel asked", func(r *rig) subject { return r.cancelling(r.running(edge.Idempotent)) }},
	{"blocked, configuration", func(r *rig) subject {
		s := r.leased(edge.Once)
		_, err := r.s.Release(r.ctx, edge.Settlement{
			Execution: s.claim.Fence, Token: s.claim.Token, Outcome: edge.OutcomeBlocked, Code: "secret_missing",
		})
		require.NoError(r.t, err)
		return s
	}},
	{"blocked, configuration, cancel asked", func(r *rig) subject {
		s := r.cancelling(r.runningOnce())
		r.settle(s.claim, edge.OutcomeBlocked, "secret_missing")
		return s
	}},
	{"blocked, lost after start", func(r *rig) subject {
		s := r.runningOnce()
		require.Len(r.t, r.lose(), 1)
		return s
	}},
	{"blocked, outcome unknown", func(r *rig) subject {
		s := r.runningOnce()
		r.settle(s.claim, edge.OutcomeIndeterminate, "first")
		return s
	}},
	{"blocked, route error", func(r *rig) subject {
		r.registerOne(edge.Once)
		sub := Owe("route", "h", "")
		sub.Routes[0].Fault = "no such field"
		return subject{id: r.accept(sub)[0]}
	}},
	{"succeeded", func(r *rig) subject { return r.settled(edge.OutcomeSucceeded) }},
	{"failed", func(r *rig) subject { return r.settled(edge.OutcomeFailed) }},
	{"cancelled", func(r *rig) subject {
		s := r.leased(edge.Once)
		_, err := r.s.Cancel(r.ctx, s.id)
		require.NoError(r.t, err)
		return s
	}},
	{"expired", func(r *rig) subject {
		s := r.fresh(edge.Once)
		r.pass(situationTTL)
		out, err := r.s.Expire(r.ctx, 10)
		require.NoError(r.t, err)
		require.Equal(r.t, 1, out.Done)
		return s
	}},
}

func registration(effect edge.Effect) edge.Registration {
	return edge.Registration{Name: "h", Revision: "1", Effect: effect, Slots: 1, Limit: 4, Inspect: true}
}

func (r *rig) registerOne(effect edge.Effect) { r.register(registration(effect)) }

// fresh is a pending delivery that lives for situationTTL.
func (r *rig) fresh(effect edge.Effect) subject {
	r.registerOne(effect)
	sub := Owe("subject", "h", "k")
	sub.Routes[0].TTLMS = situationTTL.Milliseconds()
	return subject{id: r.accept(sub)[0]}
}

// leased is a delivery that lost one lease before it was claimed again.
func (r *rig) leased(effect edge.Effect) subject {
	s := r.fresh(effect)
	s.stale = r.claimOne(s.id)
	require.Len(r.t, r.lose(), 1)
	s.claim = r.claimOne(s.id)
	return s
}

func (r *rig) running(effect edge.Effect) subject {
	s := r.leased(effect)
	r.start(s.claim)
	return s
}

func (r *rig) runningOnce() subject { return r.running(edge.Once) }

func (r *rig) cancelling(s subject) subject {
	d, err := r.s.Cancel(r.ctx, s.id)
	require.NoError(r.t, err)
	require.Equal(r.t, edge.Running, d.State)
	return s
}

func (r *rig) settled(o edge.Outcome) subject {
	s := r.runningOnce()
	r.settle(s.claim, o, "first")
	return s
}

// redriven is the second generation of a delivery that failed.
func (r *rig) redriven() subject {
	s := r.settled(edge.OutcomeFailed)
	d, err := r.s.Redrive(r.ctx, edge.Redrive{Delivery: s.id})
	require.NoError(r.t, err)
	return subject{id: d.ID}
}
