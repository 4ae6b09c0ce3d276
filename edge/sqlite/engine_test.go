package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/edgetest"
	"fencepost/edge/sqlite"
)

// engineLease is the shortest that an engine takes.
const engineLease = time.Second

// spec is an idempotent handler that is a function.
func spec(name string, f edge.HandlerFunc) edge.HandlerSpec {
	return edge.HandlerSpec{Name: name, Handler: f, Effect: edge.Idempotent,
		Retry: edge.RetryPolicy{Base: time.Millisecond, Max: time.Millisecond, MaxAttempts: 10_000}}
}

// byType routes an event to the handler that its type names.
var byType = edge.RouterFunc(func(e *edge.Event) []edge.Routed {
	return []edge.Routed{{Route: "all", Handler: e.Type, Key: e.Subject}}
})

func eventFor(h, id, key string) edge.Event {
	e := edgetest.NewEvent(id, key)
	e.Type = h
	return e
}

// machine is an engine on a store of its own.
type machine struct {
	t     *testing.T
	ctx   context.Context
	path  string
	store *sqlite.Store
	tap   *edgetest.Tap
	*edge.Engine
}

// newMachine makes an engine, not started, in real time. The test ends with the
// engine's stop and the full check.
func newMachine(t *testing.T, path string, so sqlite.Options, o edge.Options) *machine {
	t.Helper()
	if so.Clock == nil {
		so.Clock = edge.NewClock(nil)
	}
	s := openAt(t, path, so)
	tap := edgetest.NewTap(s)
	if o.Router == nil {
		o.Router = byType
	}
	e, err := edge.New(tap, o)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute) // a hang guard
	t.Cleanup(func() {
		_, err := e.Stop(ctx)
		require.NoError(t, err)
		cancel()
	})
	return &machine{t: t, ctx: ctx, path: path, store: s, tap: tap, Engine: e}
}

func (m *machine) start() *machine {
	m.t.Helper()
	require.NoError(m.t, m.Start(m.ctx))
	return m
}

// enqueue accepts an event and returns its only delivery.
func (m *machine) enqueue(h, id, key string) edge.DeliveryID {
	m.t.Helper()
	a, err := m.Enqueue(m.ctx, eventFor(h, id, key))
	require.NoError(m.t, err)
	require.Len(m.t, a.Deliveries, 1)
	return a.Deliveries[0].ID
}

func (m *machine) await(id edge.DeliveryID, s edge.State) edge.Delivery {
	m.t.Helper()
	d, err := m.tap.AwaitState(m.ctx, id, s)
	require.NoError(m.t, err)
	return d
}

func (m *machine) until(what string, ok func() bool) {
	m.t.Helper()
	require.Eventually(m.t, ok, 3*time.Minute, time.Millisecond, what)
}

// pass waits until real time has passed.
func (m *machine) pass(d time.Duration) {
	m.t.Helper()
	end := m.store.Clock().Mono() + d
	m.until("time passes", func() bool { return m.store.Clock().Mono() >= end })
}

// hits counts the calls of a handler by event.
type hits struct {
	mu sync.Mutex
	of map[string]int
}

func (h *hits) add(c *edge.Claim) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.of == nil {
		h.of = map[string]int{}
	}
	h.of[c.Event.ID]++
}

func (h *hits) all() (n, most int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range h.of {
		n += k
		most = max(most, k)
	}
	return n, most
}

