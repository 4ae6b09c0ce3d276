package edge_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/edgetest"
)

func logTo(b *syncBuffer) *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

// line is a way to the outside that a test cuts. Handlers and probe use it.
type line struct {
	cut    atomic.Bool
	probes atomic.Int32
	mu     sync.Mutex
	calls  int // attempts
	active int
	most   []int // the most at once, of each second since the line came back
	back   time.Time
}

func (l *line) uplink() edge.Uplink {
	return edge.Uplink{Name: "wan", Interval: 30 * time.Second, Probe: func(context.Context) error {
		l.probes.Add(1)
		time.Sleep(100 * time.Millisecond)
		if l.cut.Load() {
			return errors.New("no route to host")
		}
		return nil
	}}
}

func (l *line) handle(context.Context, *edge.Claim) edge.Result {
	l.mu.Lock()
	l.calls++
	l.active++
	if !l.back.IsZero() {
		at := int(time.Since(l.back) / time.Second)
		for len(l.most) <= at {
			l.most = append(l.most, 0)
		}
		l.most[at] = max(l.most[at], l.active)
	}
	l.mu.Unlock()
	defer func() { l.mu.Lock(); l.active--; l.mu.Unlock() }()
	if l.cut.Load() {
		time.Sleep(5 * time.Millisecond)
		r := edge.TryAgain("dns_failed", "lookup failed")
		r.Blame = edge.BlameConnection
		return r
	}
	time.Sleep(time.Second)
	return edge.Done()
}

func (l *line) mostOfEachSecond() []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]int{}, l.most...)
}

func (l *line) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls
}

func (l *line) spec(name string) edge.HandlerSpec {
	h := handler(name, edge.Idempotent, l.handle)
	h.Retry, h.Breaker, h.Uplink, h.Concurrency = edge.RetryPolicy{MaxAttempts: 3}, edge.Breaker{Failures: 5}, "wan", 8
	return h
}

// D9: while we are offline nothing is attempted and nothing is charged, no breaker
// opens, and what waits goes out afterwards, slowly at first.
func TestD9_OfflineChargesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var l line
		var a told
		var log syncBuffer
		b := newBench(t, edge.Options{
			Handlers: []edge.HandlerSpec{l.spec("h"), a.spec()}, Router: edge.RouterFunc(alerts),
			Uplinks: []edge.Uplink{l.uplink()}, Logger: logTo(&log),
		}).start()
		for i := range 8 { // the slow start after the start of the node
			b.await(b.enqueue(fmt.Sprint("warm", i), fmt.Sprint("w", i)), edge.Succeeded)
		}
		require.Zero(t, l.probes.Load(), "nothing is probed while all is well")

		l.cut.Store(true)
		n := l.count()
		var ids []edge.DeliveryID
		for i := range 40 {
			ids = append(ids, b.enqueue(fmt.Sprint(i), fmt.Sprint("k", i)))
		}
		time.Sleep(10 * time.Second)
		require.LessOrEqual(t, l.count()-n, 8, "those under way when it was found out")
		n = l.count()
		state, ok := b.UplinkOf("h")
		require.True(t, ok)
		require.Equal(t, "no route to host", state.Detail)
		require.NotZero(t, state.DownMS)
		f, err := b.model.Facts(t.Context(), ids[30])
		require.NoError(t, err)
		f.Uplink = state
		require.Contains(t, edge.Explain(f, b.model.Clock().NowMS()), "The uplink wan of handler h is down since ")

		time.Sleep(24 * time.Hour)
		require.Equal(t, n, l.count(), "nothing is attempted")
		require.InDelta(t, 24*60*2, float64(l.probes.Load()), 60, "one probe each interval")
		for _, id := range ids {
			d := b.awaitNow(id, edge.Pending)
			require.Zero(t, d.Attempts, "nothing is charged")
		}
		require.Equal(t, []string{"fencepost.uplink.down"}, a.types())
		require.Zero(t, b.handlerInfo("h").Episode, "it does not count")
		require.Equal(t, edge.GateOn, b.handlerInfo("h").Gate)

		l.cut.Store(false)
		l.mu.Lock()
		l.back = time.Now()
		l.mu.Unlock()
		for _, id := range ids {
			d := b.await(id, edge.Succeeded)
			require.Zero(t, d.Attempts)
		}
		var ramp []int
		for _, n := range l.mostOfEachSecond() {
			if n > 0 {
				ramp = append(ramp, n)
			}
		}
		require.Equal(t, []int{1, 2}, ramp[:2])
		require.Equal(t, 8, ramp[len(ramp)/2])
		require.Equal(t, []string{"fencepost.uplink.down", "fencepost.uplink.up"}, a.types())
		require.Equal(t, 1, log.count("uplink is down"))
		require.Equal(t, 1, log.count("uplink is back"))
		b.finish()
	})
}

