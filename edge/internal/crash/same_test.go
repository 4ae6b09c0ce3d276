package crash_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestP18_R39_OneKeyManySubmitters sends each event from 32 submitters at once,
// each until it is acknowledged, and kills the node in between. There is one
// event, everybody is told the same id, and other content is refused. Every other
// event comes with an Idempotency-Key: then everybody gets the same status and
// body, and other content under the key is 422.
func TestP18_R39_OneKeyManySubmitters(t *testing.T) {
	t.Parallel()
	const submitters = 32
	rng := seeded(t)
	keys := number(t, "FENCEPOST_KEYS", 40)
	r := newReceiver(t, always(http.StatusNoContent))
	n := newNode(t, r.webhook(hook, "retry_schedule_s = [1]", "max_losses = 1000")+route(hook, "hook.*"))
	n.start()
	token := n.token()
	clients := make([]*http.Client, submitters)
	for i := range clients {
		clients[i] = &http.Client{Transport: &http.Transport{}, Timeout: 20 * time.Second}
		t.Cleanup(clients[i].CloseIdleConnections)
	}
	to := func() string { return *n.addr.Load() }
	var flying, most, contended, kills, repeats, unanswered int64
	var ids []string
	for k := range keys {
		events := make([]sent, submitters)
		errs := make([]error, submitters)
		var now, peak atomic.Int64
		var goes sync.WaitGroup
		begin := make(chan struct{})
		ctx, cancel := context.WithTimeout(t.Context(), hangGuard)
		for i := range events {
			events[i] = sent{source: "/same", id: fmt.Sprint("k", k), kind: "hook.same", subject: fmt.Sprint("t", k%8), body: fmt.Sprintf(`{"k":%d}`, k)}
			if k%2 == 1 {
				events[i].key = fmt.Sprint("key ", k)
			}
			goes.Go(func() {
				<-begin
				for here := now.Add(1); ; {
					if p := peak.Load(); here <= p || peak.CompareAndSwap(p, here) {
						break
					}
				}
				errs[i] = postUntil(ctx, clients[i], to, token, &events[i])
				now.Add(-1)
			})
		}
		close(begin)
		if k%3 == 0 {
			within(ctx.Done(), time.Duration(rng.IntN(15))*time.Millisecond)
			flying += now.Load()
			n.kill()
			kills++
			n.start()
		}
		goes.Wait()
		cancel()
		fresh := 0
		for i, e := range events {
			require.NoError(t, errs[i])
			require.Equal(t, events[0].receipt.ID, e.receipt.ID, "one key, one id")
			require.Len(t, e.receipt.Deliveries, 1)
			require.Equal(t, events[0].receipt.Deliveries[0].ID, e.receipt.Deliveries[0].ID)
			if e.key != "" {
				require.Equal(t, http.StatusAccepted, e.status)
				require.Equal(t, events[0].answer, e.answer, "one key, one body")
			}
			if e.status == http.StatusAccepted && !e.replayed {
				fresh++
			}
			repeats += int64(e.tries - 1)
		}
		require.LessOrEqual(t, fresh, 1, "only one of them was the first")
		if fresh == 0 {
			unanswered++
		}
		most = max(most, peak.Load())
		if peak.Load() > 1 {
			contended++
		}
		ids = append(ids, events[0].receipt.Deliveries[0].ID)
		other := events[0]
		other.body = `{"other":true}`
		status, err := post(t.Context(), n.http, to(), token, &other)
		require.NoError(t, err)
		want := http.StatusConflict
		if other.key != "" {
			want = http.StatusUnprocessableEntity
		}
		require.Equal(t, want, status)
	}
	n.drain()
	n.clean()
	require.Empty(t, r.broken())
	all := n.deliveries()
	require.Len(t, all, keys, "one event and one delivery for each key")
	for _, id := range ids {
		require.Positive(t, r.count(func(a arrival) bool { return a.delivery == id }), "%s never arrived", id)
	}
	t.Logf("one key: %d keys of %d submitters each, %d contended (up to %d at once), %d kills with %d submissions in flight, %d posts repeated, %d first answers cut by a kill: %d events, %d ids",
		keys, submitters, contended, most, kills, flying, repeats, unanswered, len(all), len(ids))
	require.Equal(t, int64(keys), contended, "submitters did not meet")
	require.Positive(t, flying, "no kill hit a submitter")
	require.Positive(t, repeats)
}
