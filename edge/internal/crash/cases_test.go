package crash_test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fencepost/edge"
	"fencepost/edge/api"

	"github.com/stretchr/testify/require"
)

// holding answers nothing until it is opened.
type holding struct{ open chan struct{} }

func newHolding() *holding { return &holding{open: make(chan struct{})} }

func (h *holding) answer(done <-chan struct{}, _ arrival) int {
	select {
	case <-h.open:
		return http.StatusNoContent
	case <-done:
		return 0
	}
}

// recoveryTime is within what a restart must have dealt with the work of a dead
// process (R7, R19).
const recoveryTime = 5 * time.Second

// TestR7_R19_ReservationsOfTheDeadAreFreeAtOnce kills a node whose slots are all
// taken and starts it again on the same host, under the same name. The lease is a
// minute; nothing may wait for it.
func TestR7_R19_ReservationsOfTheDeadAreFreeAtOnce(t *testing.T) {
	t.Parallel()
	const slots = 16
	h := newHolding()
	r := newReceiver(t, h.answer)
	ledger := t.TempDir()
	n := newNode(t, r.webhook(hook, fmt.Sprint("concurrency = ", slots))+program(once, "gate", ledger)+
		route(hook, "hook.*")+route(once, "once.*"), "lease_s = 60")
	n.start()
	for i := range slots + 4 {
		n.sendOne("hook.x", fmt.Sprint("t", i), fmt.Sprint("e", i))
	}
	command := n.sendOne("once.x", "t", "once")
	await(t, n, "every slot is taken", func() bool { return r.count(nil) == slots && noted(t, ledger, "start") == 1 })
	old := as[status](n, "status").Owner
	n.kill()
	n.start()
	ready := time.Now()
	await(t, n, "every slot is taken again", func() bool {
		return r.count(func(a arrival) bool { return a.life == n.p.life }) == slots
	})
	again := time.Since(ready)
	require.Less(t, again, recoveryTime)
	require.Equal(t, edge.CodeLostAfterStart, n.awaitState(command, edge.Blocked).Code)
	require.NotEqual(t, old, as[status](n, "status").Owner, "the identity is of the process, not of the host")
	close(h.open)
	await(t, n, "all webhooks are delivered", func() bool { return n.counters()["state.succeeded"] == slots+4 })
	require.Empty(t, r.broken())
	n.clean()
	t.Logf("reservations: kill -9 with %d slots and 1 command taken: all taken again %s after ready (limit %s, lease 60s)", slots, again.Round(time.Millisecond), recoveryTime)
}

// TestR11_LimitHoldsAcrossKill kills a node with three deliveries queued on a
// target that takes one at a time.
func TestR11_LimitHoldsAcrossKill(t *testing.T) {
	t.Parallel()
	h := newHolding()
	r := newReceiver(t, h.answer)
	n := newNode(t, r.webhook(hook)+route(hook, "hook.*"))
	n.start()
	var ids []string
	for i := range 3 {
		ids = append(ids, n.sendOne("hook.x", "t", fmt.Sprint("e", i)))
	}
	const kills = 3
	for k := range kills {
		await(t, n, "the head is under way", func() bool { return r.count(nil) == k+1 })
		n.kill()
		n.start()
	}
	await(t, n, "the head is under way", func() bool { return r.count(nil) == kills+1 })
	require.Equal(t, edge.Running, n.awaitState(ids[0], edge.Running).State)
	require.Equal(t, edge.Pending, n.delivery(ids[1]).Delivery.State)
	close(h.open)
	n.drain()
	var order []string
	for _, a := range r.ledger(nil) {
		require.True(t, a.tries == 1 || a.event == "e0", "only the head was repeated: %+v", a)
		if a.status != 0 {
			order = append(order, a.event)
		}
	}
	require.Equal(t, []string{"e0", "e1", "e2"}, order)
	require.Empty(t, r.broken(), "no two requests were open at once")
	require.Equal(t, kills, n.delivery(ids[0]).Delivery.Losses)
	n.clean()
	t.Logf("limit: %d kills with 3 queued on one strict target: at most 1 request open, in order", kills)
}