// TestR4_ACommitSlowerThanTheLease makes commits of claims, and then of results,
// take longer than the lease, while the target answers at once and another
// delivery keeps the heartbeat going. What the target did is recorded; it is
// asked once.
func TestR4_ACommitSlowerThanTheLease(t *testing.T) {
	t.Parallel()
	const rounds, each = 2, 20
	var target hits
	long := edgetest.NewLatch()
	answers := make(chan struct{}, rounds*each)
	m := newMachine(t, dbPath(t), sqlite.Options{}, edge.Options{Lease: engineLease, Handlers: []edge.HandlerSpec{
		spec("fast", func(_ context.Context, c *edge.Claim) edge.Result {
			target.add(c)
			answers <- struct{}{}
			return edge.Done()
		}),
		spec("long", edgetest.NewScript(edgetest.Ignore(long, edgetest.Succeed())).Handle),
	}}).start()
	other := m.enqueue("long", "long", "k")
	m.await(other, edge.Running)

	var ids []edge.DeliveryID
	for round := range rounds {
		var evs []edge.Event
		for i := range each {
			evs = append(evs, eventFor("fast", fmt.Sprintf("%d-%d", round, i), fmt.Sprint("k", i)))
		}
		// The claims are made in the accepting transaction, which hangs.
		first := m.store.HoldUpForTest()
		accepted := make(chan []edge.Accepted, 1)
		go func() {
			as, err := m.EnqueueBatch(m.ctx, evs)
			if err == nil {
				accepted <- as
			}
			close(accepted)
		}()
		m.until("the accept waits", func() bool { return m.store.QueuedForTest() >= 1 })
		second := make(chan func(), 1)
		queued := m.store.QueuedForTest()
		go func() { second <- m.store.HoldUpForTest() }()
		m.until("the transaction will hang", func() bool { return m.store.QueuedForTest() > queued })
		first()
		release := <-second
		m.pass(engineLease * 3 / 2)
		release()
		as := <-accepted
		require.Len(t, as, each)
		for _, a := range as {
			ids = append(ids, a.Deliveries[0].ID)
		}
		// The results meet the next one.
		select {
		case <-answers:
		case <-m.ctx.Done():
			require.Fail(t, "the target is not asked")
		}
		release = m.store.HoldUpForTest()
		m.pass(engineLease * 3 / 2)
		release()
	}
	for _, id := range ids {
		d := m.await(id, edge.Succeeded)
		require.Zero(t, d.Losses, "delivery %d", id)
	}
	n, most := target.all()
	require.Equal(t, rounds*each, n)
	require.Equal(t, 1, most, "the target was asked again for what it had done")
	d, err := m.store.Delivery(m.ctx, other)
	require.NoError(t, err)
	require.Equal(t, edge.Running, d.State)
	long.Release()
	d = m.await(other, edge.Succeeded)
	require.Zero(t, d.Losses)
	require.Equal(t, 1, d.Executions)
}

// TestR4_R12_R44_BusyWhileResultsAreStored lets another program hold the write
// lock of the file three times, each time for longer than the lease and than the
// store waits for it, while results are to be stored. They are held, and stored
// in the end with their follow-up events; the handler is not called again.
func TestR4_R12_R44_BusyWhileResultsAreStored(t *testing.T) {
	t.Parallel()
	const rounds, targets = 3, 4
	var target hits
	answer := make(chan *edgetest.Latch, 1)
	latch := edgetest.NewLatch()
	answer <- latch
	current := func() *edgetest.Latch { l := <-answer; answer <- l; return l }
	m := newMachine(t, dbPath(t), sqlite.Options{}, edge.Options{Lease: engineLease, Handlers: []edge.HandlerSpec{
		{Name: "once", Effect: edge.Once, Handler: edge.HandlerFunc(func(ctx context.Context, c *edge.Claim) edge.Result {
			target.add(c)
			<-current().Released()
			return edge.Done(eventFor("next", c.Event.ID+"+", "k"))
		})},
		spec("next", func(_ context.Context, c *edge.Claim) edge.Result { target.add(c); return edge.Done() }),
	}}).start()
	other := raw(t, m.path)
	for round := range rounds {
		var ids []edge.DeliveryID
		for i := range targets {
			ids = append(ids, m.enqueue("once", fmt.Sprintf("%d-%d", round, i), fmt.Sprint("k", i)))
		}
		for _, id := range ids {
			m.await(id, edge.Running)
		}
		lock, err := other.BeginTx(m.ctx, &sql.TxOptions{})
		require.NoError(t, err)
		_, err = lock.Exec(`UPDATE settings SET value = value`)
		require.NoError(t, err)
		current().Release()
		m.until("a result was refused and is held", func() bool { return m.Status().Held > 0 })
		require.NoError(t, lock.Rollback())
		for _, id := range ids {
			d := m.await(id, edge.Succeeded)
			require.Zero(t, d.Losses)
			require.Equal(t, 1, d.Executions)
		}
		require.NoError(t, m.tap.AwaitCount(m.ctx, edge.Succeeded, 2*(round+1)*targets), "each follow-up event, once")
		<-answer
		answer <- edgetest.NewLatch()
	}
	n, most := target.all()
	require.Equal(t, 2*rounds*targets, n)
	require.Equal(t, 1, most)
	c, err := m.store.Counters(m.ctx)
	require.NoError(t, err)
	require.Equal(t, int64(2*rounds*targets), c["starts"], "handler starts are those that are stored")
	require.Zero(t, m.Totals().Lost)
}

