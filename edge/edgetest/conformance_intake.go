package edgetest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
)

// started is the registration of a handler that is claimed and started in one
// commit.
func started(name string, effect edge.Effect) edge.Registration {
	return edge.Registration{Name: name, Revision: "1", Effect: effect, Slots: 1, Limit: 50}
}

func acceptIsIdempotent(t *testing.T, r *rig) {
	r.register(started("h", edge.Idempotent))
	sub := Owe("1", "h", "k")
	first := r.accept(sub)
	c := r.claimOne(first[0])
	sub.Routes[0].Key = "elsewhere"
	as, err := r.s.Accept(r.ctx, []edge.Submission{sub, sub})
	require.NoError(t, err)
	for _, a := range as {
		require.NoError(t, a.Err)
		require.True(t, a.Existing)
		require.Equal(t, []edge.DeliveryRef{{ID: first[0], Target: edge.Target{Handler: "h", Key: "k"}, State: edge.Running}}, a.Deliveries)
	}
	r.settle(c, edge.OutcomeFailed, "no")
	_, err = r.s.Redrive(r.ctx, edge.Redrive{Delivery: first[0]})
	require.NoError(t, err)
	as, err = r.s.Accept(r.ctx, []edge.Submission{sub})
	require.NoError(t, err)
	require.Len(t, as[0].Deliveries, 1, "only the first generation")
	require.Equal(t, edge.Failed, as[0].Deliveries[0].State)
	for name, change := range map[string]func(*edge.Event){
		"type":    func(e *edge.Event) { e.Type += "x" },
		"subject": func(e *edge.Event) { e.Subject += "x" },
		"content": func(e *edge.Event) { e.ContentType += "x" },
		"data":    func(e *edge.Event) { e.Data = append([]byte("x"), e.Data...) },
	} {
		other := sub
		change(&other.Event)
		as, err = r.s.Accept(r.ctx, []edge.Submission{other})
		require.NoError(t, err, name)
		require.ErrorIs(t, as[0].Err, edge.ErrConflict, name)
	}
	timed := sub
	timed.Event.Time = "2026-01-31T08:00:00Z" // takes no part in the digest
	as, err = r.s.Accept(r.ctx, []edge.Submission{timed})
	require.NoError(t, err)
	require.True(t, as[0].Existing)
}

func acceptJudgesEachEventAlone(t *testing.T, r *rig) {
	r.register(started("h", edge.Idempotent))
	other := Owe("1", "h", "k")
	other.Event.Data = []byte("other")
	bad := Owe("", "h", "k")
	long := Owe("2", "h", strings.Repeat("k", edge.MaxNameBytes+1))
	long.Event.Subject = ""
	unrouted := edge.Submission{Event: NewEvent("3", "")}
	as, err := r.s.Accept(r.ctx, []edge.Submission{Owe("1", "h", "k"), other, bad, long, unrouted, Owe("4", "h", "k")})
	require.NoError(t, err)
	require.NoError(t, as[0].Err)
	require.ErrorIs(t, as[1].Err, edge.ErrConflict)
	require.ErrorIs(t, as[2].Err, edge.ErrInvalid)
	require.ErrorIs(t, as[3].Err, edge.ErrInvalid)
	require.NoError(t, as[4].Err)
	require.Empty(t, as[4].Deliveries)
	require.NoError(t, as[5].Err)
	require.Len(t, as[5].Deliveries, 1)
	e, err := r.s.Event(r.ctx, as[5].Event)
	require.NoError(t, err)
	want := NewEvent("4", "k")
	want.N, want.AcceptedMS = as[5].Event, StartMS
	require.Equal(t, want, e)
	ds, err := r.s.Deliveries(r.ctx, edge.DeliveryFilter{})
	require.NoError(t, err)
	require.Len(t, ds, 2)
}

