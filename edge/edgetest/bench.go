package edgetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
)

// StartMS is the time at which the manual clocks of this package begin.
const StartMS = 1_700_000_000_000

// Bench is how a kind of store is put to the tests of this package.
type Bench struct {
	// Open opens an empty store on the clock. The returned reopen opens the
	// same state once more, as a new process does; the store before must have
	// been closed. All is closed with the test.
	Open func(t testing.TB, clock *edge.Clock) (s edge.Store, reopen func() edge.Store)
	// Hold makes a pending delivery held, as a policy that asks for consent
	// does at accept.
	Hold func(t testing.TB, s edge.Store, id edge.DeliveryID)
	// Consume writes the consumption of a delivery's event by its target.
	Consume func(t testing.TB, s edge.Store, id edge.DeliveryID)
}

// ModelBench is the bench of a [Model].
func ModelBench() Bench {
	model := func(s edge.Store) *Model { return s.(*Model) }
	return Bench{
		Open: func(t testing.TB, clock *edge.Clock) (edge.Store, func() edge.Store) {
			m := NewModel(clock)
			t.Cleanup(func() { require.NoError(t, m.Close()) })
			return m, func() edge.Store { return m.Open(clock) }
		},
		Hold: func(t testing.TB, s edge.Store, id edge.DeliveryID) {
			t.Helper()
			require.NoError(t, model(s).Hold(id))
		},
		Consume: func(t testing.TB, s edge.Store, id edge.DeliveryID) {
			t.Helper()
			d, err := s.Delivery(t.Context(), id)
			require.NoError(t, err)
			require.NoError(t, model(s).Consume(d.Event, d.Target))
		},
	}
}

// rig is a store under test with the verbs that tests are written in.
type rig struct {
	t      testing.TB
	ctx    context.Context
	bench  Bench
	clock  *edge.Clock
	s      edge.Store
	reopen func() edge.Store
}

func newRig(t testing.TB, b Bench) *rig {
	t.Helper()
	r := &rig{t: t, ctx: t.Context(), bench: b, clock: edge.ManualClock(StartMS)}
	r.s, r.reopen = b.Open(t, r.clock)
	return r
}

// restart closes the store and opens it again with the same handlers.
func (r *rig) restart(rs ...edge.Registration) {
	r.t.Helper()
	require.NoError(r.t, r.s.Close())
	r.s = r.reopen()
	r.register(rs...)
}

const rigLease = time.Minute

func (r *rig) register(rs ...edge.Registration) {
	r.t.Helper()
	require.NoError(r.t, r.s.Register(r.ctx, rs, 100, rigLease.Milliseconds()))
}

func (r *rig) pass(d time.Duration) { r.clock.Advance(d) }

// accept stores submissions and returns their first deliveries' ids.
func (r *rig) accept(subs ...edge.Submission) []edge.DeliveryID {
	r.t.Helper()
	as, err := r.s.Accept(r.ctx, subs)
	require.NoError(r.t, err)
	require.Len(r.t, as, len(subs))
	var ids []edge.DeliveryID
	for _, a := range as {
		require.NoError(r.t, a.Err)
		for _, d := range a.Deliveries {
			ids = append(ids, d.ID)
		}
	}
	return ids
}

func (r *rig) claim(n int) []edge.Claimed {
	r.t.Helper()
	cs, err := r.s.Claim(r.ctx, n)
	require.NoError(r.t, err)
	return cs
}

// claimOne claims and requires that it is this delivery.
func (r *rig) claimOne(id edge.DeliveryID) edge.Claimed {
	r.t.Helper()
	cs := r.claim(1)
	require.Len(r.t, cs, 1, "nothing was claimed, want delivery %d", id)
	require.Equal(r.t, id, cs[0].Delivery)
	return cs[0]
}

func (r *rig) start(c edge.Claimed) {
	r.t.Helper()
	state, err := r.s.Start(r.ctx, c.Fence, c.Token)
	require.NoError(r.t, err)
	require.Equal(r.t, edge.Running, state)
}

func (r *rig) settle(c edge.Claimed, o edge.Outcome, code string) edge.Settled {
	r.t.Helper()
	s, err := r.s.Settle(r.ctx, edge.Settlement{Execution: c.Fence, Token: c.Token, Outcome: o, Code: code})
	require.NoError(r.t, err)
	require.Equal(r.t, c.Delivery, s.Delivery)
	return s
}

// lose lets the leases of this owner run out and voids them.
func (r *rig) lose() []edge.Voided {
	r.t.Helper()
	r.pass(rigLease + time.Second)
	out, err := r.s.Renew(r.ctx, nil)
	require.NoError(r.t, err)
	return out.Voided
}

func (r *rig) delivery(id edge.DeliveryID) edge.Delivery {
	r.t.Helper()
	d, err := r.s.Delivery(r.ctx, id)
	require.NoError(r.t, err)
	return d
}

func (r *rig) target(handler, key string) edge.TargetInfo {
	r.t.Helper()
	ts, err := r.s.Targets(r.ctx, edge.TargetFilter{Handler: handler, Limit: 1000})
	require.NoError(r.t, err)
	for _, tg := range ts {
		if tg.Target.Key == key {
			return tg
		}
	}
	require.Failf(r.t, "no target", "%s:%s", handler, key)
	return edge.TargetInfo{}
}

// check ends every test.
func (r *rig) check() {
	r.t.Helper()
	CheckInvariants(r.t, r.s)
}
