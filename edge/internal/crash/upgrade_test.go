package crash_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"fencepost/edge"

	"github.com/stretchr/testify/require"
)

// TestR27_AnUpgradeOfALiveInstall starts the program on the database of each older
// schema, as a node of that time left it at a kill, with due retries
// (frain-dev/convoy#1811): they are tried, what waits for a person waits, and what may have
// begun once is not begun again.
func TestR27_AnUpgradeOfALiveInstall(t *testing.T) {
	t.Parallel()
	kept, err := filepath.Glob("../../sqlite/testdata/schemas/*.db.gz")
	require.NoError(t, err)
	require.NotEmpty(t, kept)
	var upgraded atomic.Int64
	t.Cleanup(func() { require.Positive(t, upgraded.Load()) })
	for _, file := range kept {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".db.gz"), func(t *testing.T) {
			t.Parallel()
			r := newReceiver(t, always(http.StatusNoContent))
			n := newNode(t, r.webhook("hook", "concurrency = 16")+r.webhook("see", `effect = "once"`)+r.webhook("pay", `effect = "once"`)+
				r.webhook("pool", `ordering = "none"`, "slots = 3"))
			unpackFixture(t, file, filepath.Join(n.dir, "d.db"))
			n.start()
			if len(n.logged("database and side file disagree: events are taken, nothing is dispatched until a person decides")) > 0 {
				require.Zero(t, r.count(nil), "of a schema with a side file, and without it")
				n.ok("accept-loss", "--reason", "the side file is not kept with it")
				require.Zero(t, r.count(nil))
				n.ok("resume", "--reason", "no other node has it")
			} else {
				require.NotEmpty(t, n.logged("the database was upgraded"))
				upgraded.Add(1)
			}
			await(t, n, "what can be done is done", func() bool {
				c := n.counters()
				return c["state.pending"]+c["state.leased"]+c["state.running"] == 0
			})
			again := r.ledger(func(a arrival) bool { return a.attempt > 1 })
			require.GreaterOrEqual(t, len(again), 6, "the retries that were due")
			for _, a := range again {
				d := n.delivery(a.delivery).Delivery
				require.Equal(t, edge.Succeeded, d.State)
				require.Equal(t, 1, d.Attempts, "what was charged before the upgrade")
			}
			lost := 0
			for _, d := range n.deliveries("--handler", "pay", "--state", "blocked") {
				if d.Code == edge.CodeLostAfterStart {
					lost++
				}
				require.Zero(t, r.count(func(a arrival) bool { return a.delivery == d.ID }), "it may have begun")
			}
			require.Positive(t, lost, "once work was under way")
			require.Empty(t, r.broken())
			n.clean()
		})
	}
}

func unpackFixture(t *testing.T, from, to string) {
	t.Helper()
	f, err := os.Open(from)
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	data, err := io.ReadAll(z)
	require.NoError(t, err)
	data[18], data[19] = 2, 2 // with a log, as nodes have it (sqlite.org/fileformat2.html 1.3.3)
	require.NoError(t, os.WriteFile(to, data, 0o600))
}