// TestR14_OutcomeIsTheDocumentedOne kills a node and compares what becomes of
// its work with the sentences of docs/guarantees.md.
func TestR14_OutcomeIsTheDocumentedOne(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/guarantees.md")
	require.NoError(t, err)
	manual := strings.Join(strings.Fields(string(text)), " ")
	require.Contains(t, manual, "may be called again with the same idempotency key and a higher fence")
	require.Contains(t, manual, "are never called again after they may have begun. The delivery is `blocked` with the code `lost_after_start` or `outcome_unknown`, and `fencepost resolve` decides it.")

	h := newHolding()
	r := newReceiver(t, h.answer)
	ledger := t.TempDir()
	n := newNode(t, r.webhook(hook)+program(once, "gate", ledger)+route(hook, "hook.*")+route(once, "once.*"))
	n.start()
	webhook := n.sendOne("hook.x", "t", "w")
	command := n.sendOne("once.x", "t", "c")
	await(t, n, "both are under way", func() bool { return r.count(nil) == 1 && noted(t, ledger, "start") == 1 })
	n.kill()
	n.start()
	await(t, n, "the webhook is called again", func() bool { return r.count(nil) == 2 })
	calls := r.ledger(nil)
	require.Equal(t, calls[0].key, calls[1].key, "the same idempotency key")
	require.Greater(t, calls[1].fence, calls[0].fence, "a higher fence")
	close(h.open)
	n.awaitState(webhook, edge.Succeeded)

	blocked := n.awaitState(command, edge.Blocked)
	require.Equal(t, edge.CodeLostAfterStart, blocked.Code)
	require.Equal(t, 1, noted(t, ledger, "start"), "never called again")
	_, fault, code := n.run("resolve", command, "--as", "succeeded", "--version", fmt.Sprint(blocked.Version+7), "--reason", "looked")
	require.Equal(t, api.ExitConflict, code, "a decision on another version is refused: %s", fault)
	shown := as[api.DeliveryDetail](n, "delivery", command)
	n.ok("resolve", command, "--as", "succeeded", "--version", fmt.Sprint(shown.Delivery.Version), "--reason", "looked")
	require.Equal(t, edge.Succeeded, as[api.DeliveryDetail](n, "delivery", command).Delivery.State)
	require.Equal(t, 1, noted(t, ledger, "start"))
	n.clean()
}

// TestR16_ExplainSaysUntilWhenAndWhy asks, after a kill, why each kind of work is
// where it is.
func TestR16_ExplainSaysUntilWhenAndWhy(t *testing.T) {
	t.Parallel()
	h := newHolding()
	r := newReceiver(t, h.answer)
	ledger := t.TempDir()
	n := newNode(t, r.webhook(hook)+program(once, "gate", ledger)+route(hook, "hook.*")+route(once, "once.*"))
	n.start()
	webhook := n.sendOne("hook.x", "t", "w")
	behind := n.sendOne("hook.x", "t", "behind")
	command := n.sendOne("once.x", "t", "c")
	stuck := n.sendOne("once.x", "t", "stuck")
	await(t, n, "both are under way", func() bool { return r.count(nil) == 1 && noted(t, ledger, "start") == 1 })
	n.kill()
	n.start()
	await(t, n, "the webhook is called again", func() bool { return r.count(nil) == 2 })
	n.awaitState(webhook, edge.Running)
	n.awaitState(command, edge.Blocked)

	text := n.ok("explain", webhook)
	require.Contains(t, text, "is running")
	require.Regexp(t, `Owner \w+ \(this node, process \d+\) holds the lease until 20\d\d-.* \(in \d`, text)
	require.Contains(t, text, "it is tried again with the same idempotency key")

	text = n.ok("explain", behind)
	require.Contains(t, text, "1 delivery is ahead")
	require.Contains(t, text, fmt.Sprintf("The head of the line, delivery %d, is running", numberOf(webhook)))

	text = n.ok("explain", command)
	require.Contains(t, text, "is blocked (lost_after_start)")
	require.Contains(t, text, "nobody knows whether the effect happened")
	require.Contains(t, text, "nothing happens until a person who has looked says what did")
	for _, as := range []string{"succeeded", "failed", "retry"} {
		require.Contains(t, text, fmt.Sprintf("fencepost resolve %d --as %s --version %d --reason", numberOf(command), as, n.delivery(command).Delivery.Version))
	}
	require.Regexp(t, `The latest execution, \d+, ended at 20\d\d-.* as lost`, text)

	text = n.ok("explain", stuck)
	require.Contains(t, text, fmt.Sprintf("The head of the line, delivery %d, is blocked (lost_after_start) and waits for a person", numberOf(command)))
	close(h.open)
}

