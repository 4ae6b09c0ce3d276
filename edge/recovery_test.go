package edge_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/edgetest"
)

// crashed makes a store whose first owner died while it ran deliveries of a
// once handler, of an idempotent one, and claimed one that had not started.
func crashed(t *testing.T) (m *edgetest.Model, once, idem, claimed edge.DeliveryID) {
	t.Helper()
	first := edgetest.NewModel(nil)
	require.NoError(t, first.Register(t.Context(), []edge.Registration{
		{Name: "once", Effect: edge.Once, Slots: 1, Limit: 1},
		{Name: "idem", Effect: edge.Idempotent, Slots: 1, Limit: 1},
		{Name: "look", Effect: edge.Once, Slots: 1, Limit: 1, Inspect: true},
	}, 10, edge.DefaultLease.Milliseconds()))
	var ids []edge.DeliveryID
	for _, name := range []string{"once", "idem", "look"} {
		as, err := first.Accept(t.Context(), []edge.Submission{edgetest.Owe("e-"+name, name, "k"), edgetest.Owe("f-"+name, name, "k")})
		require.NoError(t, err)
		ids = append(ids, as[0].Deliveries[0].ID)
	}
	cs, err := first.Claim(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, cs, 3)
	first.Kill()
	return first.Open(nil), ids[0], ids[1], ids[2]
}

func crashedHandlers(script *edgetest.Script) edge.Options {
	ready := func(context.Context, *edge.Claim) edge.Inspection { return edge.Inspection{} }
	return edge.Options{Handlers: []edge.HandlerSpec{
		{Name: "once", Handler: script, Concurrency: 1},
		{Name: "idem", Handler: script, Effect: edge.Idempotent, Concurrency: 1},
		{Name: "look", Handler: inspecting{script.Handle, ready}, Concurrency: 1},
	}}
}

// R11: recovery comes before the first claim, so a limit of one holds over a
// crash.
func TestR11_RecoveryComesBeforeTheFirstClaim(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, once, idem, look := crashed(t)
		script := edgetest.NewScript()
		var killed []string
		o := crashedHandlers(script)
		o.KillOwner = func(_ context.Context, owner string) (int, error) {
			require.Empty(t, script.Calls(), "before anything is dispatched")
			killed = append(killed, owner)
			return 2, nil
		}
		b := benchOn(t, m, o).start()
		require.Len(t, killed, 1)
		require.Equal(t, edge.Recovery{Owners: 1, Killed: 2, InFlight: 2, NotStarted: 1, Retried: 2, Waiting: 1}, b.Status().Recovery)
		require.Equal(t, int64(3), b.Totals().Recovered)
		b.awaitNow(idem, edge.Succeeded)
		b.awaitNow(look, edge.Succeeded)
		d := b.awaitNow(once, edge.Blocked)
		require.Equal(t, edge.CodeLostAfterStart, d.Code)
		time.Sleep(time.Hour)
		for _, h := range []string{"once", "idem", "look"} {
			require.LessOrEqual(t, script.Most(edge.Target{Handler: h, Key: "k"}), 1)
		}
		for _, c := range script.Calls() {
			require.NotEqual(t, "once", c.Target.Handler, "the blocked head holds its line")
		}
		_, err := b.Resolve(t.Context(), edge.Resolution{Delivery: once, Version: d.Version, As: edge.ResolveSucceeded, Reason: "looked", By: "me"})
		require.NoError(t, err)
		require.NoError(t, b.tap.AwaitCount(t.Context(), edge.Succeeded, 6))
		b.finish()
	})
}

func TestAnOwnerWhoseProcessesStayIsLeftAndTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, _, idem, _ := crashed(t)
		tries := 0
		o := crashedHandlers(edgetest.NewScript())
		o.KillOwner = func(context.Context, string) (int, error) {
			if tries++; tries < 4 {
				return 0, errors.New("process 7 does not go")
			}
			return 1, nil
		}
		b := benchOn(t, m, o).start()
		require.Equal(t, edge.Recovery{Left: 1}, b.Status().Recovery)
		as, err := m.Accept(t.Context(), []edge.Submission{edgetest.Owe("new", "idem", "other")})
		require.NoError(t, err)
		b.awaitNow(as[0].Deliveries[0].ID, edge.Succeeded)
		d, err := m.Delivery(t.Context(), idem)
		require.NoError(t, err)
		require.Equal(t, edge.Running, d.State, "its leases are not touched meanwhile")
		began := time.Now()
		b.awaitNow(idem, edge.Succeeded)
		require.Equal(t, 15*time.Second, time.Since(began))
		time.Sleep(time.Hour)
		require.Equal(t, 4, tries, "the timer ends when nothing is left")
		require.Equal(t, edge.Recovery{Owners: 1, Killed: 1, InFlight: 2, NotStarted: 1, Retried: 2, Waiting: 1}, b.Status().Recovery)
		b.finish()
	})
}

