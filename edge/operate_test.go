package edge_test

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/edgetest"
)

// What people do is in the log, with who and why; what was refused is not.
func TestOperatorActsAreLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer // the engine is not started: nothing else writes
	m := edgetest.NewModel(edge.ManualClock(1_800_000_000_000))
	o := edge.Options{
		Handlers: []edge.HandlerSpec{{Name: "h", Effect: edge.Once, Handler: edgetest.NewScript()}},
		Router: edge.RouterFunc(func(*edge.Event) []edge.Routed {
			return []edge.Routed{{Route: "r", Handler: "h", Fault: "no key"}}
		}),
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	}
	e, err := edge.New(m, o)
	require.NoError(t, err)
	a, err := e.Enqueue(t.Context(), edgetest.NewEvent("1", "k"))
	require.NoError(t, err)
	id := a.Deliveries[0].ID
	log.Reset()
	r := edge.Resolution{Delivery: id, Version: 99, As: edge.ResolveFailed, Reason: "not\nneeded, password=hunter2", By: "ann"}
	_, err = e.Resolve(t.Context(), r)
	require.ErrorIs(t, err, edge.ErrConflict)
	require.Empty(t, log.String())
	r.Version = 1
	_, err = e.Resolve(t.Context(), r)
	require.NoError(t, err)
	require.Contains(t, log.String(), "delivery resolved")
	require.Contains(t, log.String(), edge.FormatID(edge.KindDelivery, m.Node(), int64(id)))
	require.Contains(t, log.String(), `as=failed by=ann reason="not needed, password=***"`)
	_, err = e.SetGate(t.Context(), "h", edge.GateOff, edge.CodePausedByOperator, 0)
	require.NoError(t, err)
	require.Contains(t, log.String(), "gate set")
	_, err = e.Stop(t.Context())
	require.NoError(t, err)
}