// TestR22_CancelAgreesWithTheList kills a node and calls its work off: what the
// list says and what the command does are the same.
func TestR22_CancelAgreesWithTheList(t *testing.T) {
	t.Parallel()
	h := newHolding()
	r := newReceiver(t, h.answer)
	ledger := t.TempDir()
	n := newNode(t, r.webhook(hook)+program(once, "gate", ledger)+route(hook, "hook.*")+route(once, "once.*"))
	n.start()
	running := n.sendOne("hook.x", "t", "running")
	waiting := n.sendOne("hook.x", "t", "waiting")
	command := n.sendOne("once.x", "t", "c")
	await(t, n, "both are under way", func() bool { return r.count(nil) == 1 && noted(t, ledger, "start") == 1 })
	n.kill()
	n.start()
	await(t, n, "the webhook is called again", func() bool { return r.count(nil) == 2 })
	n.awaitState(running, edge.Running)
	n.awaitState(command, edge.Blocked)

	require.Equal(t, edge.Cancelled, as[api.Delivery](n, "cancel", waiting).State)
	require.Equal(t, edge.Running, as[api.Delivery](n, "cancel", running).State, "it is told, and what is observed is stored")
	require.Equal(t, edge.CodeCancelled, n.awaitState(running, edge.Cancelled).Code)
	_, fault, code := n.run("cancel", command)
	require.Equal(t, api.ExitConflict, code)
	require.Contains(t, fault, "resolve")
	for _, s := range []edge.State{edge.Running, edge.Leased, edge.Pending} {
		require.Empty(t, n.deliveries("--state", string(s)))
	}
	require.Len(t, n.deliveries("--state", "cancelled"), 2)
	require.Equal(t, edge.Cancelled, as[api.Delivery](n, "cancel", running).State, "the same answer again")
	close(h.open)
	n.kill()
	n.start()
	require.Equal(t, edge.Succeeded, n.awaitState(n.sendOne("hook.x", "t", "next"), edge.Succeeded).State, "the line goes on")
	require.Zero(t, r.count(func(a arrival) bool { return a.event == "waiting" }))
	require.Equal(t, 2, r.count(func(a arrival) bool { return a.event == "running" }))
	n.clean()
}

// failing refuses until it is mended.
type failing struct {
	status int
	mended atomic.Bool
}

func (f *failing) answer(<-chan struct{}, arrival) int {
	if f.mended.Load() {
		return http.StatusNoContent
	}
	return f.status
}

// TestD12_CancelDuringBackoff calls a delivery off while it waits for its next
// attempt, and starts the node again: it is never sent any more. A second one
// with the same backoff shows that its time had come.
func TestD12_CancelDuringBackoff(t *testing.T) {
	t.Parallel()
	f := &failing{status: http.StatusInternalServerError}
	r := newReceiver(t, f.answer)
	n := newNode(t, r.webhook(hook, "retry_schedule_s = [2]")+route(hook, "hook.*"))
	n.start()
	off := n.sendOne("hook.x", "off", "off")
	witness := n.sendOne("hook.x", "witness", "witness")
	await(t, n, "both have failed once", func() bool {
		return n.delivery(off).Delivery.Attempts == 1 && n.delivery(witness).Delivery.Attempts == 1
	})
	due := n.delivery(off).Delivery.DueAt
	require.Equal(t, edge.Cancelled, as[api.Delivery](n, "cancel", off).State)
	n.kill()
	n.start()
	of := func(event string) int { return r.count(func(a arrival) bool { return a.event == event }) }
	await(t, n, "the witness is sent twice more", func() bool { return of("witness") >= 3 })
	require.Greater(t, time.Now().UnixMilli(), int64(due))
	require.Equal(t, 1, of("off"), "the cancelled one was sent after it was called off")
	f.mended.Store(true)
	n.awaitState(witness, edge.Succeeded)
	require.Equal(t, edge.Cancelled, n.delivery(off).Delivery.State)
	require.Equal(t, 1, of("off"))
	n.clean()
}

