package crash_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fencepost/edge"

	"github.com/stretchr/testify/require"
)

// load is a node under producers, with everything that it reaches.
type load struct {
	t        *testing.T
	n        *node
	receiver *receiver
	ledger   string // directory of the commands' ledgers
	rest     string // of the node's configuration
	rng      *rand.Rand

	ctx    context.Context
	stop   context.CancelFunc
	target func() string // where producers post to
	pace   time.Duration // of each producer
	hooks  bool          // they post nothing that a command does
	goes   sync.WaitGroup
	acks   atomic.Int64

	mu     sync.Mutex
	acked  []sent
	faults []string

	again map[string]int
	ruled map[string]bool
}

const (
	producers   = 4
	hookTargets = 16
	workTargets = 6
)

func newLoad(t *testing.T) *load {
	t.Helper()
	return newLoadOn(t, "work", func(rest string) *node { return newNode(t, rest) })
}

// newLoadOn is newLoad with commands that run what does, on a node that make makes
// of handlers and routes.
func newLoadOn(t *testing.T, does string, make func(rest string) *node) *load {
	t.Helper()
	l := &load{t: t, pace: 12 * time.Millisecond, rng: seeded(t), ledger: t.TempDir(), again: map[string]int{}, ruled: map[string]bool{}}
	var tick atomic.Uint64
	l.receiver = newReceiver(t, func(done <-chan struct{}, _ arrival) int {
		k := tick.Add(1) * 0x9E3779B97F4A7C15 >> 40
		within(done, time.Duration(k%13)*time.Millisecond)
		if k%67 == 0 {
			return http.StatusInternalServerError
		}
		return http.StatusNoContent
	})
	l.rest = l.receiver.webhook(hook, "retry_schedule_s = [1]", "max_losses = 1000") +
		program(once, does, l.ledger, "concurrency = 2") +
		program(idem, does, l.ledger, "concurrency = 2", `effect = "idempotent"`, "retry_base_s = 1", "max_losses = 1000") +
		route(hook, "hook.*") + route(once, "once.*") + route(idem, "idem.*") +
		route(hook, "all.*") + route(once, "all.*") + route(idem, "all.*")
	l.n = make(l.rest)
	l.ctx, l.stop = context.WithCancel(t.Context())
	l.target = func() string { return *l.n.addr.Load() }
	t.Cleanup(func() { l.stop(); l.goes.Wait() })
	return l
}

// produce starts the producers. Each sends one event after another, repeats the
// same one until it is acknowledged, and writes it down only then.
func (l *load) produce() {
	token := l.n.token()
	for p := range producers {
		rng := rand.New(rand.NewPCG(l.rng.Uint64(), uint64(p)))
		l.goes.Go(func() {
			c := &http.Client{Transport: &http.Transport{}, Timeout: 20 * time.Second}
			defer c.CloseIdleConnections()
			pace := time.NewTicker(l.pace)
			defer pace.Stop()
			for place := 1; ; place++ {
				select {
				case <-l.ctx.Done():
					return
				case <-pace.C:
				}
				e := l.event(rng, p, place)
				// An event that was begun is finished, so that at the end
				// each that was sent is acknowledged.
				ctx, cancel := context.WithTimeout(context.Background(), hangGuard)
				err := postUntil(ctx, c, l.target, token, &e)
				cancel()
				l.mu.Lock()
				if err != nil {
					l.faults = append(l.faults, err.Error())
				} else {
					l.acked = append(l.acked, e)
				}
				l.mu.Unlock()
				l.acks.Add(1)
			}
		})
	}
}

func (l *load) event(rng *rand.Rand, p, place int) sent {
	kind, subject := "hook.happened", fmt.Sprint("t", rng.IntN(hookTargets))
	switch k := rng.IntN(100); {
	case l.hooks:
	case k < 6:
		kind, subject = "once.happened", fmt.Sprint("t", rng.IntN(workTargets))
	case k < 11:
		kind, subject = "idem.happened", fmt.Sprint("t", rng.IntN(workTargets))
	case k < 14:
		kind, subject = "all.happened", fmt.Sprint("t", rng.IntN(workTargets))
	}
	id := fmt.Sprintf("p%d-%d", p, place)
	return sent{
		source: fmt.Sprintf("/producer/%d", p), id: id, kind: kind, subject: subject,
		body: fmt.Sprintf(`{"producer":%d,"place":%d}`, p, place), producer: fmt.Sprint("p", p), place: place,
	}
}

// finish ends the producers and waits for them.
func (l *load) finish() {
	l.stop()
	l.goes.Wait()
}

// acksFrom waits until n more events were acknowledged than at from.
func (l *load) acksFrom(from, n int64) {
	l.t.Helper()
	await(l.t, l.n, "events are acknowledged between two kills", func() bool { return l.acks.Load() >= from+n })
}

