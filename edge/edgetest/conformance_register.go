package edgetest

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
)

// A claim carries the declaration that it was made under, and ends by it though
// another one came meanwhile.
func claimsKeepTheirDeclaration(t *testing.T, r *rig) {
	declare := func(serial int64, revision string, effect edge.Effect) {
		reg := started("h", effect)
		reg.Serial, reg.Revision = serial, revision
		r.register(reg)
	}
	declare(1, "a", edge.Once)
	ids := r.accept(Owe("1", "h", "x"), Owe("2", "h", "y"), Owe("3", "h", "z"))
	old := r.claimOne(ids[0])
	require.Equal(t, int64(1), old.Serial)
	require.Equal(t, edge.Once, old.Effect)

	declare(2, "b", edge.Idempotent)
	fresh := r.claimOne(ids[1])
	require.Equal(t, int64(2), fresh.Serial)
	require.Equal(t, edge.Idempotent, fresh.Effect)

	require.Equal(t, edge.Blocked, r.settle(old, edge.OutcomeIndeterminate, "cut").State, "as it was declared at its claim")
	require.Equal(t, edge.Pending, r.settle(fresh, edge.OutcomeIndeterminate, "cut").State)
	xs, err := r.s.Executions(r.ctx, ids[0])
	require.NoError(t, err)
	require.Equal(t, "a", xs[0].Revision)
	require.Equal(t, edge.Once, xs[0].Effect)

	declare(3, "b", edge.Idempotent) // nothing but the serial
	require.Equal(t, int64(3), r.claimOne(ids[2]).Serial)
}

// Handlers come and go while work is claimed: what is blocked for a
// configuration reason comes back, a lost handler keeps its work, and its
// execution under way ends as usual.
func handlersComeAndGo(t *testing.T, r *rig) {
	a, b := started("a", edge.Idempotent), started("b", edge.Idempotent)
	r.register(a, b)
	ids := r.accept(Owe("1", "a", "x"), Owe("2", "b", "x"), Owe("3", "b", "x"))
	both := r.claim(10) // which handler is served first is open
	require.Len(t, both, 2)
	first, second := both[0], both[1]
	if first.Delivery != ids[0] {
		first, second = second, first
	}
	require.Equal(t, ids[:2], []edge.DeliveryID{first.Delivery, second.Delivery})
	r.settle(first, edge.OutcomeBlocked, "secret_missing")

	r.register(a)
	require.Equal(t, edge.GateMissing, r.gate("b").Gate)
	require.Equal(t, edge.Pending, r.delivery(ids[0]).State)
	require.Equal(t, edge.Succeeded, r.settle(second, edge.OutcomeSucceeded, "ok").State)
	r.settle(r.claimOne(ids[0]), edge.OutcomeSucceeded, "ok")
	require.Empty(t, r.claim(10))
	require.Equal(t, edge.Pending, r.delivery(ids[2]).State)

	r.register(a, b)
	require.Equal(t, edge.GateOn, r.gate("b").Gate)
	r.settle(r.claimOne(ids[2]), edge.OutcomeSucceeded, "ok")
}

// When Register returns, no claim of an earlier declaration is delivered any
// more. Declarations and claims go on until each has come between two of the
// other.
func registerWaitsForDeliveries(t *testing.T, r *rig) {
	reg := started("h", edge.Idempotent)
	reg.Serial, reg.Limit = 1, 100_000
	declare := func() error { return r.s.Register(r.ctx, []edge.Registration{reg}, 100_000, rigLease.Milliseconds()) }
	require.NoError(t, declare())
	var newest, stale, serials, delivered atomic.Int64
	last := int64(0) // of the deliveries alone
	newest.Store(1)
	run, stop := context.WithCancel(r.ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- r.s.Dispatch(run, func(cs []edge.Claimed) {
			floor := newest.Load()
			for _, c := range cs {
				if c.Serial < floor {
					stale.Add(1)
				}
				if c.Serial != last {
					last = c.Serial
					serials.Add(1)
				}
			}
			delivered.Add(int64(len(cs)))
		})
	}()
	const between, most = 5, 20_000
	var accepting sync.WaitGroup
	accepted := int64(0)
	accepting.Go(func() {
		for ; accepted < most && serials.Load() < between; accepted++ {
			id := strconv.FormatInt(accepted, 10)
			if _, err := r.s.Accept(r.ctx, []edge.Submission{Owe(id, "h", id)}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for reg.Serial < most && serials.Load() < between {
		reg.Serial++
		if err := declare(); err != nil {
			t.Error(err)
			break
		}
		newest.Store(reg.Serial)
	}
	accepting.Wait()
	stop()
	require.NoError(t, <-ended)
	require.Zero(t, stale.Load())
	require.GreaterOrEqual(t, serials.Load(), int64(between), "%d declarations and %d events", reg.Serial, accepted)
	for _, c := range r.claim(most) { // what the end of Dispatch left
		require.Equal(t, reg.Serial, c.Serial)
		delivered.Add(1)
	}
	require.Equal(t, accepted, delivered.Load())
}