// TestR36_ADeadTargetTakesNothingFromTheOthers works off a backlog in rounds of
// one slot per target, with one target dead and with all alive. The live ones
// are done in the same number of rounds, in order, and none is left out of one.
func TestR36_ADeadTargetTakesNothingFromTheOthers(t *testing.T) {
	t.Parallel()
	const live, each = 9, 20
	served := func(t *testing.T, dead edge.HandlerFunc) (rounds int, deadCalls int, order map[string][]string) {
		var mu sync.Mutex
		order = map[string][]string{}
		m := newMachine(t, dbPath(t), sqlite.Options{Durability: sqlite.DurabilityNormal}, edge.Options{Workers: live + 1, Handlers: []edge.HandlerSpec{
			spec("hook", func(ctx context.Context, c *edge.Claim) edge.Result {
				mu.Lock()
				order[c.Target.Key] = append(order[c.Target.Key], c.Event.ID)
				mu.Unlock()
				if c.Target.Key == "dead" {
					return dead(ctx, c)
				}
				return edge.Done()
			})}})
		var evs []edge.Event
		for i := range each {
			evs = append(evs, eventFor("hook", fmt.Sprint("dead-", i), "dead")) // always first in line
			for k := range live {
				evs = append(evs, eventFor("hook", fmt.Sprintf("%d-%d", k, i), fmt.Sprint("live", k)))
			}
		}
		as, err := m.EnqueueBatch(m.ctx, evs)
		require.NoError(t, err)
		require.Len(t, as, len(evs))
		for done := 0; done < live*each; rounds++ {
			_, err := m.DispatchOnce(m.ctx, live+1)
			require.NoError(t, err)
			done = 0
			for k := range live {
				n := len(order[fmt.Sprint("live", k)])
				require.Equal(t, rounds+1, n, "target live%d in round %d", k, rounds+1)
				done += n
			}
		}
		return rounds, len(order["dead"]), order
	}
	alone, _, _ := served(t, func(context.Context, *edge.Claim) edge.Result { return edge.Done() })
	rounds, deadCalls, order := served(t, func(context.Context, *edge.Claim) edge.Result { return edge.TryAgain("refused", "") })
	require.Equal(t, each, alone)
	require.Equal(t, alone, rounds)
	for k := range live {
		for i, id := range order[fmt.Sprint("live", k)] {
			require.Equal(t, fmt.Sprintf("%d-%d", k, i), id)
		}
	}
	require.Positive(t, deadCalls)
	for _, id := range order["dead"] {
		require.Equal(t, "dead-0", id, "its line waits for its head")
	}
}

