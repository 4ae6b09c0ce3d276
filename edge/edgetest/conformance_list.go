package edgetest

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
)

// retryNowMakesItDue: a waiting retry is due at once, uncharged; its gate still
// holds it.
func retryNowMakesItDue(t *testing.T, r *rig) {
	r.register(started("h", edge.Idempotent))
	id := r.accept(Owe("1", "h", "k"))[0]
	c := r.claimOne(id)
	_, err := r.s.Settle(r.ctx, edge.Settlement{
		Execution: c.Fence, Token: c.Token, Outcome: edge.OutcomeRetry, Code: "http_503", DelayMS: time.Hour.Milliseconds(),
	})
	require.NoError(t, err)
	require.Empty(t, r.claim(10))
	before := r.delivery(id)
	d, err := r.s.RetryNow(r.ctx, id)
	require.NoError(t, err)
	require.Equal(t, r.clock.NowMS(), d.DueMS)
	require.Equal(t, before.Attempts, d.Attempts, "nothing is charged")
	require.Equal(t, "http_503", d.Code)
	require.Equal(t, before.Version+1, d.Version)
	again, err := r.s.RetryNow(r.ctx, id)
	require.NoError(t, err)
	require.Equal(t, d, again, "due already: nothing changes")
	r.setGate(edge.GateOff, 0)
	require.Empty(t, r.claim(10), "the gate holds it")
	r.setGate(edge.GateOn, 0)
	require.Equal(t, 2, r.claimOne(id).Attempt)
	_, err = r.s.RetryNow(r.ctx, 999)
	require.ErrorIs(t, err, edge.ErrNotFound)
}

// bulkIsGuarded: each item is done as it was seen or not at all.
func bulkIsGuarded(t *testing.T, r *rig) {
	r.register(started("h", edge.Idempotent))
	ids := r.accept(Events("e", "h", "k", 5)...)
	var items []edge.BulkItem
	for _, id := range ids {
		items = append(items, edge.BulkItem{Delivery: id, Version: r.delivery(id).Version})
	}
	moved, err := r.s.Cancel(r.ctx, ids[1])
	require.NoError(t, err)
	items = append(items, edge.BulkItem{Delivery: 999, Version: 1})
	rs, err := r.s.Bulk(r.ctx, edge.Bulk{Verb: edge.BulkCancel, Items: items})
	require.NoError(t, err)
	require.Len(t, rs, 6)
	for i, res := range rs {
		switch i {
		case 1:
			require.ErrorIs(t, res.Err, edge.ErrConflict)
			require.Equal(t, moved, r.delivery(ids[1]))
		case 5:
			require.ErrorIs(t, res.Err, edge.ErrNotFound)
		default:
			require.NoError(t, res.Err)
			require.Equal(t, edge.Cancelled, r.delivery(ids[i]).State)
		}
	}
	items = items[:0]
	for _, id := range ids {
		items = append(items, edge.BulkItem{Delivery: id, Version: r.delivery(id).Version})
	}
	for round, want := range []bool{true, false} { // the second time finds newer generations
		rs, err = r.s.Bulk(r.ctx, edge.Bulk{Verb: edge.BulkRedrive, Items: items})
		require.NoError(t, err)
		for i, res := range rs {
			require.Equal(t, want, res.Err == nil, "round %d: %v", round, res.Err)
			if want {
				require.Equal(t, ids[i], res.Delivery.RedriveOf)
			}
		}
	}
	c := r.claim(1)[0]
	_, err = r.s.Settle(r.ctx, edge.Settlement{
		Execution: c.Fence, Token: c.Token, Outcome: edge.OutcomeRetry, Code: "later", DelayMS: time.Hour.Milliseconds(),
	})
	require.NoError(t, err)
	rs, err = r.s.Bulk(r.ctx, edge.Bulk{Verb: edge.BulkRetryNow, Items: []edge.BulkItem{{Delivery: c.Delivery, Version: r.delivery(c.Delivery).Version}}})
	require.NoError(t, err)
	require.NoError(t, rs[0].Err)
	r.claimOne(c.Delivery)
	_, err = r.s.Bulk(r.ctx, edge.Bulk{Verb: "prune", Items: items})
	require.ErrorIs(t, err, edge.ErrInvalid)
	_, err = r.s.Bulk(r.ctx, edge.Bulk{Verb: edge.BulkCancel, Items: make([]edge.BulkItem, edge.MaxBulk+1)})
	require.ErrorIs(t, err, edge.ErrInvalid)
}

