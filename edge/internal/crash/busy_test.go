package crash_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestR82_NobodyIsToldThatTheDatabaseIsBusy has 16 submitters, 8 workers whose
// leases are renewed all the time, and commands beside them that read and check
// (rails/solid_queue#385, #309). Every request is taken at its first try.
func TestR82_NobodyIsToldThatTheDatabaseIsBusy(t *testing.T) {
	t.Parallel()
	const submitters, each = 16, 60
	r := newReceiver(t, always(http.StatusNoContent))
	n := newNode(t, r.webhook(hook, "concurrency = 8")+route(hook, "*"), "workers = 8", "lease_s = 5")
	n.start()
	token, addr := n.token(), *n.addr.Load()
	ctx, cancel := context.WithTimeout(t.Context(), hangGuard)
	defer cancel()
	var now, most, commands atomic.Int64
	var faults sync.Map
	var submitting, beside sync.WaitGroup
	over := make(chan struct{})
	for i := range submitters {
		submitting.Go(func() {
			c := &http.Client{Transport: &http.Transport{}}
			defer c.CloseIdleConnections()
			for k := range each {
				e := sent{source: fmt.Sprint("/s", i), id: fmt.Sprint(k), kind: "x", subject: fmt.Sprint("t", (i+k)%20), body: "{}"}
				for here := now.Add(1); ; {
					if m := most.Load(); here <= m || most.CompareAndSwap(m, here) {
						break
					}
				}
				status, err := post(ctx, c, addr, token, &e)
				now.Add(-1)
				if err != nil || status != http.StatusAccepted {
					faults.Store(fmt.Sprint(i, "-", k), fmt.Sprint(status, err))
				}
			}
		})
	}
	for _, args := range [][]string{{"check", "--full"}, {"events"}, {"status"}, {"target", "list"}} {
		beside.Go(func() {
			for {
				if _, fault, code := n.run(args...); code != 0 {
					faults.Store(strings.Join(args, " "), fault)
				}
				commands.Add(1)
				select {
				case <-over:
					return
				default:
				}
			}
		})
	}
	submitting.Wait()
	close(over)
	beside.Wait()
	n.drain()
	faults.Range(func(who, what any) bool {
		t.Errorf("%v: %v", who, what)
		return true
	})
	require.Greater(t, most.Load(), int64(2), "submitters did not meet")
	require.Greater(t, commands.Load(), int64(3))
	require.Equal(t, submitters*each, r.count(nil))
	n.mu.Lock()
	for _, e := range n.log {
		require.NotContains(t, strings.ToLower(e.raw), "busy")
		require.NotContains(t, e.raw, "database is locked")
	}
	n.mu.Unlock()
	require.Empty(t, r.broken())
	n.clean()
	t.Logf("%d submitters, up to %d at once, %d commands beside them: 0 refusals", submitters, most.Load(), commands.Load())
}
