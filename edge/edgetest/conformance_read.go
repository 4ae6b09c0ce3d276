package edgetest

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
)

func watchSeesCommitsInOrder(t *testing.T, r *rig) {
	r.register(started("h", edge.Idempotent))
	var mu sync.Mutex
	var seen []edge.Change
	r.s.Watch(func(cs []edge.Change) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, cs...)
	})
	look := func() []edge.Change {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen)
	}
	id := r.accept(Owe("1", "h", "k"))[0]
	require.Len(t, look(), 1, "before the call returns")
	c := r.claimOne(id)
	r.settle(c, edge.OutcomeRetry, "again")
	_, err := r.s.Cancel(r.ctx, id)
	require.NoError(t, err)
	cs := look()
	var states []edge.State
	for i, c := range cs {
		states = append(states, c.State)
		require.Equal(t, id, c.Delivery)
		require.Equal(t, edge.Target{Handler: "h", Key: "k"}, c.Target)
		if i > 0 {
			require.Equal(t, cs[i-1].Seq+1, c.Seq)
		}
	}
	require.Equal(t, []edge.State{edge.Pending, edge.Running, edge.Pending, edge.Cancelled}, states)
	require.Equal(t, c.Fence, cs[1].Execution)
	require.Equal(t, edge.OutcomeRetry, cs[2].Outcome)
	require.Equal(t, "again", cs[2].Code)
	require.Equal(t, 1, cs[2].Attempts)
	require.NotZero(t, cs[2].DueMS)
	r.s.Watch(nil)
	r.accept(Owe("2", "h", "k"))
	require.Len(t, look(), 4)
}

func dispatchDelivers(t *testing.T, r *rig) {
	r.register(started("h", edge.Idempotent))
	ctx, cancel := context.WithTimeout(r.ctx, guard)
	defer cancel()
	run, stop := context.WithCancel(ctx)
	claims := make(chan edge.Claimed, 100)
	ended := make(chan error, 1)
	go func() {
		ended <- r.s.Dispatch(run, func(cs []edge.Claimed) {
			for _, c := range cs {
				claims <- c
			}
		})
	}()
	next := func() edge.Claimed {
		t.Helper()
		select {
		case c := <-claims:
			return c
		case <-ctx.Done():
			require.Fail(t, "nothing was dispatched")
			return edge.Claimed{}
		}
	}
	for _, id := range r.accept(Events("e", "h", "k", 3)...) {
		c := next()
		require.Equal(t, id, c.Delivery)
		require.True(t, c.Started)
		require.ErrorIs(t, r.s.Dispatch(ctx, func([]edge.Claimed) {}), edge.ErrConflict, "one at a time")
		r.settle(c, edge.OutcomeSucceeded, "ok")
	}
	r.setGate(edge.GateOff, 0)
	id := r.accept(Owe("late", "h", "k"))[0]
	r.setGate(edge.GateOn, 0)
	require.Equal(t, id, next().Delivery)
	stop()
	require.NoError(t, <-ended)
	require.Empty(t, claims)
}

