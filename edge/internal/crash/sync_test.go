//go:build faults

package crash_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// exitStorage is the exit code of a node whose storage failed.
const exitStorage = 6

// TestP3_SyncErrors makes the Nth and every later sync of a thread fail, for N
// over the first syncs of a process. Each acknowledgement has a sync of its own
// that succeeded, after the failure nothing is acknowledged, the process ends with
// the exit code of a storage fault, and the next one knows every acknowledged
// event and goes on.
func TestP3_SyncErrors(t *testing.T) {
	t.Parallel()
	rng := seeded(t)
	points := number(t, "FENCEPOST_SYNCS", 10)
	n := newNode(t, "")
	x := newTracer(t, n)
	db, wal := n.database()
	n.start()
	n.stop()
	var acked []sent
	var slowest float64
	hits := map[string]int{} // by file: where the first failed sync was
	for i := range points {
		at := 1 + i*200/points + rng.IntN(max(200/points, 1))
		var files []string
		if i%5 == 4 { // those of checkpoints, which are few
			at, files = 1, []string{db}
		}
		x.with("fsync,fdatasync", files, fmt.Sprintf("fsync,fdatasync:error=EIO:when=%d+", at))
		part := n.sequence(fmt.Sprint("s", i), 20_000) // threads count apart, and the writer moves among them
		calls, ended := x.read(t)
		failures := fired(calls)
		require.NotEmpty(t, failures, "no sync was made to fail")
		require.Equal(t, exitStorage, n.p.cmd.ProcessState.ExitCode(), "after a failed sync of %s\n%s", failures[0].file, n.tail())
		require.Empty(t, n.panicked())
		if files == nil { // else the others were not written down
			require.LessOrEqual(t, len(part), synced(calls, wal, failures[0].at), "more was acknowledged than was synced")
		}
		slowest = max(slowest, ended-failures[0].at)
		hits[strings.TrimPrefix(failures[0].file, n.dir+"/")]++
		acked = append(acked, part...)
		x.with("", nil)
		n.start()
		require.Empty(t, n.lost(acked))
		n.clean()
		n.stop()
	}
	t.Logf("sync errors: %d points, first failures by file %v, %d events acknowledged, 0 lost; slowest from failure to end %.3f s (promised 1 s)", points, hits, len(acked), slowest)
	require.Positive(t, hits["d.db-wal"], "no commit's sync was made to fail")
	require.Positive(t, hits["d.db"], "no checkpoint's sync was made to fail")
	require.NotEmpty(t, acked)
	if points >= 200 {
		require.Less(t, slowest, 1.0)
	}
}

// TestControl_UnsyncedCommitsAreSeen shows that the count of TestP3_SyncErrors
// sees acknowledgements without a sync: it is right that durability "normal" makes them.
func TestControl_UnsyncedCommitsAreSeen(t *testing.T) {
	t.Parallel()
	n := newNode(t, "", `durability = "normal"`)
	x := newTracer(t, n)
	_, wal := n.database()
	x.with("fsync,fdatasync", nil)
	part := n.sequence("s", 200)
	require.Len(t, part, 200)
	n.stop()
	calls, ended := x.read(t)
	require.Less(t, synced(calls, wal, ended), len(part))
}

// synced counts the syncs of a file that succeeded before a moment.
func synced(calls []call, file string, before float64) int {
	k := 0
	for _, c := range calls {
		if c.file == file && !c.failed && c.at < before {
			k++
		}
	}
	return k
}

// sequence starts a process and posts events one after another until one is not
// acknowledged or most are. If one is not, it waits until the process is gone. It
// returns those that were acknowledged.
func (n *node) sequence(name string, most int) (acked []sent) {
	n.t.Helper()
	p := n.spawn()
	guard := time.NewTimer(hangGuard)
	defer guard.Stop()
	select {
	case <-p.done:
		return nil
	case addr := <-p.addr:
		n.addr.Store(&addr)
	case <-guard.C:
		n.t.Fatalf("%s neither starts nor ends\n%s", p.life, n.tail())
	}
	token := n.token()
	ctx, cancel := context.WithTimeout(context.Background(), hangGuard)
	defer cancel()
	for k := range most {
		e := sent{source: "/sequence", id: fmt.Sprint(name, "-", k), kind: "hook.x", subject: fmt.Sprint("t", k%5), body: "{}"}
		status, err := post(ctx, n.http, *n.addr.Load(), token, &e)
		if err != nil || status/100 != 2 {
			if err == nil {
				require.GreaterOrEqual(n.t, status, http.StatusInternalServerError, "a storage fault is not the client's")
			}
			n.gone()
			return acked
		}
		acked = append(acked, e)
	}
	return acked
}
