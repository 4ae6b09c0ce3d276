package crash_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"fencepost/edge"

	"github.com/stretchr/testify/require"
)

// TestP14_KillAtEachStep kills the node at each step that can be seen from
// outside: when the event is acknowledged, when the request is there, in the
// moment of its answer, when the program has begun and when it has ended. Work
// is then done, or done again if that is allowed, or waits for a person; and
// what waits for a person goes on waiting.
func TestP14_KillAtEachStep(t *testing.T) {
	t.Parallel()
	each := number(t, "FENCEPOST_STEPS", 3)
	ledger := t.TempDir()
	var armed atomic.Pointer[node] // killed by the receiver, once
	r := newReceiver(t, func(_ <-chan struct{}, a arrival) int {
		if strings.Contains(a.event, "arrived") {
			strike(&armed)
		}
		return http.StatusNoContent
	})
	r.after = func(a arrival) {
		if strings.Contains(a.event, "answered") {
			strike(&armed)
		}
	}
	n := newNode(t, r.webhook(hook)+program(once, "work", ledger)+program("gated", "gate", ledger)+
		route(hook, "hook.*")+route(once, "once.*")+route("gated", "gated.*"))
	starts := func(id string) (started, ended int) {
		for _, l := range ledgers(t, ledger) {
			switch {
			case l.Delivery == id && l.Kind == "start":
				started++
			case l.Delivery == id && l.Kind == "end":
				ended++
			}
		}
		return started, ended
	}
	steps := []struct {
		name    string
		kind    string
		strikes bool            // the receiver kills the node
		wait    func(id string) // until the node has been killed, or is to be
	}{
		{"acknowledged", "hook.x", false, func(string) {}},
		{"arrived", "hook.x", true, func(string) { n.gone() }},
		{"answered", "hook.x", true, func(string) { n.gone() }},
		{"accepted", "once.x", false, func(string) {}},
		{"begun", "gated.x", false, func(id string) {
			await(t, n, "the program begins", func() bool { s, _ := starts(id); return s == 1 })
		}},
		{"ended", "once.x", false, func(id string) {
			await(t, n, "the program ends", func() bool { _, e := starts(id); return e == 1 })
		}},
	}
	became := map[string]map[edge.State]int{}
	var blocked []string
	kills := 0
	n.start()
	for _, step := range steps {
		became[step.name] = map[edge.State]int{}
		for i := range each {
			armed.Store(n)
			life := n.p.life
			e := sent{source: "/test", id: fmt.Sprint(step.name, "-", i), kind: step.kind, subject: fmt.Sprint(step.name, i), body: "{}"}
			_, err := post(t.Context(), n.http, *n.addr.Load(), n.token(), &e)
			if err == nil {
				require.Len(t, e.receipt.Deliveries, 1)
				step.wait(e.receipt.Deliveries[0].ID)
			} else { // the receiver was quicker than the acknowledgement
				require.True(t, step.strikes, "%v", err)
				n.gone()
			}
			n.kill()
			armed.Store(nil)
			kills++
			n.start()
			require.NoError(t, postUntil(t.Context(), n.http, func() string { return *n.addr.Load() }, n.token(), &e))
			require.Equal(t, http.StatusOK, e.status, "it was stored before anything was done with it")
			id := e.receipt.Deliveries[0].ID
			var last edge.State
			await(t, n, "it is done or waits for a person", func() bool {
				last = n.delivery(id).Delivery.State
				return last.Final() || last == edge.Blocked
			})
			became[step.name][last]++
			begun, ended := starts(id)
			switch {
			case step.kind == "hook.x":
				require.Equal(t, edge.Succeeded, last)
			case last == edge.Blocked:
				require.Equal(t, edge.CodeLostAfterStart, n.delivery(id).Delivery.Code)
				require.LessOrEqual(t, begun, 1)
				blocked = append(blocked, id)
			default:
				require.Equal(t, edge.Succeeded, last)
				require.Equal(t, 1, begun)
				require.Equal(t, 1, ended)
			}
			if step.name == "arrived" {
				require.Equal(t, 1, r.count(func(a arrival) bool { return a.delivery == id && a.life == life }))
				require.Equal(t, 1, r.count(func(a arrival) bool { return a.delivery == id && a.life != life }), "asked again by the next process")
			}
		}
	}
	require.Equal(t, each, became["begun"][edge.Blocked], "work that had begun waits for a person")
	before := n.deliveries("--state", "blocked")
	require.Len(t, before, len(blocked))
	n.stop()
	n.start()
	n.awaitState(n.sendOne("hook.x", "end", "end"), edge.Succeeded)
	require.Equal(t, before, n.deliveries("--state", "blocked"), "unknown work leaves its state by itself")
	require.False(t, anyAlive(ledgers(t, ledger)), "a program of a dead node is alive")
	require.Empty(t, r.broken())
	n.clean()
	t.Logf("steps: %d kills at %d steps: %v", kills, len(steps), became)
}

// strike kills the node that is armed, once.
func strike(armed *atomic.Pointer[node]) {
	if n := armed.Swap(nil); n != nil {
		n.signal(syscall.SIGKILL)
	}
}