// D9: with the way out open, a name that does not resolve and a refused connection
// are the endpoint's fault: retried, charged and counted.
func TestD9_ConnectionFaultsCountWhileOnline(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var l line
		var a told
		h := l.spec("h")
		h.Handler = edge.HandlerFunc(func(context.Context, *edge.Claim) edge.Result {
			r := edge.TryAgain("connect_refused", "")
			r.Blame = edge.BlameConnection
			return r
		})
		h.Retry = patient
		b := newBench(t, edge.Options{Handlers: []edge.HandlerSpec{h, a.spec()}, Router: edge.RouterFunc(alerts), Uplinks: []edge.Uplink{l.uplink()}}).start()
		id := b.enqueue("1", "k")
		time.Sleep(time.Hour)
		require.GreaterOrEqual(t, b.awaitNow(id, edge.Pending).Attempts, 5)
		require.Equal(t, []string{"fencepost.handler.failing"}, a.types())
		require.EqualValues(t, b.awaitNow(id, edge.Pending).Attempts, l.probes.Load())
		b.finish()
	})
}

// A once effect of unknown outcome is a person's matter, offline or not; one that
// was not sent is deferred.
func TestOfflineAndOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var l line
		l.cut.Store(true)
		h := l.spec("h")
		h.Effect = edge.Once
		h.Handler = edge.HandlerFunc(func(_ context.Context, c *edge.Claim) edge.Result {
			r := edge.TryAgain("dns_failed", "")
			if c.Event.ID == "sent" {
				r = edge.Unknown("reply_timeout", "")
			}
			r.Blame = edge.BlameConnection
			return r
		})
		b := newBench(t, edge.Options{Handlers: []edge.HandlerSpec{h}, Uplinks: []edge.Uplink{l.uplink()}}).start()
		sent := b.enqueue("sent", "k1")
		require.Equal(t, edge.CodeOutcomeUnknown, b.await(sent, edge.Blocked).Code)
		other := b.enqueue("other", "k2")
		synctest.Wait()
		time.Sleep(time.Second)
		d := b.awaitNow(other, edge.Pending)
		require.Equal(t, edge.CodeUplinkDown, d.Code)
		require.Zero(t, d.Attempts)
		b.finish()
	})
}

// nodeOf is the node that a public id names.
func nodeOf(c *edge.Claim) string { return strings.Split(c.DeliveryID, "-")[1] }

// What expired while we were offline is never sent late.
func TestExpiredWhileOfflineIsNotSent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var l line
		sent := map[string]bool{}
		var mu sync.Mutex
		h := l.spec("h")
		h.Handler = edge.HandlerFunc(func(ctx context.Context, c *edge.Claim) edge.Result {
			r := l.handle(ctx, c)
			if r.Outcome == edge.OutcomeSucceeded && c.Event.Source != "fencepost/"+nodeOf(c) {
				mu.Lock()
				sent[c.Event.ID] = true
				mu.Unlock()
			}
			return r
		})
		b := newBench(t, edge.Options{Handlers: []edge.HandlerSpec{h}, Uplinks: []edge.Uplink{l.uplink()}, Router: edge.RouterFunc(func(e *edge.Event) []edge.Routed {
			to := edge.Routed{Handler: "h", Key: e.Subject}
			if e.Subject == "short" {
				to.TTLMS = time.Minute.Milliseconds()
			}
			return []edge.Routed{to}
		})}).start()
		l.cut.Store(true)
		var short, long []edge.DeliveryID
		for i := range 5 {
			short = append(short, b.enqueue(fmt.Sprint("s", i), "short"))
			long = append(long, b.enqueue(fmt.Sprint("l", i), fmt.Sprint("long", i)))
		}
		time.Sleep(time.Hour)
		l.cut.Store(false)
		for _, id := range long {
			b.await(id, edge.Succeeded)
		}
		for _, id := range short {
			b.await(id, edge.Expired)
		}
		mu.Lock()
		defer mu.Unlock()
		require.Len(t, sent, 5)
		for id := range sent {
			require.Equal(t, byte('l'), id[0])
		}
		b.finish()
	})
}

