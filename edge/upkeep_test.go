package edge_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/edgetest"
)

// sweeping counts calls of Expire and Prune.
type sweeping struct {
	edge.Store
	expires, prunes atomic.Int64
}

func (s *sweeping) Expire(ctx context.Context, limit int) (edge.Swept, error) {
	s.expires.Add(1)
	return s.Store.Expire(ctx, limit)
}

func (s *sweeping) Prune(ctx context.Context, p edge.PrunePolicy) (edge.Swept, error) {
	s.prunes.Add(1)
	return s.Store.Prune(ctx, p)
}

func TestExpiryIsDrivenByTheNextDeadline(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := edgetest.NewModel(nil)
		store := &sweeping{Store: m}
		ttl := time.Hour
		e, err := edge.New(store, edge.Options{
			Router: edge.RouterFunc(func(*edge.Event) []edge.Routed {
				return []edge.Routed{{Route: "r", Handler: "gone", Key: "k", TTLMS: ttl.Milliseconds()}}
			}),
		})
		require.NoError(t, err)
		require.NoError(t, e.Start(t.Context()))
		accept := func(id string) edge.DeliveryID {
			a, err := e.Enqueue(t.Context(), edgetest.NewEvent(id, "k"))
			require.NoError(t, err)
			return a.Deliveries[0].ID
		}
		state := func(id edge.DeliveryID) edge.State {
			d, err := m.Delivery(t.Context(), id)
			require.NoError(t, err)
			return d.State
		}
		long := accept("long")
		ttl = time.Minute
		short := accept("short")
		time.Sleep(time.Minute - time.Millisecond)
		require.Equal(t, edge.Pending, state(short))
		time.Sleep(2 * time.Millisecond)
		require.Equal(t, edge.Expired, state(short))
		require.Equal(t, edge.Pending, state(long))
		time.Sleep(59 * time.Minute)
		require.Equal(t, edge.Expired, state(long))
		calls := store.expires.Load()
		require.LessOrEqual(t, calls, int64(4), "no polling")
		time.Sleep(23 * time.Hour)
		require.Equal(t, calls, store.expires.Load(), "nothing waits to expire")
		_, err = e.Stop(context.Background())
		require.NoError(t, err)
		edgetest.CheckInvariants(t, m)
	})
}

func TestExpiryTimeOfTheEvent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		script := edgetest.NewScript()
		b := newBench(t, only(handler("h", edge.Idempotent, script.Handle))).start()
		at := func(id, when string) (edge.Accepted, error) {
			ev := edgetest.NewEvent(id, "k")
			ev.Extensions = map[string]string{"expirytime": when}
			return b.Enqueue(t.Context(), ev)
		}
		now := time.Now().UTC()
		a, err := at("past", now.Add(-time.Second).Format(time.RFC3339))
		require.NoError(t, err, "an event that is too late is accepted")
		b.awaitNow(a.Deliveries[0].ID, edge.Expired)
		a, err = at("now", now.Format(time.RFC3339))
		require.NoError(t, err)
		b.awaitNow(a.Deliveries[0].ID, edge.Expired)
		require.Empty(t, script.Calls())
		require.Zero(t, time.Since(now))
		_, err = at("bad", "tomorrow")
		require.ErrorIs(t, err, edge.ErrInvalid)
		require.ErrorContains(t, err, "expirytime")
		a, err = at("future", now.Add(time.Second).Format(time.RFC3339))
		require.NoError(t, err)
		b.awaitNow(a.Deliveries[0].ID, edge.Succeeded)
		b.finish()
	})
}

func TestAWaitingRetryExpires(t *testing.T) {
	bubble(t, func(t *testing.T) {
		o := only(handler("h", edge.Idempotent, func(context.Context, *edge.Claim) edge.Result {
			time.Sleep(10 * time.Second) // past the deadline
			return edge.TryAgain("busy", "")
		}))
		o.Router = edge.RouterFunc(func(*edge.Event) []edge.Routed {
			return []edge.Routed{{Route: "r", Handler: "h", TTLMS: 5000}}
		})
		o.Handlers[0].Retry = edge.RetryPolicy{Base: time.Hour, Max: time.Hour}
		b := newBench(t, o).start()
		began := time.Now()
		b.awaitNow(b.enqueue("1", "k"), edge.Expired)
		require.InDelta(t, 10*time.Second, time.Since(began), float64(10*time.Millisecond), "never while it runs, and at once after it")
		b.finish()
	})
}

func TestPruningKeepsWhatItShould(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := edgetest.NewModel(nil)
		store := &sweeping{Store: m}
		e, err := edge.New(store, edge.Options{
			Handlers: []edge.HandlerSpec{handler("h", edge.Idempotent, edgetest.NewScript().Handle)},
			Router:   to("h"), Retention: edge.Retention{Succeeded: time.Hour, Dedupe: 24 * time.Hour},
		})
		require.NoError(t, err)
		require.NoError(t, e.Start(t.Context()))
		var evs []edge.Event
		for i := range 700 {
			evs = append(evs, edgetest.NewEvent(fmt.Sprint(i), "k"))
		}
		_, err = e.EnqueueBatch(t.Context(), evs)
		require.NoError(t, err)
		rows := func() int {
			ds, err := m.Deliveries(t.Context(), edge.DeliveryFilter{Limit: 1000})
			require.NoError(t, err)
			return len(ds)
		}
		time.Sleep(59 * time.Minute)
		require.Equal(t, 700, rows())
		time.Sleep(15 * time.Minute)
		require.Zero(t, rows(), "more than one step's worth")
		a, err := e.Enqueue(t.Context(), evs[3])
		require.NoError(t, err)
		require.True(t, a.Existing, "the identity outlives the delivery")
		time.Sleep(23 * time.Hour)
		a, err = e.Enqueue(t.Context(), evs[3])
		require.NoError(t, err)
		require.False(t, a.Existing)
		_, err = e.Stop(context.Background())
		require.NoError(t, err)
		require.Less(t, store.prunes.Load(), int64(1600))
		edgetest.CheckInvariants(t, m)
	})
}
