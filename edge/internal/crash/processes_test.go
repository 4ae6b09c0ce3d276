package crash_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestP12_ASecondServeNamesTheHolder starts a second node on the file of one that
// works: it ends and names the process that holds the file, which goes on. When
// the holder is killed the other one starts at once, with nothing cleaned up.
func TestP12_ASecondServeNamesTheHolder(t *testing.T) {
	t.Parallel()
	first := newNode(t, "")
	second := nodeIn(t, first.dir, "m", false, "")
	holder, other := first, second
	var slowest time.Duration
	const rounds = 4
	var acked []sent
	for k := range rounds {
		holder.start() // what the one before left lies there still
		require.Empty(t, holder.lost(acked))
		acked = append(acked, holder.send("hook.x", "t", fmt.Sprint("e", k)))
		p := other.spawn()
		other.gone()
		slowest = max(slowest, time.Since(p.began))
		require.Positive(t, p.cmd.ProcessState.ExitCode())
		require.Contains(t, other.tail(), fmt.Sprint(holder.p.cmd.Process.Pid), "the holder is named")
		require.NotContains(t, other.tail(), "node started")
		acked = append(acked, holder.send("hook.x", "t", fmt.Sprint("f", k)))
		holder.kill()
		left, err := filepath.Glob(filepath.Join(first.dir, "d.db*lock*"))
		require.NoError(t, err)
		require.NotEmpty(t, left, "somebody cleaned up after the kill")
		holder, other = other, holder
		other.mu.Lock()
		other.log = nil // the pids of earlier rounds
		other.mu.Unlock()
		holder.mu.Lock()
		holder.log = nil
		holder.mu.Unlock()
	}
	holder.start()
	require.Empty(t, holder.lost(acked))
	holder.clean()
	t.Logf("second serve: %d refused, each named its holder, slowest end after %s (promised 1s); %d kills of the holder with nothing cleaned up", rounds, slowest.Round(time.Millisecond), rounds)
}

// TestP12_ProcessesTogether lets three processes work on one file at the same
// time while commands of the command line run beside them: each effect happens
// once, each command succeeds, and the file is sound.
func TestP12_ProcessesTogether(t *testing.T) {
	t.Parallel()
	const processes, onceEvery, targets = 3, 8, 24
	commands := number(t, "FENCEPOST_COMMANDS", 40)
	var tick atomic.Uint64
	r := newReceiver(t, func(done <-chan struct{}, _ arrival) int {
		within(done, time.Duration(5+tick.Add(1)%20)*time.Millisecond)
		return http.StatusNoContent
	})
	ledger := t.TempDir()
	rest := r.webhook(hook) + program(once, "mark", ledger, "concurrency = 2") + route(hook, "hook.*") + route(once, "once.*")
	dir, err := os.MkdirTemp("", "fp-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	var nodes []*node
	for i := range processes {
		n := nodeIn(t, dir, string(rune('a'+i)), true, rest)
		n.start()
		nodes = append(nodes, n)
	}
	ctx, stop := context.WithCancel(t.Context())
	var goes sync.WaitGroup
	t.Cleanup(func() { stop(); goes.Wait() })
	var mu sync.Mutex
	var acked []sent
	var faults []string
	token := nodes[0].token()
	for p, n := range nodes {
		goes.Go(func() {
			for place := 1; ctx.Err() == nil; place++ {
				kind := "hook.x"
				if place%onceEvery == 0 {
					kind = "once.x"
				}
				e := sent{source: fmt.Sprint("/", p), id: fmt.Sprint(place), kind: kind, subject: fmt.Sprint("t", (place+p)%targets), body: "{}", producer: fmt.Sprint(p), place: place}
				c, cancel := context.WithTimeout(context.Background(), hangGuard)
				err := postUntil(c, n.http, func() string { return *n.addr.Load() }, token, &e)
				cancel()
				mu.Lock()
				if err != nil {
					faults = append(faults, err.Error())
				} else {
					acked = append(acked, e)
				}
				mu.Unlock()
				within(ctx.Done(), 20*time.Millisecond)
			}
		})
	}
	lines := [][]string{
		{"status"}, {"deliveries", "--limit", "20"}, {"target", "list"}, {"check"}, {"handler", "list"},
		{"send", "--type", "hook.sent", "--subject", "t1", "--data", "{}"}, {"events", "--limit", "5"}, {"status", "--json", "--counters"},
	}
	sentByHand := 0
	for k := range commands {
		args := lines[k%len(lines)]
		nodes[k%processes].ok(args...)
		if args[0] == "send" {
			sentByHand++
		}
	}
	await(t, nodes[0], "enough events", func() bool { mu.Lock(); defer mu.Unlock(); return len(acked) >= 150 })
	stop()
	goes.Wait()
	nodes[0].drain()
	nodes[0].clean()
	require.Empty(t, faults)
	require.Empty(t, r.broken())
	require.Empty(t, nodes[1].lost(acked))

	arrivals := r.ledger(nil)
	keys, by := map[string]int{}, map[string]int{}
	for _, a := range arrivals {
		keys[a.key]++
		by[a.life]++
	}
	starts := map[string]int{}
	for _, l := range ledgers(t, ledger) {
		if l.Kind == "start" {
			starts[l.Key]++
		}
	}
	for key, k := range keys {
		require.Equal(t, 1, k, "effects of key %s", key)
	}
	for key, k := range starts {
		require.Equal(t, 1, k, "starts of key %s", key)
	}
	require.Equal(t, len(acked)+sentByHand, len(keys)+len(starts), "each event has its effect")
	together := overlapping(arrivals)
	t.Logf("processes together: %d events of %d producers, %d commands beside them and 0 errors; requests by process %v, %d began while another process had one open; 0 double effects, %d once starts",
		len(acked), processes, commands, by, together, len(starts))
	require.Len(t, by, processes, "a process did nothing")
	require.Positive(t, together, "the processes never worked at the same time")
	require.NotEmpty(t, starts)
}

// overlapping counts the requests that began while another process had one open.
func overlapping(arrivals []arrival) int {
	n := 0
	for i, a := range arrivals {
		for _, b := range arrivals[max(i-20, 0):i] {
			if b.life != a.life && b.ended.After(a.at) {
				n++
				break
			}
		}
	}
	return n
}
