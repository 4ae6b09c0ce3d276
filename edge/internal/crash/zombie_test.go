package crash_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"fencepost/edge"
	"fencepost/edge/api"

	"github.com/stretchr/testify/require"
)

// pair is two nodes that share one database. The first one is stopped past its
// lease, the other one takes its work over, then the first wakes up.
type pair struct {
	t        *testing.T
	receiver *receiver
	ledger   string
	rest     string
	first    *node
	second   *node

	mu      sync.Mutex
	release map[string]chan struct{} // of requests of the first node, by round
}

// Work of one round.
const (
	zombieHooks = 24
	followers   = 8 // further events behind the first ones
	zombieOnce  = 4
)

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{t: t, ledger: t.TempDir(), release: map[string]chan struct{}{}}
	p.receiver = newReceiver(t, p.answer)
	p.rest = p.receiver.webhook(hook, "concurrency = 64", "timeout_s = 120", "retry_schedule_s = [1]") +
		program(once, "gate", p.ledger, "concurrency = 8") +
		route(hook, "hook.*") + route(once, "once.*")
	dir, err := os.MkdirTemp("", "fp-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p.first = nodeIn(t, dir, "a", true, p.rest, "lease_s = 5")
	p.second = nodeIn(t, dir, "b", true, p.rest, "lease_s = 5")
	t.Cleanup(func() { p.first.signal(syscall.SIGCONT) }) // before it is killed
	return p
}

// answer holds the first node's requests for the targets of a round until the
// round releases them; odd targets are never answered.
func (p *pair) answer(done <-chan struct{}, a arrival) int {
	if !strings.HasPrefix(a.life, "a-") || !strings.Contains(a.event, "held") {
		return http.StatusNoContent
	}
	p.mu.Lock()
	release := p.release[a.event[:strings.Index(a.event, "-")]]
	p.mu.Unlock()
	if strings.Contains(a.event, "odd") {
		release = nil
	}
	select {
	case <-release:
		return http.StatusNoContent
	case <-done:
		return 0
	}
}

// freeze stops the first node at a moment at which it does not hold the lock of
// the database: then nobody could go on, and nothing would be shown.
func (p *pair) freeze() {
	p.t.Helper()
	await(p.t, p.second, "the other node can write while the first is stopped", func() bool {
		p.first.signal(syscall.SIGSTOP)
		if p.second.ready() {
			return true
		}
		p.first.signal(syscall.SIGCONT)
		return false
	})
}

// round is one freeze and thaw. It returns the deliveries of the round.
func (p *pair) round(k int) (hooks, onces []string) {
	p.t.Helper()
	round := fmt.Sprint("r", k)
	release := make(chan struct{})
	p.mu.Lock()
	p.release[round] = release
	p.mu.Unlock()
	gate := filepath.Join(p.ledger, "gate")
	_ = os.Remove(gate)
	for i := range zombieHooks {
		held := "held-even"
		if i%2 == 1 {
			held = "held-odd"
		}
		hooks = append(hooks, p.first.sendOne("hook.x", fmt.Sprint("t", i), fmt.Sprintf("%s-%s-%d", round, held, i)))
	}
	for i := range followers {
		hooks = append(hooks, p.first.sendOne("hook.x", fmt.Sprint("t", i), fmt.Sprintf("%s-next-%d", round, i)))
	}
	for i := range zombieOnce {
		onces = append(onces, p.first.sendOne("once.x", fmt.Sprint("t", i), fmt.Sprintf("%s-once-%d", round, i)))
	}
	mine := func(a arrival) bool { return strings.HasPrefix(a.event, round+"-held") }
	await(p.t, p.first, "the first node works on everything", func() bool {
		return p.receiver.count(mine) == zombieHooks && noted(p.t, p.ledger, "start") == zombieOnce*k
	})
	require.Equal(p.t, zombieHooks, p.receiver.count(func(a arrival) bool { return mine(a) && strings.HasPrefix(a.life, "a-") }))

	p.second.start()
	p.freeze()
	await(p.t, p.second, "the second node has done all webhooks", func() bool {
		return p.receiver.count(func(a arrival) bool {
			return strings.HasPrefix(a.event, round+"-") && strings.HasPrefix(a.life, "b-") && a.status == http.StatusNoContent
		}) == zombieHooks+followers
	})
	for _, id := range onces {
		require.Equal(p.t, edge.CodeLostAfterStart, p.second.awaitState(id, edge.Blocked).Code)
	}
	p.second.clean() // also: no target has more leases than slots

	// What the frozen node waits for ends while it is frozen.
	require.NoError(p.t, os.WriteFile(gate, nil, 0o600))
	close(release)
	await(p.t, p.second, "the programs of the frozen node end", func() bool {
		return noted(p.t, p.ledger, "end") == zombieOnce*k && !anyAlive(ledgers(p.t, p.ledger))
	})
	p.first.signal(syscall.SIGCONT)
	await(p.t, p.second, "every execution of the zombie has tried to settle", func() bool {
		c := p.second.counters()
		return c["stale_settles"]+c["late_settles"] >= int64(k*(zombieHooks+zombieOnce))
	})
	p.second.drain()
	return hooks, onces
}