// decide resolves all blocked once work as a person does who looks at the
// program's own ledger: what ended there happened, and of every other one half
// are given up and half are run again.
func (l *load) decide() int {
	l.t.Helper()
	ended := map[string]bool{}
	for _, x := range ledgers(l.t, l.ledger) {
		if x.Kind == "end" {
			ended[fmt.Sprint(x.Key, x.Fence)] = true
		}
	}
	blocked := l.n.deliveries("--state", "blocked")
	for _, d := range blocked {
		require.Equal(l.t, once, handlerOf(d), "only once work may wait for a person: %+v", d)
		require.Equal(l.t, edge.CodeLostAfterStart, d.Code)
		how := edge.ResolveFailed
		switch {
		case ended[fmt.Sprint(d.Key, d.Fence)]:
			how = edge.ResolveSucceeded
		case numberOf(d.ID)%2 == 0:
			how = edge.ResolveRetry
			l.again[d.Key]++
		}
		l.n.ok("resolve", d.ID, "--as", string(how), "--version", fmt.Sprint(d.Version), "--reason", "looked at its ledger")
		l.ruled[d.ID] = true
	}
	return len(blocked)
}

// settleAll waits until nothing is open, deciding what waits for a person.
func (l *load) settleAll() (decided int) {
	l.t.Helper()
	await(l.t, l.n, "everything is final", func() bool {
		decided += l.decide()
		return open(l.n.counters()) == 0
	})
	return decided
}

func (l *load) evidence() *evidence {
	l.t.Helper()
	l.mu.Lock()
	acked := append([]sent(nil), l.acked...)
	l.mu.Unlock()
	return &evidence{
		acked: acked, lost: l.n.lost(acked), deliveries: l.n.deliveries(), arrivals: l.receiver.ledger(nil),
		seen: append(l.receiver.broken(), l.faults...), runs: ledgers(l.t, l.ledger), again: l.again, ruled: l.ruled,
	}
}

// TestP1_P17_KillLoop kills the node at random moments under four producers and
// compares all ledgers at the end.
func TestP1_P17_KillLoop(t *testing.T) {
	t.Parallel()
	l := newLoad(t)
	kills := number(t, "FENCEPOST_KILLS", 100)
	l.n.start()
	l.produce()
	var slowest time.Duration
	var inFlight, notBegun, hits, early, decided int
	for k := 1; k <= kills; k++ {
		if l.rng.IntN(6) == 0 { // in the middle of a start
			l.n.kill()
			l.n.spawn()
			within(l.n.p.done, time.Duration(l.rng.IntN(80))*time.Millisecond)
			early++
		} else {
			l.acksFrom(l.acks.Load(), 1)
			within(l.n.p.done, time.Duration(l.rng.IntN(120))*time.Millisecond)
		}
		l.n.kill()
		slowest = max(slowest, l.n.start())
		var found []entry
		await(t, l.n, "the start says what recovery found", func() bool { found = l.n.logged("recovery"); return len(found) > 0 })
		inFlight, notBegun = inFlight+found[0].InFlight, notBegun+found[0].NotBegun
		if found[0].InFlight+found[0].NotBegun > 0 {
			hits++
		}
		if k%10 == 0 {
			l.n.clean()
			decided += l.decide()
		}
	}
	l.finish()
	decided += l.settleAll()
	l.n.clean()
	ev := l.evidence()
	require.Empty(t, ev.judge())
	l.n.stop()
	require.False(t, anyAlive(ev.runs), "a program outlived its node")

	repeats, existing := 0, 0
	for _, e := range ev.acked {
		repeats += e.tries - 1
		if e.status == http.StatusOK {
			existing++
		}
	}
	t.Logf("kill loop: %d kills (%d in the middle of a start), %d hit work: %d in flight, %d claimed; %d events acknowledged, %d of them stored at an attempt that was not answered, %d posts repeated; %d deliveries, %d requests (%d read late), %d command starts, %d children left behind, %d decided by a person; slowest restart to ready %s (promised 1s for recovery)",
		kills, early, hits, inFlight, notBegun, len(ev.acked), existing, repeats, len(ev.deliveries), len(ev.arrivals), l.receiver.ghosts,
		noted(t, l.ledger, "start"), noted(t, l.ledger, "child"), decided, slowest.Round(time.Millisecond))
	require.Positive(t, hits, "no kill hit work in flight")
	require.Positive(t, decided, "no kill hit once work")
	require.Positive(t, repeats, "no kill hit a producer")
	require.Greater(t, l.receiver.most, 1, "targets were never served at the same time")
	require.GreaterOrEqual(t, len(ev.acked), kills, "too few events between the kills")
}

// TestControl_AcknowledgeBeforeCommitIsCaught shows that the ledgers would see a
// node that acknowledged too early.
func TestControl_AcknowledgeBeforeCommitIsCaught(t *testing.T) {
	t.Parallel()
	l := newLoad(t)
	l.n.start()
	front := newFront(t, l)
	l.target = func() string { return front.addr }
	l.produce()
	const kills = 4
	for range kills {
		l.acksFrom(l.acks.Load(), 10)
		await(t, l.n, "the front holds what it has acknowledged", func() bool { return front.held() > 0 })
		front.crash()
		l.n.kill()
		l.n.start()
	}
	l.finish()
	front.flush()
	l.mu.Lock()
	acked := append([]sent(nil), l.acked...)
	l.mu.Unlock()
	lost := l.n.lost(acked)
	t.Logf("control: a front that acknowledges before the commit lost %d of %d acknowledged events in %d kills; the front dropped %d", len(lost), len(acked), kills, front.dropped)
	require.NotEmpty(t, lost, "the ledgers did not see that acknowledged events were lost")
	require.LessOrEqual(t, len(lost), front.dropped)
	found := (&evidence{acked: acked, lost: lost}).judge()
	require.NotEmpty(t, found)
	require.Contains(t, strings.Join(found, "\n"), "is lost")
}
