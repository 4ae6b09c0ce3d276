package sqlite_test

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"os"
	"strconv"
	"testing"
	"time"

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

// TestP9_DamageThatAStartLooksFor: the list of free pages, and the small tables. The
// start is refused with advice, and nothing is touched.
func TestP9_DamageThatAStartLooksFor(t *testing.T) {
	t.Parallel()
	// freed is a file with some hundred free pages, and where things are in it.
	freed := func(t *testing.T) (path string, rootOf func(string) int64) {
		path = dbPath(t)
		s, err := sqlite.Open(path, sqlite.Options{})
		require.NoError(t, err)
		require.NoError(t, s.Close())
		db := raw(t, path)
		exe(t, db, `CREATE TABLE filler (x)`)
		exe(t, db, `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000) INSERT INTO filler SELECT zeroblob(3000) FROM n`)
		exe(t, db, `DROP TABLE filler`)
		require.Greater(t, number(t, db, `PRAGMA freelist_count`), int64(2000))
		roots := map[string]int64{}
		for _, table := range []string{"sequences", "settings", "marks", "handlers"} {
			roots[table] = number(t, db, `SELECT rootpage FROM sqlite_schema WHERE name = ?`, table)
		}
		require.NoError(t, db.Close())
		return path, func(table string) int64 { return roots[table] }
	}
	at := func(t *testing.T, path string, offset int64, data []byte) {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		require.NoError(t, err)
		_, err = f.WriteAt(data, offset)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	firstTrunk := func(t *testing.T, path string) int64 {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		return (int64(binary.BigEndian.Uint32(data[32:])) - 1) * 4096
	}
	noise := make([]byte, 4096)
	_, _ = rand.Read(noise)
	for name, harm := range map[string]func(t *testing.T, path string, rootOf func(string) int64){
		"free pages counted wrong": func(t *testing.T, path string, _ func(string) int64) { at(t, path, 36, []byte{0, 0, 0, 9}) },
		"free list leads nowhere":  func(t *testing.T, path string, _ func(string) int64) { at(t, path, 32, []byte{0, 0xff, 0, 9}) },
		"free list is too long": func(t *testing.T, path string, _ func(string) int64) {
			at(t, path, firstTrunk(t, path)+4, []byte{0, 0, 9, 9})
		},
		"free list runs in a ring": func(t *testing.T, path string, _ func(string) int64) {
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			at(t, path, firstTrunk(t, path), data[32:36])
		},
		"a free page that is none": func(t *testing.T, path string, _ func(string) int64) {
			at(t, path, firstTrunk(t, path)+8, []byte{0xff, 0, 0, 9})
		},
		"random 4 KiB over sequences": func(t *testing.T, path string, rootOf func(string) int64) {
			at(t, path, (rootOf("sequences")-1)*4096, noise)
		},
		"random 4 KiB over settings": func(t *testing.T, path string, rootOf func(string) int64) {
			at(t, path, (rootOf("settings")-1)*4096, noise)
		},
		"random 4 KiB over marks": func(t *testing.T, path string, rootOf func(string) int64) {
			at(t, path, (rootOf("marks")-1)*4096, noise)
		},
		"random 4 KiB over handlers": func(t *testing.T, path string, rootOf func(string) int64) {
			at(t, path, (rootOf("handlers")-1)*4096, noise)
		},
		"zeros over the schema": func(t *testing.T, path string, _ func(string) int64) { at(t, path, 100, make([]byte, 200)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, rootOf := freed(t)
			harm(t, path, rootOf)
			before, err := os.ReadFile(path)
			require.NoError(t, err)
			_, err = sqlite.Open(path, sqlite.Options{})
			require.Error(t, err)
			require.True(t, errors.Is(err, edge.ErrStorage) || errors.Is(err, edge.ErrInvalid), err)
			require.ErrorContains(t, err, path)
			after, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, sha256.Sum256(before), sha256.Sum256(after), "byte-identical")
		})
	}
	path, _ := freed(t)
	s := openAt(t, path, sqlite.Options{})
	require.Nil(t, s.Hold(), "the control")
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

// TestP22_AStartDoesNotReadTheFile: what a start reads does not grow with the rows.
// FENCEPOST_ROWS makes a large file and holds the time against the promise (2 s).
func TestP22_AStartDoesNotReadTheFile(t *testing.T) {
	t.Parallel()
	rows, err := strconv.Atoi(getenv("FENCEPOST_ROWS", "20000"))
	require.NoError(t, err)
	path := skewed(t, rows)
	fi, err := os.Stat(path)
	require.NoError(t, err)
	from := time.Now()
	s, err := sqlite.Open(path, sqlite.Options{})
	took := time.Since(from)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	t.Logf("%d rows, %d MiB: opened in %s, promised 2 s", rows, fi.Size()>>20, took)
	if rows > 1_000_000 {
		require.Less(t, took, 2*time.Second)
	}
}