// TestP13_Q2_R9_S15_Zombie freezes a node past its lease while it has webhooks
// and commands under way. Its late answers must change nothing, but for the one
// result that nobody had decided yet.
func TestP13_Q2_R9_S15_Zombie(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	rounds := number(t, "FENCEPOST_ZOMBIES", 1)
	p.first.start()
	var late, owned int
	for k := 1; k <= rounds; k++ {
		hooks, onces := p.round(k)
		for _, id := range hooks {
			l, o := p.webhookOnce(id)
			late, owned = late+l, owned+o
		}
		for _, id := range onces {
			p.commandOnce(id)
		}
		// The zombie is a node like any other again.
		p.second.stop()
		alive := p.first.sendOne("hook.x", "t0", fmt.Sprintf("alive-%d", k))
		p.first.awaitState(alive, edge.Succeeded)
	}
	counters := as[status](p.first, "status").Counters
	refused := p.receiver.count(func(a arrival) bool { return a.refused })
	targets := as[api.TargetPage](p.first, "target", "list", "--limit", "1000")
	for _, target := range targets.Targets {
		require.Equal(t, 1, target.Slots, "%+v", target)
		require.Zero(t, target.Busy, "%+v", target)
		require.Empty(t, target.Stall, "%+v", target)
	}
	require.Empty(t, p.receiver.broken())
	p.first.clean()
	t.Logf("zombies: %d rounds, %d stale settles refused and %d late results of once work accepted, %d late outcomes kept, %d executions lost by the zombie, %d stale effects refused by the receiver, 0 double completions",
		rounds, counters["stale_settles"], counters["late_settles"], late, owned, refused)
	require.GreaterOrEqual(t, counters["stale_settles"], int64(20), "too few stale settles were seen: the test proves nothing")
	require.GreaterOrEqual(t, late, 20)
	require.Equal(t, int64(zombieOnce*rounds), counters["late_settles"])
	require.Equal(t, zombieHooks/2*rounds, refused)
}

// webhookOnce checks one webhook: one execution succeeded, the zombie's was
// lost, its request had the older fence, and a receiver that compares fences
// applied the effect once.
func (p *pair) webhookOnce(id string) (late, lost int) {
	p.t.Helper()
	x := p.first.delivery(id)
	require.Equal(p.t, edge.Succeeded, x.Delivery.State)
	succeeded := 0
	for _, e := range x.Executions {
		switch {
		case e.Outcome == edge.OutcomeSucceeded:
			succeeded++
		case e.Outcome == edge.OutcomeLost:
			lost++
			require.Less(p.t, e.Fence, x.Delivery.Fence)
		}
		if e.LateOutcome != "" {
			require.Equal(p.t, edge.OutcomeLost, e.Outcome)
			late++
		}
	}
	require.Equal(p.t, 1, succeeded, "%+v", x)
	applied, newest := 0, int64(0)
	for _, a := range p.receiver.ledger(func(a arrival) bool { return a.key == x.Delivery.Key }) {
		if a.applied {
			applied++
			newest = a.fence
			require.True(p.t, strings.HasPrefix(a.life, "b-"), "%+v", a)
		}
	}
	require.Equal(p.t, 1, applied, "effects of key %s", x.Delivery.Key)
	for _, a := range p.receiver.ledger(func(a arrival) bool { return a.key == x.Delivery.Key && strings.HasPrefix(a.life, "a-") }) {
		require.Less(p.t, a.fence, newest, "the zombie's request carries the old fence")
	}
	return late, lost
}

// commandOnce checks one command: it began once, and its late result was taken
// once.
func (p *pair) commandOnce(id string) {
	p.t.Helper()
	x := p.first.delivery(id)
	require.Equal(p.t, edge.Succeeded, x.Delivery.State, "%+v", x)
	require.Len(p.t, x.Executions, 1)
	require.Equal(p.t, edge.OutcomeLost, x.Executions[0].Outcome)
	require.Equal(p.t, edge.OutcomeSucceeded, x.Executions[0].LateOutcome)
	starts := 0
	for _, l := range ledgers(p.t, p.ledger) {
		if l.Key == x.Delivery.Key && l.Kind == "start" {
			starts++
		}
	}
	require.Equal(p.t, 1, starts, "starts of key %s", x.Delivery.Key)
}

// TestD12_R21_R6_SleepingPastTheLease lets a target sleep for longer than the
// lease while a second worker is idle: one request, since the lease is renewed.
func TestD12_R21_R6_SleepingPastTheLease(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	r := newReceiver(t, func(done <-chan struct{}, _ arrival) int {
		select {
		case <-release:
			return http.StatusNoContent
		case <-done:
			return 0
		}
	})
	rest := r.webhook(hook, "retry_schedule_s = [1]", "timeout_s = 60") + route(hook, "hook.*")
	dir, err := os.MkdirTemp("", "fp-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	first := nodeIn(t, dir, "a", true, rest, "lease_s = 5")
	second := nodeIn(t, dir, "b", true, rest, "lease_s = 5")
	first.start()
	second.start()
	id := first.sendOne("hook.x", "t", "slow")
	await(t, first, "the request", func() bool { return r.count(nil) == 1 })
	began := r.ledger(nil)[0].at
	await(t, first, "the lease is over, and a look of the idle worker at it too", func() bool { return time.Since(began) > 12*time.Second })
	require.Equal(t, 1, r.count(nil), "one request only: %+v", r.ledger(nil))
	close(release)
	first.awaitState(id, edge.Succeeded)
	x := second.delivery(id)
	require.Len(t, x.Executions, 1)
	require.Zero(t, x.Delivery.Losses)
	require.Equal(t, 1, r.count(nil))
	second.clean()
	t.Logf("slept %s past a lease of 5s: 1 request, 1 key, 1 execution", time.Since(began).Round(time.Second))
}