// TestR36_ATargetThatHangsTakesNothingFromTheOthers has one target that never
// answers: with all of its line waiting, every other delivery is done meanwhile.
func TestR36_ATargetThatHangsTakesNothingFromTheOthers(t *testing.T) {
	t.Parallel()
	const live, each = 9, 20
	hang := edgetest.NewLatch()
	script := edgetest.NewScript()
	for i := range each {
		script.For(fmt.Sprint("dead-", i), edgetest.Block(hang, edgetest.Succeed()))
	}
	m := newMachine(t, dbPath(t), sqlite.Options{}, edge.Options{Handlers: []edge.HandlerSpec{
		{Name: "hook", Handler: script, Effect: edge.Idempotent, Concurrency: 3},
	}}).start()
	var evs []edge.Event
	for i := range each {
		evs = append(evs, eventFor("hook", fmt.Sprint("dead-", i), "dead"))
		for k := range live {
			evs = append(evs, eventFor("hook", fmt.Sprintf("%d-%d", k, i), fmt.Sprint("live", k)))
		}
	}
	_, err := m.EnqueueBatch(m.ctx, evs)
	require.NoError(t, err)
	require.NoError(t, m.tap.AwaitCount(m.ctx, edge.Succeeded, live*each))
	next := map[string]int{}
	for _, c := range script.Calls() {
		if c.Target.Key != "dead" {
			require.Equal(t, fmt.Sprintf("%s-%d", c.Target.Key[len("live"):], next[c.Target.Key]), c.Event.ID)
		}
		next[c.Target.Key]++
	}
	require.Equal(t, 1, next["dead"], "one call, which still hangs")
	m.until("nothing else is left", func() bool { return m.Status().Live == 1 })
	hang.Release()
	require.NoError(t, m.tap.AwaitCount(m.ctx, edge.Succeeded, (live+1)*each))
	m.tap.History().Check(t, m.store)
}

// TestQ6_AnEndedEventIsNamedAndRunsAgainByRedrive lets an event fail for good, and
// calls another off. Accepting the same again answers "existing" and names what
// there is; a redrive is the way to run it again, at once and under the same
// idempotency key.
func TestQ6_AnEndedEventIsNamedAndRunsAgainByRedrive(t *testing.T) {
	t.Parallel()
	script := edgetest.NewScript().For("fails", edgetest.Fail("no"), edgetest.Succeed())
	m := newMachine(t, dbPath(t), sqlite.Options{}, edge.Options{Handlers: []edge.HandlerSpec{{Name: "hook", Handler: script, Effect: edge.Idempotent}}}).start()
	again := func(id string, want edge.DeliveryID, state edge.State) {
		t.Helper()
		calls := len(script.Calls())
		a, err := m.Enqueue(m.ctx, eventFor("hook", id, id))
		require.NoError(t, err)
		require.True(t, a.Existing)
		require.Contains(t, a.Deliveries, edge.DeliveryRef{ID: want, Target: edge.Target{Handler: "hook", Key: id}, State: state})
		require.Len(t, script.Calls(), calls)
	}
	failed := m.enqueue("hook", "fails", "fails")
	m.await(failed, edge.Failed)
	_, err := m.SetGate(m.ctx, "hook", edge.GateOff, edge.CodePausedByOperator, 0)
	require.NoError(t, err)
	off := m.enqueue("hook", "off", "off")
	again("off", off, edge.Pending) // a live one
	d, err := m.Cancel(m.ctx, off)
	require.NoError(t, err)
	require.Equal(t, edge.Cancelled, d.State)
	_, err = m.SetGate(m.ctx, "hook", edge.GateOn, "", 0)
	require.NoError(t, err)

	for id, old := range map[string]edge.DeliveryID{"fails": failed, "off": off} {
		was, err := m.store.Delivery(m.ctx, old)
		require.NoError(t, err)
		again(id, old, was.State)
		fresh, err := m.Redrive(m.ctx, edge.Redrive{Delivery: old})
		require.NoError(t, err)
		require.Equal(t, 2, fresh.Generation)
		require.Equal(t, old, fresh.KeyOf)
		m.await(fresh.ID, edge.Succeeded)
		again(id, old, was.State) // what accepting made; its redrives are listed with the event
		now, err := m.store.Delivery(m.ctx, old)
		require.NoError(t, err)
		require.Equal(t, was, now)
	}
	require.Len(t, script.Calls(), 3)
	m.tap.History().Check(t, m.store)
}