func twoRoutesToOneTarget(t *testing.T, r *rig) {
	r.register(started("a", edge.Idempotent), started("b", edge.Idempotent))
	sub := Owe("1", "a", "k")
	sub.Routes = append(sub.Routes,
		edge.Routed{Route: "second", Handler: "a", Key: "k"},
		edge.Routed{Route: "third", Handler: "a", Key: "l"},
		edge.Routed{Route: "fourth", Handler: "b", Key: "k"},
	)
	ids := r.accept(sub)
	require.Len(t, ids, 3)
	require.Equal(t, "to-a", r.delivery(ids[0]).Route)
	require.Len(t, r.claim(10), 3)
}

func faulty(id string) edge.Submission {
	sub := Owe(id, "h", "k")
	sub.Routes[0].Fault = "the key expression failed"
	return sub
}

func routeErrorIsRerouted(t *testing.T, r *rig) {
	r.register(started("h", edge.Idempotent))
	broken := r.accept(faulty("1"))[0]
	sound := r.accept(Owe("2", "h", "k"))[0]
	d := r.delivery(broken)
	require.Equal(t, edge.Blocked, d.State)
	require.Equal(t, edge.CodeRouteError, d.Code)
	require.Equal(t, edge.Target{Handler: "h", Key: edge.RouteErrorKey}, d.Target)
	require.Equal(t, edge.NoStall, r.target("h", edge.RouteErrorKey).Stall, "it stalls nothing")

	d, err := r.s.Reroute(r.ctx, broken, edge.Routed{Route: "mended", Handler: "h", Key: "k", TTLMS: 5000})
	require.NoError(t, err)
	require.Equal(t, edge.Pending, d.State)
	require.Equal(t, edge.Target{Handler: "h", Key: "k"}, d.Target)
	require.Equal(t, "mended", d.Route)
	require.Equal(t, StartMS+int64(5000), d.ExpiresMS)
	require.True(t, d.Ordered)
	require.Greater(t, d.Line, r.delivery(sound).Line, "it joins the tail")
	later := r.accept(Owe("3", "h", "k"))[0]
	for _, id := range []edge.DeliveryID{sound, broken, later} {
		r.settle(r.claimOne(id), edge.OutcomeSucceeded, "ok")
	}
	_, err = r.s.Reroute(r.ctx, broken, edge.Routed{Route: "mended", Handler: "h", Key: "k"})
	require.ErrorIs(t, err, edge.ErrConflict)
}

func routeErrorIsNeverClaimed(t *testing.T, r *rig) {
	r.register(started("h", edge.Idempotent))
	id := r.accept(faulty("1"))[0]
	r.register(started("h", edge.Idempotent))
	require.Equal(t, edge.Blocked, r.delivery(id).State, "a new configuration of the handler does not mend a route")
	_, err := r.s.Resolve(r.ctx, edge.Resolution{Delivery: id, Version: r.delivery(id).Version, As: edge.ResolveRetry, Reason: "try"})
	require.ErrorIs(t, err, edge.ErrConflict)
	_, err = r.s.Resolve(r.ctx, edge.Resolution{Delivery: id, Version: r.delivery(id).Version, As: edge.ResolveFailed, Reason: "give up"})
	require.NoError(t, err)
	_, err = r.s.Redrive(r.ctx, edge.Redrive{Delivery: id})
	require.ErrorIs(t, err, edge.ErrConflict)
	require.Empty(t, r.claim(10))
	as, err := r.s.Accept(r.ctx, []edge.Submission{Owe("2", "h", edge.RouteErrorKey)})
	require.NoError(t, err)
	require.ErrorIs(t, as[0].Err, edge.ErrInvalid, "the key is reserved")
}

func rerouteToATargetThatHasIt(t *testing.T, r *rig) {
	r.register(started("h", edge.Idempotent))
	sub := faulty("1")
	sub.Routes = append(sub.Routes, edge.Routed{Route: "sound", Handler: "h", Key: "k"})
	ids := r.accept(sub)
	require.Len(t, ids, 2)
	d, err := r.s.Reroute(r.ctx, ids[0], edge.Routed{Route: "mended", Handler: "h", Key: "k"})
	require.NoError(t, err)
	require.Equal(t, edge.Cancelled, d.State)
	require.Equal(t, edge.CodeRouteReevaluated, d.Code)
	require.Len(t, r.claim(10), 1)
}
