package edge_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/edgetest"
)

func TestBatchesAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := quiet(t)
		_, err := b.EnqueueBatch(t.Context(), make([]edge.Event, edge.MaxBatchEvents+1))
		require.ErrorIs(t, err, edge.ErrInvalid)
		require.ErrorContains(t, err, "1001 events, the limit is 1000")
		var evs []edge.Event
		for i := range 5 {
			ev := edgetest.NewEvent(fmt.Sprint(i), "k")
			ev.Data = make([]byte, 1<<20)
			evs = append(evs, ev)
		}
		_, err = b.EnqueueBatch(t.Context(), evs)
		require.ErrorIs(t, err, edge.ErrInvalid)
		require.ErrorContains(t, err, "the limit is 4194304")
		as, err := b.EnqueueBatch(t.Context(), evs[:4])
		require.NoError(t, err)
		require.Len(t, as, 4)
		as, err = b.EnqueueBatch(t.Context(), nil)
		require.NoError(t, err)
		require.Empty(t, as)
		b.finish()
	})
}

func TestAnswersOfABatchKeepTheirPlaces(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := quiet(t)
		changed := edgetest.NewEvent("0", "k")
		changed.Data = []byte("other")
		_, err := b.Enqueue(t.Context(), edgetest.NewEvent("0", "k"))
		require.NoError(t, err)
		as, err := b.EnqueueBatch(t.Context(), []edge.Event{
			edgetest.NewEvent("", "k"), edgetest.NewEvent("1", "k"), changed, edgetest.NewEvent("0", "k"), {},
		})
		require.NoError(t, err)
		require.ErrorIs(t, as[0].Err, edge.ErrInvalid)
		require.NoError(t, as[1].Err)
		require.Len(t, as[1].Deliveries, 1)
		require.ErrorIs(t, as[2].Err, edge.ErrConflict)
		require.True(t, as[3].Existing)
		require.ErrorIs(t, as[4].Err, edge.ErrInvalid)
		_, err = b.Enqueue(t.Context(), changed)
		require.ErrorIs(t, err, edge.ErrConflict)
		b.finish()
	})
}

func TestAnEngineWithoutRouterStoresOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, edge.Options{}).start()
		ev := edgetest.NewEvent("1", "k")
		ev.N, ev.AcceptedMS, ev.Depth = 99, 99, 9 // not for callers to say
		a, err := b.Enqueue(t.Context(), ev)
		require.NoError(t, err)
		require.Empty(t, a.Deliveries)
		stored, err := b.model.Event(t.Context(), a.Event)
		require.NoError(t, err)
		require.Zero(t, stored.Depth)
		require.NotEqual(t, int64(99), stored.AcceptedMS)
		b.finish()
	})
}

// Ruling 5: a handler that the configuration no longer names keeps its work.
func TestARouteToAMissingHandlerWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, edge.Options{Router: to("later")}).start()
		id := b.enqueue("1", "k")
		b.finish()
		script := edgetest.NewScript()
		b = benchOn(t, b.model.Open(nil), only(handler("later", edge.Once, script.Handle))).start()
		b.awaitNow(id, edge.Succeeded)
		b.finish()
	})
}

func TestReroutingGoesThroughAllPages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 1201 // three pages
		fault := "no such field"
		o := only(handler("h", edge.Idempotent, edgetest.NewScript().Handle))
		o.Router = edge.RouterFunc(func(*edge.Event) []edge.Routed {
			return []edge.Routed{{Route: "r", Handler: "h", Key: "k", Fault: fault, TTLMS: 3_600_000}}
		})
		b := newBench(t, o)
		for from := 0; from < n; from += 400 {
			var evs []edge.Event
			for i := from; i < min(from+400, n); i++ {
				evs = append(evs, edgetest.NewEvent(fmt.Sprint(i), "k"))
			}
			_, err := b.EnqueueBatch(t.Context(), evs)
			require.NoError(t, err)
		}
		moved, err := b.Reroute(t.Context())
		require.NoError(t, err)
		require.Zero(t, moved)
		fault = ""
		moved, err = b.Reroute(t.Context())
		require.NoError(t, err)
		require.Equal(t, n, moved)
		b.model.FailNext("Deliveries", 1)
		_, err = b.Reroute(t.Context())
		require.ErrorIs(t, err, edge.ErrUnavailable)
		b.finish()
	})
}

func TestReroutingKeepsTheExpiryOfTheEvent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		fault := "no such field"
		script := edgetest.NewScript()
		o := only(handler("h", edge.Idempotent, script.Handle))
		o.Router = edge.RouterFunc(func(*edge.Event) []edge.Routed {
			return []edge.Routed{{Route: "r", Handler: "h", Key: "k", Fault: fault}}
		})
		b := newBench(t, o).start()
		ev := edgetest.NewEvent("1", "k")
		ev.Extensions = map[string]string{"expirytime": time.Now().Add(time.Minute).UTC().Format(time.RFC3339)}
		a, err := b.Enqueue(t.Context(), ev)
		require.NoError(t, err)
		time.Sleep(time.Hour)
		synctest.Wait() // what routes at the start has ended
		fault = ""
		moved, err := b.Reroute(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, moved)
		b.awaitNow(a.Deliveries[0].ID, edge.Expired)
		require.Empty(t, script.Calls(), "it is too late for it")
		b.finish()
	})
}
