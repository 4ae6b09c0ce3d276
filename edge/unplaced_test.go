package edge_test

import (
	"bytes"
	"crypto/sha256"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/edgetest"
)

// What no route can place is blocked from the beginning: no execution tells of it,
// so the log does, once, however the event came.
func TestUnplacedDeliveriesAreLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer // the engine is not started: nothing else writes
	m := edgetest.NewModel(edge.ManualClock(1_800_000_000_000))
	o := only(handler("h", edge.Idempotent, edgetest.NewScript().Handle))
	o.Router = edge.RouterFunc(func(*edge.Event) []edge.Routed {
		return []edge.Routed{{Route: "fine", Handler: "h", Key: "k"}, {Route: "orders", Handler: "h", Fault: "key: data.till is missing"}}
	})
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	e, err := edge.New(m, o)
	require.NoError(t, err)
	const line = `level=ERROR msg="delivery blocked: its route failed on the event"`
	a, err := e.Enqueue(t.Context(), edgetest.NewEvent("1", "k"))
	require.NoError(t, err)
	require.Len(t, a.Deliveries, 2)
	require.Equal(t, 1, strings.Count(log.String(), line), log.String())
	require.Contains(t, log.String(), "delivery="+edge.FormatID(edge.KindDelivery, m.Node(), int64(a.Deliveries[1].ID)))
	require.Contains(t, log.String(), `handler=h route=orders code=route_error fault="key: data.till is missing"`)
	again, err := e.Enqueue(t.Context(), edgetest.NewEvent("1", "k"))
	require.NoError(t, err)
	require.True(t, again.Existing)
	key := edge.RequestKey{Key: sha256.Sum256([]byte("k"))}
	for range 2 {
		_, err = e.EnqueueOnce(t.Context(), key, []edge.Event{edgetest.NewEvent("2", "k")})
		require.NoError(t, err)
	}
	require.Equal(t, 2, strings.Count(log.String(), line), "repeating tells nothing again")
	_, err = e.Stop(t.Context())
	require.NoError(t, err)
}