func pagesAreKeyset(t *testing.T, r *rig) {
	r.register(started("h", edge.Idempotent))
	ids := append(r.manyTargets("a", "h", 7), r.accept(Owe("other", "g", "k"))...)
	slices.Reverse(ids)
	var seen []edge.DeliveryID
	f := edge.DeliveryFilter{Limit: 3}
	for {
		page, err := r.s.Deliveries(r.ctx, f)
		require.NoError(t, err)
		if len(page) == 0 {
			break
		}
		for _, d := range page {
			seen = append(seen, d.ID)
		}
		f.Before = page[len(page)-1].ID
	}
	require.Equal(t, ids, seen, "newest first, each once")

	var targets []edge.Target
	tf := edge.TargetFilter{Limit: 3}
	for {
		page, err := r.s.Targets(r.ctx, tf)
		require.NoError(t, err)
		if len(page) == 0 {
			break
		}
		for _, tg := range page {
			targets = append(targets, tg.Target)
		}
		tf.After = page[len(page)-1].Target
	}
	require.Len(t, targets, 8)
	require.True(t, slices.IsSortedFunc(targets, func(a, b edge.Target) int {
		if before(b, a) {
			return 1
		}
		return -1
	}))
	at := edge.Target{Handler: "h", Key: "a-3"}
	c := r.claim(1)[0]
	for _, f := range []edge.DeliveryFilter{{Target: &at}, {State: edge.Running}, {Event: r.delivery(ids[0]).Event}, {Handler: "g"}} {
		page, err := r.s.Deliveries(r.ctx, f)
		require.NoError(t, err)
		require.Len(t, page, 1, "%+v", f)
	}
	r.settle(c, edge.OutcomeFailed, "broken")
	page, err := r.s.Deliveries(r.ctx, edge.DeliveryFilter{Code: "broken"})
	require.NoError(t, err)
	require.Len(t, page, 1)
	_, err = r.s.Deliveries(r.ctx, edge.DeliveryFilter{Limit: 1001})
	require.ErrorIs(t, err, edge.ErrInvalid)
	_, err = r.s.Delivery(r.ctx, 999)
	require.ErrorIs(t, err, edge.ErrNotFound)
	_, err = r.s.Event(r.ctx, 999)
	require.ErrorIs(t, err, edge.ErrNotFound)
	_, err = r.s.Executions(r.ctx, 999)
	require.ErrorIs(t, err, edge.ErrNotFound)
	_, err = r.s.Facts(r.ctx, 999)
	require.ErrorIs(t, err, edge.ErrNotFound)
}

func factsExplain(t *testing.T, r *rig) {
	r.register(started("h", edge.Idempotent))
	ids := r.accept(Events("e", "h", "k", 4)...)
	c := r.claimOne(ids[0])
	f, err := r.s.Facts(r.ctx, ids[3])
	require.NoError(t, err)
	require.NotNil(t, f.Head)
	require.Equal(t, ids[0], f.Head.ID)
	require.Equal(t, 3, f.Ahead)
	require.Equal(t, 1, f.Held)
	require.Nil(t, f.Last)
	require.NotNil(t, f.Lease)
	require.Equal(t, ids[0], f.Lease.Delivery)
	require.Zero(t, f.Lease.Token, "the token stays inside")
	f, err = r.s.Facts(r.ctx, ids[0])
	require.NoError(t, err)
	require.Nil(t, f.Head)
	require.Zero(t, f.Ahead)
	require.Equal(t, c.Fence, f.Last.ID)
	require.Equal(t, edge.Target{Handler: "h", Key: "k"}, f.Target.Target)
	require.Equal(t, edge.GateOn, f.Handler.Gate)
	r.settle(c, edge.OutcomeFailed, "broken")
	d, err := r.s.Redrive(r.ctx, edge.Redrive{Delivery: ids[0]})
	require.NoError(t, err)
	f, err = r.s.Facts(r.ctx, ids[0])
	require.NoError(t, err)
	require.Equal(t, d.ID, f.Newer)
	require.Nil(t, f.Lease)
}

// factsOfChangedOrder: an unordered delivery that waits for what is left of the
// line from before says so, and names its head.
func factsOfChangedOrder(t *testing.T, r *rig) {
	strict := started("h", edge.Once)
	r.register(strict)
	ids := r.accept(Events("e", "h", "k", 3)...)
	c := r.claimOne(ids[0])
	loose := started("h", edge.Once)
	loose.Slots = 4
	r.register(loose)
	late := r.accept(Owe("late", "h", "k"))[0]
	for _, state := range []edge.State{edge.Running, edge.Blocked} {
		f, err := r.s.Facts(r.ctx, late)
		require.NoError(t, err)
		require.False(t, f.Delivery.Ordered)
		require.NotNil(t, f.Head)
		require.Equal(t, ids[0], f.Head.ID)
		require.Equal(t, state, f.Head.State)
		require.Equal(t, 3, f.Ahead)
		if state == edge.Running {
			r.settle(c, edge.OutcomeIndeterminate, "unclear")
		}
	}
	f, err := r.s.Facts(r.ctx, ids[2])
	require.NoError(t, err)
	require.Equal(t, 2, f.Ahead, "the line itself goes by place")
}
