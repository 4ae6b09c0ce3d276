package crash_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"fencepost/edge"

	"github.com/stretchr/testify/require"
)

// port is the port of the receiver.
func (r *receiver) port() string {
	_, port, _ := net.SplitHostPort(r.server.Listener.Addr().String())
	return port
}

// TestR29_AFailureOfDNSIsTriedAgain gives a webhook a name that does not resolve
// (hookdeck/outpost#314). It is tried again, each try is recorded, and when the
// name leads somewhere the event arrives.
func TestR29_AFailureOfDNSIsTriedAgain(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, always(http.StatusNoContent))
	good := r.webhook(hook, "retry_schedule_s = [1]") + route(hook, "hook.*")
	bad := strings.Replace(good, "127.0.0.1:"+r.port(), "receiver.invalid:"+r.port(), 1) // RFC 6761 6.4: never resolves
	require.NotEqual(t, good, bad)
	n := newNode(t, bad)
	n.start()
	id := n.sendOne("hook.x", "t", "e")
	await(t, n, "it has failed twice", func() bool { return n.delivery(id).Delivery.Attempts >= 2 })
	n.configure(good)
	n.ok("reload")
	n.awaitState(id, edge.Succeeded)
	x := n.delivery(id)
	require.Greater(t, len(x.Executions), 2)
	for _, e := range x.Executions[:2] {
		require.Equal(t, edge.OutcomeRetry, e.Outcome)
		require.Equal(t, "dns_failed", e.Code)
	}
	require.Equal(t, 1, r.count(nil))
	n.clean()
}

// TestR31_R32_TheDelayIsKeptAndCountsFromTheEnd has an endpoint that takes longer
// to refuse than the delay is (riverqueue/river#74, #105). The next try is due one
// delay after the end of the last one, with up to a tenth more, and is not made before.
func TestR31_R32_TheDelayIsKeptAndCountsFromTheEnd(t *testing.T) {
	t.Parallel()
	const delay, takes, tries = 1000, 1500 * time.Millisecond, 4
	r := newReceiver(t, func(done <-chan struct{}, _ arrival) int {
		if within(done, takes) {
			return 0
		}
		return http.StatusInternalServerError
	})
	n := newNode(t, r.webhook(hook, "retry_schedule_s = [1]", fmt.Sprint("max_attempts = ", tries))+route(hook, "hook.*"))
	n.start()
	id := n.sendOne("hook.x", "t", "e")
	seen := map[int]int64{} // by attempts made: how long after the end of the last one the next is due
	await(t, n, "all tries are made", func() bool {
		x := n.delivery(id)
		// The executions are read a moment later: the next one may have begun.
		if k := x.Delivery.Attempts; x.Delivery.State == edge.Pending && k > 0 && x.Executions[k-1].EndedAt > 0 {
			seen[k] = int64(x.Delivery.DueAt) - int64(x.Executions[k-1].EndedAt)
		}
		return x.Delivery.State == edge.Failed
	})
	require.NotEmpty(t, seen)
	for attempt, after := range seen {
		require.GreaterOrEqual(t, after, int64(delay), "after attempt %d", attempt)
		require.LessOrEqual(t, after, int64(delay*12/10), "after attempt %d", attempt)
	}
	x := n.delivery(id)
	require.Len(t, x.Executions, tries)
	for i, e := range x.Executions[1:] {
		before := x.Executions[i]
		require.GreaterOrEqual(t, int64(before.EndedAt)-int64(before.StartedAt), takes.Milliseconds(), "longer than the delay")
		require.GreaterOrEqual(t, int64(e.StartedAt)-int64(before.EndedAt), int64(delay), "attempt %d began too early", i+2)
	}
	require.Equal(t, tries, r.count(nil))
	require.Empty(t, r.broken())
	n.clean()
	t.Logf("due after the end of the last attempt, by attempt: %v ms", seen)
}

// TestR36_ADeadEndpointTakesNothingFromNineOthers has one endpoint that answers
// nothing, with a long line, and nine that answer (frain-dev/convoy#1525, #1926).
// While every request to the dead one hangs, all the others get is delivered, each
// at its first attempt.
func TestR36_ADeadEndpointTakesNothingFromNineOthers(t *testing.T) {
	t.Parallel()
	const live, each, backlog, limit = 9, 40, 200, 16
	h := newHolding()
	dead, good := newReceiver(t, h.answer), newReceiver(t, always(http.StatusNoContent))
	text := dead.webhook("dead", fmt.Sprint("concurrency = ", limit), "timeout_s = 600") + route("dead", "dead.*")
	for i := range live {
		name := fmt.Sprint("live", i)
		text += good.webhook(name) + route(name, name+".*")
	}
	n := newNode(t, text, "workers = 32")
	n.start()
	for i := range backlog {
		n.sendOne("dead.x", fmt.Sprint("t", i), fmt.Sprint("dead", i))
	}
	await(t, n, "the dead one has all that it may have", func() bool { return dead.count(nil) == limit })
	for i := range each {
		for k := range live {
			n.sendOne(fmt.Sprintf("live%d.x", k), fmt.Sprint("t", i%5), fmt.Sprintf("live%d-%d", k, i))
		}
	}
	await(t, n, "the others have everything", func() bool { return n.counters()["state.succeeded"] == live*each })
	require.Equal(t, limit, dead.count(nil), "no more is asked of it than at the beginning")
	require.Equal(t, limit, dead.count(func(a arrival) bool { return a.ended.IsZero() }), "and all of it still hangs")
	require.Equal(t, live*each, good.count(nil), "each at its first attempt")
	require.Empty(t, good.broken())
	close(h.open)
	n.drain()
	n.clean()
}

// TestR37_BackoffEqualToTheLease has as many deliveries as the case has rounds,
// whose backoff ends when their lease would (chrisguidry/docket#246). Each is sent
// exactly twice, under a higher fence, and none is counted as lost.
func TestR37_BackoffEqualToTheLease(t *testing.T) {
	t.Parallel()
	const rounds = 1000
	r := newReceiver(t, func(_ <-chan struct{}, a arrival) int {
		if a.attempt == 1 {
			return http.StatusServiceUnavailable
		}
		return http.StatusNoContent
	})
	n := newNode(t, r.webhook(hook, "retry_schedule_s = [5]", "ordering = \"none\"", "slots = 64", "concurrency = 64", "breaker_failures = 0")+route(hook, "hook.*"), "lease_s = 5")
	n.start()
	var events []sent
	for i := range rounds {
		events = append(events, sent{source: "/test", id: fmt.Sprint("e", i), kind: "hook.x", subject: fmt.Sprint("t", i%50), body: "{}"})
	}
	for len(events) > 0 {
		part := events[:min(500, len(events))]
		n.postBatch(part)
		events = events[len(part):]
	}
	n.drain()
	require.Equal(t, 2*rounds, r.count(nil))
	fences := map[string][]arrival{}
	for _, a := range r.ledger(nil) {
		fences[a.delivery] = append(fences[a.delivery], a)
	}
	require.Len(t, fences, rounds)
	for id, as := range fences {
		require.Len(t, as, 2, id)
		require.Equal(t, []int{1, 2}, []int{as[0].attempt, as[1].attempt})
		require.Greater(t, as[1].fence, as[0].fence)
		require.Equal(t, as[0].key, as[1].key)
	}
	c := n.counters()
	require.EqualValues(t, rounds, c["state.succeeded"])
	require.Zero(t, c["outcome_lost"])
	require.Zero(t, c["stale_settles"])
	n.clean()
}
