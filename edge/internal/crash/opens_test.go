//go:build faults

package crash_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestR81_OpensOfTheDriverAlone watches who opens the database, its log and its
// shared memory while a node starts, works, answers every listing, makes a backup,
// checks itself and stops. A file that code of ours opened and closed would strip
// the locks of SQLite. SQLite opens with open(2), Go's library with openat(2).
func TestR81_OpensOfTheDriverAlone(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, always(http.StatusNoContent))
	n := newNode(t, r.webhook(hook)+route(hook, "hook.*"))
	n.start() // the file is made: under another name, before SQLite knows it
	n.stop()
	x := newTracer(t, n)
	x.with("open,openat,openat2,execve", nil)
	acked, _ := n.startAndPost("opens")
	require.NotEmpty(t, acked)
	for _, args := range [][]string{
		{"status"}, {"deliveries"}, {"events"}, {"target", "list"}, {"handler", "list"}, {"explain", "1"}, {"check", "--full"},
		{"backup", filepath.Join(n.dir, "copy.db")},
	} {
		n.ok(args...)
	}
	n.stop()
	calls, _ := x.read(t)
	db, wal := n.database()
	driver, ours := 0, 0
	for _, c := range calls {
		of := c.file == db || c.file == wal || c.file == db+"-shm"
		switch {
		case of && c.name == "open":
			driver++
		case of:
			t.Errorf("%s opens %s", c.name, c.file)
		case c.name == "openat" && strings.HasPrefix(c.file, n.dir):
			ours++
		}
	}
	t.Logf("%d opens of the database's files by SQLite, 0 by others; %d of other files of the node", driver, ours)
	require.Greater(t, driver, 3, "the driver's opens are seen")
	require.Positive(t, ours, "and those of Go's library")
}
