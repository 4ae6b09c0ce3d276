package sqlite_test

import (
	"path/filepath"
	"testing"

	"fencepost/edge"
	"fencepost/edge/sqlite"

	"github.com/stretchr/testify/require"
)

// TestSharersAgreeOnTheConfiguration refuses a sharer whose configuration differs
// from that of a live one, and takes it when the other is gone.
func TestSharersAgreeOnTheConfiguration(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "shared.db")
	first, err := sqlite.Open(path, sqlite.Options{Share: true, Config: "a"})
	require.NoError(t, err)
	second, err := sqlite.Open(path, sqlite.Options{Share: true, Config: "a"})
	require.NoError(t, err)
	require.NoError(t, second.Close())

	_, err = sqlite.Open(path, sqlite.Options{Share: true, Config: "b"})
	require.ErrorIs(t, err, edge.ErrConflict)
	require.ErrorContains(t, err, first.Owner())

	require.NoError(t, first.Close())
	third, err := sqlite.Open(path, sqlite.Options{Share: true, Config: "b"})
	require.NoError(t, err)
	require.NoError(t, third.Close())
}
