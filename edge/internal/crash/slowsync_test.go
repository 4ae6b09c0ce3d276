//go:build faults

package crash_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"fencepost/edge"

	"github.com/stretchr/testify/require"
)

// TestR4_SlowSyncs makes each sync of a commit take longer than the lease, while
// targets answer 200 (riverqueue/river#995). What they did is recorded, however late:
// none is asked twice. That holds for work whose claim was slow, too.
func TestR4_SlowSyncs(t *testing.T) {
	t.Parallel()
	const lease, delay, targets = 5, 7 * time.Second, 12
	h := newHolding()
	r := newReceiver(t, h.answer)
	n := newNode(t, r.webhook(hook, "retry_schedule_s = [1]", fmt.Sprint("concurrency = ", targets))+route(hook, "hook.*"), fmt.Sprint("lease_s = ", lease))
	n.start()
	var ids []string
	for i := range targets {
		ids = append(ids, n.sendOne("hook.x", fmt.Sprint("t", i), fmt.Sprint("before", i)))
	}
	await(t, n, "all are under way", func() bool { return r.count(nil) == targets })
	_, wal := n.database()
	a := n.attach(t, "fsync,fdatasync", []string{wal}, fmt.Sprintf("fsync,fdatasync:delay_enter=%d", delay.Microseconds()))
	close(h.open) // all answer 200, and their results meet a commit that hangs
	var posts sync.WaitGroup
	late := make([]sent, 4)
	for i := range late {
		posts.Go(func() { // their claims are made in a commit that hangs
			late[i] = sent{source: "/test", id: fmt.Sprint("late", i), kind: "hook.x", subject: fmt.Sprint("late", i), body: "{}"}
			if err := postUntil(t.Context(), n.http, func() string { return *n.addr.Load() }, n.token(), &late[i]); err != nil {
				t.Error(err)
			}
		})
	}
	await(t, n, "three commits were slow", func() bool { return a.count(t, "(DELAYED)") >= 3 })
	a.detach()
	slow := a.count(t, "(DELAYED)")
	posts.Wait()
	for _, e := range late {
		ids = append(ids, e.receipt.Deliveries[0].ID)
	}
	for _, id := range ids {
		n.awaitState(id, edge.Succeeded)
		require.Zero(t, n.delivery(id).Delivery.Losses)
	}
	asked := map[string]int{}
	for _, x := range r.ledger(nil) {
		asked[x.event]++
	}
	require.Len(t, asked, targets+len(late))
	for event, k := range asked {
		require.Equal(t, 1, k, "%s was sent again after its target had answered 200", event)
	}
	require.Empty(t, r.broken())
	n.clean()
	t.Logf("%d commits took %s each, the lease is %d s: %d targets asked once each", slow, delay, lease, len(asked))
}

// TestR74_ReadErrors makes reads of the database fail while callers with the right
// token come (nianzhibai/91#94): they are told of a fault of the storage, never that
// they may not, or that there is no such thing; and nothing is lost by it.
func TestR74_ReadErrors(t *testing.T) {
	t.Parallel()
	n := newNode(t, "")
	n.start()
	var acked []sent
	body := `"` + strings.Repeat("x", 4000) + `"`
	for part := range 20 {
		var events []sent
		for i := range 200 {
			events = append(events, sent{source: "/test", id: fmt.Sprintf("e%d-%d", part, i), kind: "x", subject: "t", body: body})
		}
		for i, item := range n.postBatch(events) {
			events[i].receipt = *item.Receipt
		}
		acked = append(acked, events...)
	}
	n.stop()
	n.start() // with nothing of it in memory
	token, addr := n.token(), *n.addr.Load()
	db, wal := n.database()
	a := n.attach(t, "pread64", []string{db, wal}, "pread64:error=EIO:when=1+")
	over := func() bool {
		select {
		case <-n.p.done:
			return true
		default:
			return false
		}
	}
	seen := map[string]int{}
	for i := 0; i < len(acked) && !over() && a.count(t, "(INJECTED)") < 5; i += 37 { // what only reads
		_, fault, code := n.run("event", acked[i].receipt.ID)
		seen[fmt.Sprint("exit ", code)]++
		require.NotEqual(t, 3, code, "not found, says: %s", fault)
		require.NotEqual(t, 2, code, fault)
	}
	if !over() {
		require.Equal(t, http.StatusUnauthorized, n.status(addr, "wrong"), "a wrong token is still a wrong one")
	}
	for i := 0; i < len(acked) && !over() && a.count(t, "(INJECTED)") < 20; i += 37 {
		e := acked[i]
		status, err := post(t.Context(), n.http, addr, token, &e)
		if err != nil {
			seen["cut"]++
			continue
		}
		seen[fmt.Sprint(status)]++
		require.True(t, status/100 == 5 || status == http.StatusOK, "%d to the right token, for an event that is there", status)
	}
	fired := a.count(t, "(INJECTED)")
	require.Positive(t, fired, "no read was made to fail")
	require.Positive(t, seen["503"]+seen["500"]+seen["507"]+seen["exit 6"], "nobody was told: %v", seen)
	a.detach()
	n.kill()
	n.start()
	require.Empty(t, n.lost(acked))
	n.clean()
	t.Logf("%d reads failed; answers: %v", fired, seen)
}

// status is the answer to an event with another token.
func (n *node) status(addr, token string) int {
	n.t.Helper()
	e := sent{source: "/test", id: "other", kind: "x", subject: "t", body: "{}"}
	status, err := post(n.t.Context(), n.http, addr, token, &e)
	require.NoError(n.t, err)
	return status
}