// TestQ11_R24_HandlerRemoved takes a handler with a backlog out of the
// configuration: the process stays up, others run, the backlog is parked for a
// stated reason and spends nothing, and runs when the handler is back.
func TestQ11_R24_HandlerRemoved(t *testing.T) {
	t.Parallel()
	f := &failing{status: http.StatusInternalServerError}
	gone, other := newReceiver(t, f.answer), newReceiver(t, always(http.StatusNoContent))
	with := gone.webhook("gone", "retry_schedule_s = [1]") + other.webhook("other") + route("gone", "gone.*") + route("other", "other.*")
	without := other.webhook("other") + route("other", "other.*")
	n := newNode(t, with)
	n.start()
	const backlog = 5
	var ids []string
	for i := range backlog {
		ids = append(ids, n.sendOne("gone.x", fmt.Sprint("t", i%2), fmt.Sprint("e", i)))
	}
	await(t, n, "the backlog is tried", func() bool { return n.delivery(ids[0]).Delivery.Attempts >= 1 })
	n.kill()
	tried := gone.count(nil)
	n.configure(without)
	n.start()
	n.awaitState(n.sendOne("other.x", "t", "o1"), edge.Succeeded)
	before := n.deliveries("--handler", "gone")
	require.Len(t, before, backlog)
	var latest int64
	for _, d := range before {
		require.Equal(t, edge.Pending, d.State)
		latest = max(latest, int64(d.DueAt))
		require.Contains(t, n.ok("explain", d.ID), "No running configuration names handler gone. The delivery waits, uncharged, and runs when the handler comes back")
	}
	await(t, n, "all of it is overdue", func() bool { return time.Now().UnixMilli() > latest+100 })
	n.awaitState(n.sendOne("other.x", "t", "o2"), edge.Succeeded)
	require.True(t, n.ready())
	require.Contains(t, n.ok("handler", "list"), "missing")
	require.Equal(t, before, n.deliveries("--handler", "gone"), "parked work changes in nothing")
	require.Equal(t, tried, gone.count(nil), "nothing is sent to an endpoint that was removed")
	n.clean()
	n.stop()

	f.mended.Store(true)
	n.configure(with)
	n.start()
	n.drain()
	for _, id := range ids {
		require.Equal(t, edge.Succeeded, n.delivery(id).Delivery.State)
	}
	require.Empty(t, gone.broken())
	n.clean()
	t.Logf("removed handler: %d deliveries parked and overdue, 0 requests; all run when it returned", backlog)
}

// TestD6_R26_ExactlySoManyRequests has a target that always refuses. The limit
// counts, also when the node is down while the last attempt is due.
func TestD6_R26_ExactlySoManyRequests(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, always(http.StatusForbidden))
	n := newNode(t, r.webhook("three", "retry_schedule_s = [1]", "max_attempts = 3")+r.webhook("five", "retry_schedule_s = [1]", "max_attempts = 5")+
		route("three", "three.*")+route("five", "five.*"))
	n.start()
	three := n.sendOne("three.x", "t", "three")
	five := n.sendOne("five.x", "t", "five")
	of := func(event string) int { return r.count(func(a arrival) bool { return a.event == event }) }
	await(t, n, "the fourth attempt is stored", func() bool { return n.delivery(five).Delivery.Attempts == 4 })
	due := n.delivery(five).Delivery.DueAt
	n.kill()
	killed := of("five")
	await(t, n, "the last attempt is overdue", func() bool { return time.Now().UnixMilli() > int64(due)+500 })
	require.Equal(t, 4, killed)
	require.Equal(t, 4, of("five"))
	n.start()
	for id, limit := range map[string]int{three: 3, five: 5} {
		require.Equal(t, "http_403", n.awaitState(id, edge.Failed).Code)
		x := n.delivery(id)
		require.Equal(t, limit, x.Delivery.Attempts)
		require.Len(t, x.Executions, limit, "each attempt is recorded")
		for i, e := range x.Executions {
			require.Equal(t, i+1, e.Attempt)
			require.NotZero(t, e.StartedAt)
			require.Equal(t, "http_403", e.Code)
		}
	}
	last := r.ledger(func(a arrival) bool { return a.event == "five" })
	require.Equal(t, n.p.life, last[len(last)-1].life, "the last one is made after the restart")
	n.kill()
	n.start()
	n.clean()
	require.Equal(t, 3, of("three"))
	require.Equal(t, 5, of("five"))
	require.Empty(t, r.broken())
	t.Logf("limits: 3 of 3 and 5 of 5 requests, the fifth after the restart")
}