// listsFilter follows the cursors of each filter to the end.
func listsFilter(t *testing.T, r *rig) {
	r.register(started("h", edge.Idempotent), started("g", edge.Idempotent))
	var early, late []edge.DeliveryID
	early = r.accept(Events("a", "h", "k", 4)...)
	c := r.claimOne(early[0])
	early = append(early, r.accept(Owe("b", "g", "x"))...)
	r.pass(time.Second)
	since := r.clock.NowMS()
	special := Owe("c", "h", "k")
	special.Event.Type, special.Event.Source, special.Event.Subject = "other", "/other", "bob"
	late = append(r.accept(special), r.accept(Owe("d", "g", "y"))...)
	r.settle(c, edge.OutcomeFailed, "broken")
	again, err := r.s.Redrive(r.ctx, edge.Redrive{Delivery: early[0]})
	require.NoError(t, err)
	k := edge.Target{Handler: "h", Key: "k"}
	backward := func(ids ...edge.DeliveryID) []edge.DeliveryID {
		ids = slices.Clone(ids)
		slices.Reverse(ids)
		return ids
	}
	for name, w := range map[string]struct {
		f    edge.DeliveryFilter
		want []edge.DeliveryID
	}{
		"since":        {edge.DeliveryFilter{SinceMS: since}, []edge.DeliveryID{again.ID, late[1], late[0]}},
		"until":        {edge.DeliveryFilter{UntilMS: since}, backward(early...)},
		"type":         {edge.DeliveryFilter{Type: "other"}, late[:1]},
		"source":       {edge.DeliveryFilter{Source: "/other", Subject: "bob"}, late[:1]},
		"newest":       {edge.DeliveryFilter{Newest: true, Handler: "h"}, []edge.DeliveryID{again.ID, late[0], early[3], early[2], early[1]}},
		"failed":       {edge.DeliveryFilter{State: edge.Failed}, early[:1]},
		"failed again": {edge.DeliveryFilter{State: edge.Failed, Newest: true}, nil},
		"failed of g":  {edge.DeliveryFilter{State: edge.Failed, Handler: "g"}, nil},
		"line":         {edge.DeliveryFilter{State: edge.Pending, Target: &k}, []edge.DeliveryID{again.ID, late[0], early[3], early[2], early[1]}},
		"line, code":   {edge.DeliveryFilter{State: edge.Pending, Target: &k, Code: edge.CodeRedriven}, []edge.DeliveryID{again.ID}},
		"no target":    {edge.DeliveryFilter{Target: &edge.Target{Handler: "h", Key: "none"}}, nil},
	} {
		for _, limit := range []int{1, 2, 1000} {
			f := w.f
			f.Limit = limit
			var got []edge.DeliveryID
			for {
				page, err := r.s.ListDeliveries(r.ctx, f)
				require.NoError(t, err)
				for _, d := range page.Deliveries {
					got = append(got, d.ID)
				}
				if page.Next == 0 {
					break
				}
				f.Before = page.Next
			}
			require.Equal(t, w.want, got, "%s by %d", name, limit)
		}
	}
	listsEvents(t, r, since)
}

