package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/edgetest"
	"fencepost/edge/sqlite"
)

// storeBench puts the SQLite store, on a real file, to the tests of edgetest.
func storeBench() edgetest.Bench {
	return edgetest.Bench{
		Open: func(t testing.TB, clock *edge.Clock) (edge.Store, func() edge.Store) {
			path := filepath.Join(t.TempDir(), "fencepost.db")
			open := func() edge.Store {
				s, err := sqlite.Open(path, sqlite.Options{Clock: clock, Durability: sqlite.DurabilityNormal})
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, s.Close()) })
				return s
			}
			return open(), open
		},
		Hold: func(t testing.TB, s edge.Store, id edge.DeliveryID) {
			require.NoError(t, s.(*sqlite.Store).HoldForTest(t.Context(), id))
		},
		Consume: func(t testing.TB, s edge.Store, id edge.DeliveryID) {
			require.NoError(t, s.(*sqlite.Store).ConsumeForTest(t.Context(), id))
		},
	}
}

// TestTransitions tries every trigger in every situation of a delivery, with the
// right, a stale and an absent token, on a real file. The expectation was
// written by hand: see [edgetest.Exhaustive].
func TestTransitions(t *testing.T) {
	t.Parallel()
	edgetest.Exhaustive(t, storeBench())
}

// TestConformance runs the tests that every store must pass.
func TestConformance(t *testing.T) {
	t.Parallel()
	edgetest.Conformance(t, storeBench())
}
