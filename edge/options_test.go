package edge_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/edgetest"
)

// Behaviours 49 and 50: wrong options and registrations fail at construction.
func TestNewRefusesWrongOptions(t *testing.T) {
	t.Parallel()
	ok := edgetest.NewScript()
	spec := func(f func(h *edge.HandlerSpec)) edge.Options {
		h := edge.HandlerSpec{Name: "h", Handler: ok}
		f(&h)
		return edge.Options{Handlers: []edge.HandlerSpec{h}}
	}
	for _, tc := range []struct {
		name string
		o    edge.Options
		want string
	}{
		{"no name", spec(func(h *edge.HandlerSpec) { h.Name = "" }), "Name: must be 1 to 64"},
		{"capital in name", spec(func(h *edge.HandlerSpec) { h.Name = "Hook" }), "Name: must be"},
		{"colon in name", spec(func(h *edge.HandlerSpec) { h.Name = "a:b" }), "Name: must be"},
		{"dash first", spec(func(h *edge.HandlerSpec) { h.Name = "-a" }), "Name: must be"},
		{"long name", spec(func(h *edge.HandlerSpec) { h.Name = strings.Repeat("a", 65) }), "Name: must be"},
		{"no handler", spec(func(h *edge.HandlerSpec) { h.Handler = nil }), "Handler: must be set"},
		{"unknown effect", spec(func(h *edge.HandlerSpec) { h.Effect = "maybe" }), `Effect: "maybe"`},
		{"halt without order", spec(func(h *edge.HandlerSpec) { h.HaltOnFailure, h.Slots = true, 2 }), "HaltOnFailure"},
		{"negative slots", spec(func(h *edge.HandlerSpec) { h.Slots = -1 }), "Slots: -1"},
		{"negative concurrency", spec(func(h *edge.HandlerSpec) { h.Concurrency = -1 }), "Concurrency: -1"},
		{"timeout without end", spec(func(h *edge.HandlerSpec) { h.Timeout = 25 * time.Hour }), "Timeout: 25h"},
		{"base above max", spec(func(h *edge.HandlerSpec) { h.Retry = edge.RetryPolicy{Base: 2, Max: 1} }), "Retry.Base"},
		{"zero in schedule", spec(func(h *edge.HandlerSpec) { h.Retry.Schedule = []time.Duration{1, 0} }), "Retry.Schedule[1]"},
		{"negative attempts", spec(func(h *edge.HandlerSpec) { h.Retry.MaxAttempts = -1 }), "Retry.MaxAttempts"},
		{"twice", edge.Options{Handlers: []edge.HandlerSpec{{Name: "h", Handler: ok}, {Name: "h", Handler: ok}}}, `Handlers[1] "h": the name is used twice`},
		{"short lease", edge.Options{Lease: 999 * time.Millisecond}, "Lease: 999ms"},
		{"long lease", edge.Options{Lease: 11 * time.Minute}, "Lease: 11m"},
		{"negative workers", edge.Options{Workers: -1}, "Workers: -1"},
		{"negative grace", edge.Options{ShutdownGrace: -1}, "ShutdownGrace"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := edge.New(edgetest.NewModel(nil), tc.o)
			require.ErrorIs(t, err, edge.ErrInvalid)
			require.ErrorContains(t, err, tc.want)
		})
	}
	_, err := edge.New(nil, edge.Options{})
	require.ErrorIs(t, err, edge.ErrInvalid)
}

func TestNewReportsAllFaultsAtOnce(t *testing.T) {
	t.Parallel()
	_, err := edge.New(edgetest.NewModel(nil), edge.Options{Workers: -1, Lease: 1, Handlers: []edge.HandlerSpec{{Name: "A"}}})
	for _, part := range []string{"Workers", "Lease", "Name", "Handler: must be set"} {
		require.ErrorContains(t, err, part)
	}
}

func TestNewRegistersTheHandlers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, only(handler("h", "", edgetest.NewScript().Handle)))
		hs, err := b.model.Handlers(t.Context())
		require.NoError(t, err)
		require.Len(t, hs, 1)
		require.Equal(t, edge.GateOn, hs[0].Gate)
		require.ErrorContains(t, b.Ready(), "not started", "an engine is inert until started")
		id := b.enqueue("1", "k")
		time.Sleep(time.Hour)
		require.Equal(t, edge.Pending, b.await(id, edge.Pending).State)
		b.start()
		require.NoError(t, b.Ready())
		require.ErrorIs(t, b.Start(t.Context()), edge.ErrConflict)
		b.await(id, edge.Succeeded)
		b.finish()
		require.ErrorIs(t, b.Ready(), edge.ErrClosed)
		require.ErrorIs(t, b.Start(t.Context()), edge.ErrClosed)
		_, err = b.Enqueue(t.Context(), edgetest.NewEvent("2", "k"))
		require.ErrorIs(t, err, edge.ErrClosed)
	})
}