func TestASharedStoreIsWatchedForDeadAndSilentOwners(t *testing.T) {
	for name, kill := range map[string]bool{"silent": false, "dead": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				m := edgetest.NewModel(nil)
				other := m.Open(nil)
				rs := []edge.Registration{{Name: "idem", Effect: edge.Idempotent, Slots: 1, Limit: 9}}
				require.NoError(t, other.Register(t.Context(), rs, 9, edge.DefaultLease.Milliseconds()))
				as, err := other.Accept(t.Context(), []edge.Submission{edgetest.Owe("1", "idem", "a")})
				require.NoError(t, err)
				cs, err := other.Claim(t.Context(), 1)
				require.NoError(t, err)
				require.Len(t, cs, 1)

				script := edgetest.NewScript()
				b := benchOn(t, m, edge.Options{Handlers: []edge.HandlerSpec{handler("idem", edge.Idempotent, script.Handle)}, Shared: true}).start()
				time.Sleep(30 * time.Second)
				require.Empty(t, script.Calls(), "its owner may be alive")
				want := 60 * time.Second
				if kill {
					other.Kill()
					want = 30 * time.Second
				}
				began := time.Now().Add(-30 * time.Second)
				b.awaitNow(as[0].Deliveries[0].ID, edge.Succeeded)
				require.InDelta(t, want, time.Since(began), float64(6*time.Second))
				b.finish()
			})
		})
	}
}

func TestRouteErrorsAreRoutedAgainAtTheStart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := edgetest.NewModel(nil)
		script := edgetest.NewScript()
		o := only(handler("h", edge.Idempotent, script.Handle))
		o.Router = edge.RouterFunc(func(e *edge.Event) []edge.Routed {
			return []edge.Routed{
				{Route: "bad", Handler: "h", Fault: "key: no such field"},
				{Route: "long", Handler: "h", Key: string(make([]byte, 513))},
			}
		})
		b := benchOn(t, m, o).start()
		for i := range 3 {
			a, err := b.Enqueue(t.Context(), edgetest.NewEvent(fmt.Sprint(i), "k"))
			require.NoError(t, err)
			require.Len(t, a.Deliveries, 2)
			for _, d := range a.Deliveries {
				require.Equal(t, edge.Blocked, d.State)
			}
		}
		b.finish()
		o.Router = edge.RouterFunc(func(e *edge.Event) []edge.Routed {
			if e.ID == "2" {
				panic("boom")
			}
			return []edge.Routed{{Route: "bad", Handler: "h", Key: "mended"}}
		})
		b = benchOn(t, m.Open(nil), o).start()
		require.NoError(t, b.tap.AwaitCount(t.Context(), edge.Succeeded, 2))
		ds, err := m.Deliveries(t.Context(), edge.DeliveryFilter{State: edge.Blocked})
		require.NoError(t, err)
		require.Len(t, ds, 4, "the route that is still missing, and the event on which the router fails")
		require.Equal(t, "mended", script.Calls()[0].Target.Key)
		n, err := b.Reroute(t.Context())
		require.NoError(t, err)
		require.Zero(t, n)
		b.finish()
	})
}

func TestARouterThatPanicsStoresNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		o := only(handler("h", edge.Idempotent, edgetest.NewScript().Handle))
		o.Router = edge.RouterFunc(func(*edge.Event) []edge.Routed { panic("boom") })
		b := newBench(t, o)
		_, err := b.Enqueue(t.Context(), edgetest.NewEvent("1", "k"))
		require.ErrorContains(t, err, "the router panicked")
		require.NotErrorIs(t, err, edge.ErrInvalid, "it is not the event's fault")
		_, err = b.model.Event(t.Context(), 1)
		require.ErrorIs(t, err, edge.ErrNotFound)
		b.finish()
	})
}
