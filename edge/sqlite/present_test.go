package sqlite_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/sqlite"
)

// TestG1_NothingIsAcknowledgedIntoAFileThatIsGone takes the database or its log
// away from a store that works: SQLite alone would go on and lose all of it.
func TestG1_NothingIsAcknowledgedIntoAFileThatIsGone(t *testing.T) {
	t.Parallel()
	remove := func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) }
	replace := func(t *testing.T, path string) {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path+".copy", data, 0o600))
		require.NoError(t, os.Rename(path+".copy", path))
	}
	for name, c := range map[string]struct {
		suffix string
		harm   func(t *testing.T, path string)
		says   string
	}{
		"deleted":      {"", remove, "was deleted or moved while it was in use"},
		"replaced":     {"", replace, "was replaced while it was in use"},
		"emptied":      {"", func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 0)) }, "was emptied while it was in use"},
		"log deleted":  {"-wal", remove, "was deleted or moved while it was in use"},
		"log replaced": {"-wal", replace, "was replaced while it was in use"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := dbPath(t)
			s, err := sqlite.Open(path, sqlite.Options{})
			require.NoError(t, err)
			t.Cleanup(func() { _ = s.Close() })
			accept := func(id string) error {
				_, err := s.Accept(t.Context(), []edge.Submission{{Event: edge.Event{ID: id, Source: "/s", Type: "t"}}})
				return err
			}
			require.NoError(t, accept("1"))
			c.harm(t, path+c.suffix)
			err = accept("2")
			require.ErrorIs(t, err, edge.ErrStorage)
			require.ErrorContains(t, err, path+c.suffix)
			require.ErrorContains(t, err, c.says)
			require.ErrorIs(t, accept("3"), edge.ErrStorage)
			<-s.Failed()
		})
	}
}

// A file whose inside is damaged is told by its name and as a fault of the
// storage, not as a fault of our own.
func TestOpen_DamageNamesTheFile(t *testing.T) {
	t.Parallel()
	path := fresh(t)
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("XXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXX"), 100) // the root page of the schema
	require.NoError(t, err)
	require.NoError(t, f.Close())
	_, err = sqlite.Open(path, sqlite.Options{})
	require.ErrorIs(t, err, edge.ErrStorage)
	require.ErrorContains(t, err, path)
}