func listsEvents(t *testing.T, r *rig, since int64) {
	t.Helper()
	for name, w := range map[string]struct {
		f edge.EventFilter
		n int
	}{
		"all": {edge.EventFilter{}, 7}, "type": {edge.EventFilter{Type: "other"}, 1}, "since": {edge.EventFilter{SinceMS: since}, 2},
		"until": {edge.EventFilter{UntilMS: since}, 5}, "subject": {edge.EventFilter{Subject: "bob", Source: "/other"}, 1},
		"identity": {edge.EventFilter{Source: "/other", ID: "c"}, 1}, "nobody": {edge.EventFilter{Source: "/other", ID: "none"}, 0},
	} {
		f := w.f
		f.Limit = 2
		var got []edge.EventInfo
		for {
			page, err := r.s.ListEvents(r.ctx, f)
			require.NoError(t, err)
			got = append(got, page.Events...)
			if page.Next == 0 {
				break
			}
			f.Before = page.Next
		}
		require.Len(t, got, w.n, name)
		for _, x := range got {
			whole, err := r.s.Event(r.ctx, x.N)
			require.NoError(t, err)
			require.Equal(t, len(whole.Data), x.DataBytes)
			whole.Data = nil
			require.Equal(t, whole, x.Event)
			require.False(t, x.Pruned)
		}
	}
}

// backlogNamesTheWorst: what waits longest comes first, whatever holds it.
func backlogNamesTheWorst(t *testing.T, r *rig) {
	r.register(started("h", edge.Idempotent))
	stuck := r.accept(Owe("1", "h", "stuck"))[0]
	r.settle(r.claimOne(stuck), edge.OutcomeBlocked, "secret_missing")
	r.pass(time.Minute)
	lost := r.accept(faulty("0"))[0] // it stalls nothing, and waits for a person
	r.pass(time.Minute)
	busy := r.accept(Owe("2", "h", "busy"), Owe("3", "h", "busy"))
	r.claimOne(busy[0])
	r.pass(time.Minute)
	ready := r.accept(Owe("4", "h", "ready"))[0]
	b, err := r.s.Backlog(r.ctx, 10)
	require.NoError(t, err)
	require.Len(t, b.Worst, 4)
	for i, want := range []struct {
		key    string
		oldest edge.DeliveryID
		state  edge.State
	}{{"stuck", stuck, edge.Blocked}, {edge.RouteErrorKey, lost, edge.Blocked}, {"busy", busy[1], edge.Pending}, {"ready", ready, edge.Pending}} {
		require.Equal(t, want.key, b.Worst[i].Target.Target.Key)
		require.Equal(t, want.oldest, b.Worst[i].Oldest)
		require.Equal(t, want.state, b.Worst[i].State)
		require.Equal(t, r.delivery(want.oldest).AcceptedMS, b.Worst[i].OldestMS)
	}
	require.Equal(t, map[string]int{"h": 1}, b.InFlight)
	require.Zero(t, b.Finished)
	require.Equal(t, r.delivery(stuck).AcceptedMS, b.OldestEventMS)
	r.settle(r.claimOne(ready), edge.OutcomeSucceeded, "ok")
	b, err = r.s.Backlog(r.ctx, 1)
	require.NoError(t, err)
	require.Len(t, b.Worst, 1)
	require.Equal(t, 1, b.Finished)
	require.Less(t, b.SinceMS, r.clock.NowMS())
	open, err := r.s.ListTargets(r.ctx, edge.TargetFilter{OnlyOpen: true})
	require.NoError(t, err)
	require.Len(t, open.Targets, 3)
	held, err := r.s.ListTargets(r.ctx, edge.TargetFilter{Stall: edge.StallHeld})
	require.NoError(t, err)
	require.Empty(t, held.Targets)
	blocked, err := r.s.ListTargets(r.ctx, edge.TargetFilter{Stall: edge.StallBlocked, Limit: 1})
	require.NoError(t, err)
	require.Equal(t, blocked.Targets[0].Target, blocked.Next)
}
