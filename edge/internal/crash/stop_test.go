package crash_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fencepost/edge"

	"github.com/stretchr/testify/require"
)

// TestP19_Q14_GracefulStops stops a node under load with SIGTERM: after the
// signal nothing is claimed, the process is gone within the grace and a second
// even beside a command that ignores SIGTERM, and what was charged is what the
// receiver saw.
func TestP19_Q14_GracefulStops(t *testing.T) {
	t.Parallel()
	const (
		grace       = time.Second
		perStop     = 40
		targets     = 12
		maxAttempts = 3
	)
	stops := number(t, "FENCEPOST_STOPS", 10)
	ledger := t.TempDir()
	var tick atomic.Uint64
	var calm atomic.Bool // nothing hangs, and nothing fails by chance, any more
	r := newReceiver(t, func(done <-chan struct{}, a arrival) int {
		if strings.Contains(a.event, "hang") && a.tries == 1 && !calm.Load() {
			<-done // past the grace
			return 0
		}
		k := tick.Add(1) * 0x9E3779B97F4A7C15 >> 40
		within(done, time.Duration(5+k%25)*time.Millisecond)
		if k%5 == 0 && !calm.Load() || strings.Contains(a.event, "fail") {
			return http.StatusInternalServerError
		}
		return http.StatusNoContent
	})
	n := newNode(t, r.webhook(hook, "concurrency = 6", "retry_schedule_s = [1]", fmt.Sprint("max_attempts = ", maxAttempts))+
		program(once, "stubborn", ledger, "concurrency = 2")+
		route(hook, "hook.*")+route(once, "once.*"), "shutdown_grace_s = 1")
	var took []time.Duration
	signals := map[string]int64{} // when each owner was told to stop
	surplus, cut := 0, 0
	for k := 1; k <= stops; k++ {
		n.start()
		status := as[status](n, "status")
		for i := range perStop {
			what, target := "x", fmt.Sprint("t", i%targets)
			switch {
			case i < 2:
				what, target = "hang", fmt.Sprintf("hang%d-%d", k, i)
			case i == perStop-1:
				what, target = "fail", fmt.Sprint("fail", k)
			}
			n.sendOne("hook.x", target, fmt.Sprintf("%d-%s-%d", k, what, i))
		}
		n.sendOne("once.x", fmt.Sprint("s", k), fmt.Sprintf("%d-stubborn", k))
		await(t, n, "work of all kinds is under way", func() bool {
			mine := fmt.Sprint(k, "-")
			hanging := r.count(func(a arrival) bool {
				return a.event[:len(mine)] == mine && strings.Contains(a.event, "hang") && a.ended.IsZero()
			})
			return hanging >= 1 && noted(t, ledger, "ignores") == k && r.count(func(a arrival) bool { return a.life == n.p.life && a.status != 0 }) >= 3
		})
		waiting := n.counters()["state.pending"]
		signalMS := time.Now().UnixMilli()
		took = append(took, n.stop())
		summary := n.logged("engine stopped")
		require.Len(t, summary, 1)
		if k == 1 {
			t.Logf("summary: %s", summary[0].Summary)
		}
		require.Contains(t, summary[0].Summary, "of unknown outcome (a person must act)")
		if waiting > 0 {
			surplus++
		}
		signals[status.Owner] = signalMS
	}

	calm.Store(true)
	n.start()
	for _, d := range n.deliveries("--state", "blocked") {
		require.Equal(t, once, handlerOf(d), "%+v", d)
		require.Contains(t, []string{edge.CodeOutcomeUnknown, edge.CodeLostAfterStart}, d.Code)
		n.ok("resolve", d.ID, "--as", "failed", "--version", fmt.Sprint(d.Version), "--reason", "it never ends")
	}
	n.drain()
	n.clean()
	require.Empty(t, r.broken())

	starts, charged, dead := 0, 0, 0
	claims := map[string]int64{} // the last one of each owner, after its signal
	for _, d := range n.deliveries("--handler", hook) {
		began := 0
		for _, e := range n.delivery(d.ID).Executions {
			if at, stopped := signals[e.Owner]; stopped {
				claims[e.Owner] = max(claims[e.Owner], int64(e.ClaimedAt)-at)
			}
			if e.Outcome == edge.OutcomeInterrupted {
				cut++
			}
			if e.StartedAt != 0 && e.Outcome != edge.OutcomeDeferred { // deferred: its handler was not called
				began++
			}
		}
		arrived := r.count(func(a arrival) bool { return a.delivery == d.ID })
		require.Equal(t, arrived, began, "handler starts of %s", d.ID)
		refused := r.count(func(a arrival) bool { return a.delivery == d.ID && a.status/100 == 5 })
		require.Equal(t, refused, d.Attempts, "charged attempts of %s are its refused requests", d.ID)
		if d.State == edge.Failed {
			dead++
			require.Equal(t, maxAttempts, refused, "%s is dead before its last start", d.ID)
		}
		starts, charged = starts+began, charged+d.Attempts
	}
	require.Equal(t, stops, noted(t, ledger, "start"), "each stubborn command began once")
	require.Zero(t, noted(t, ledger, "end"))

	slices.Sort(took)
	lastClaims := slices.Sorted(maps.Values(claims))
	median := took[len(took)/2]
	t.Logf("graceful stops: %d, with surplus waiting at %d; %d starts, %d charged, %d cut uncharged, %d dead after exactly %d; stopped in median %s, worst %s (promised grace + 1s = %s); last claim %d ms after the signal at most, median %d ms (promised 100 ms)",
		stops, surplus, starts, charged, cut, dead, maxAttempts, median.Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond), grace+time.Second,
		lastClaims[len(lastClaims)-1], lastClaims[len(lastClaims)/2])
	require.Equal(t, stops, surplus, "a stop without surplus proves nothing")
	require.Positive(t, cut, "no stop cut a handler")
	require.Positive(t, dead)
	require.LessOrEqual(t, median, grace+time.Second)
	require.LessOrEqual(t, lastClaims[len(lastClaims)/2], int64(100))
	require.Less(t, lastClaims[len(lastClaims)-1], grace.Milliseconds(), "nothing is claimed while running work ends")
}