// Handlers and targets that share an uplink drain side by side: none waits until
// another is done.
func TestDrainIsFair(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var l line
		var mu sync.Mutex
		var order []string
		specs := []edge.HandlerSpec{l.spec("a"), l.spec("b")}
		for i := range specs {
			specs[i].Handler = edge.HandlerFunc(func(ctx context.Context, c *edge.Claim) edge.Result {
				r := l.handle(ctx, c)
				if r.Outcome == edge.OutcomeSucceeded {
					mu.Lock()
					order = append(order, c.Target.String())
					mu.Unlock()
				}
				return r
			})
		}
		b := newBench(t, edge.Options{Handlers: specs, Uplinks: []edge.Uplink{l.uplink()}, Router: edge.RouterFunc(func(e *edge.Event) []edge.Routed {
			return []edge.Routed{{Handler: e.Subject[:1], Key: e.Subject}}
		})}).start()
		l.cut.Store(true)
		probe := b.enqueue("probe", "a-probe")
		time.Sleep(time.Second)
		var ids []edge.DeliveryID
		for i := range 30 { // one huge target first, then small ones
			ids = append(ids, b.enqueue(fmt.Sprint("huge", i), "a-huge"))
		}
		for i := range 5 {
			ids = append(ids, b.enqueue(fmt.Sprint("a", i), fmt.Sprint("a-", i)), b.enqueue(fmt.Sprint("b", i), fmt.Sprint("b-", i)))
		}
		time.Sleep(time.Minute)
		l.cut.Store(false)
		for _, id := range append(ids, probe) {
			b.await(id, edge.Succeeded)
		}
		mu.Lock()
		defer mu.Unlock()
		small := 0
		for _, target := range order[:25] {
			if target != "a:a-huge" {
				small++
			}
		}
		require.Equal(t, 11, small, "the small targets and the other handler did not wait for the huge one: %v", order)
		b.finish()
	})
}

// A restart and a reload while we are offline neither lose that nor make it stick.
func TestOfflineAcrossRestartAndReload(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var l line
		o := edge.Options{Handlers: []edge.HandlerSpec{l.spec("h")}, Uplinks: []edge.Uplink{l.uplink()}}
		o.Router = to("h")
		b := newBench(t, o).start()
		l.cut.Store(true)
		var ids []edge.DeliveryID
		for i := range 20 {
			ids = append(ids, b.enqueue(fmt.Sprint(i), fmt.Sprint("k", i)))
		}
		time.Sleep(time.Minute)
		n := l.count()
		require.NoError(t, b.Reload(t.Context(), o))
		time.Sleep(time.Hour)
		require.LessOrEqual(t, l.count()-n, 0, "a reload attempts nothing")
		b.finish()

		n = l.count()
		c := benchOn(t, b.model.Open(nil), o).start()
		time.Sleep(time.Hour)
		require.Equal(t, 1, l.count()-n, "the first try tells")
		l.cut.Store(false)
		for _, id := range ids {
			require.Zero(t, c.await(id, edge.Succeeded).Attempts)
		}
		c.finish()
	})
}

// A stop while the uplink is probed is quick, and charges nothing.
func TestStopWhileProbing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var l line
		u := l.uplink()
		u.Probe = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		u.Timeout = 20 * time.Second
		l.cut.Store(true)
		o := edge.Options{Handlers: []edge.HandlerSpec{l.spec("h")}, Uplinks: []edge.Uplink{u}, ShutdownGrace: time.Second}
		b := newBench(t, o).start()
		id := b.enqueue("1", "k")
		time.Sleep(time.Second)
		began := time.Now()
		b.finish()
		require.Less(t, time.Since(began), 3*time.Second)
		d := b.awaitNow(id, edge.Pending)
		require.Zero(t, d.Attempts)
	})
}

// A handler's probe that panics is no way out, and the engine goes on.
func TestProbePanics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var l line
		u := l.uplink()
		u.Probe = func(context.Context) error {
			if l.cut.Load() {
				panic("boom")
			}
			return nil
		}
		l.cut.Store(true)
		o := edge.Options{Handlers: []edge.HandlerSpec{l.spec("h")}, Uplinks: []edge.Uplink{u}}
		b := newBench(t, o).start()
		id := b.enqueue("1", "k")
		time.Sleep(time.Minute)
		require.Contains(t, b.Uplinks()[0].Detail, "probe panicked")
		l.cut.Store(false)
		b.await(id, edge.Succeeded)
		require.Equal(t, []edge.UplinkState{{Name: "wan"}}, b.Uplinks())
		edgetest.CheckInvariants(t, b.model)
		b.finish()
	})
}
