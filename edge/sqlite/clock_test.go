package sqlite_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/edgetest"
	"fencepost/edge/sqlite"
)

// host is a host's clock in a bubble: its wall part can be stepped while its
// monotonic part goes on.
type host struct {
	began time.Time
	mu    sync.Mutex
	wall  time.Duration // whole seconds
}

var withMono = time.Now() // times in a bubble have no monotonic part

func (h *host) step(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wall += d
}

// now is a time whose two parts disagree, which no public function makes: in
// memory the first word holds the wall seconds, above 30 bits of nanoseconds.
func (h *host) now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := withMono.Add(time.Since(h.began))
	*(*uint64)(unsafe.Pointer(&t)) += uint64(h.wall/time.Second) << 30
	return t
}

const (
	clockTTL   = 2 * time.Hour // of what may expire
	clockKeep  = 3 * time.Hour // of what may be pruned
	clockGive  = 2 * time.Hour // of what may be given up
	clockPause = 10 * time.Minute
	clockDelay = 30 * time.Second // the largest retry delay
	clockSoon  = 33*time.Second + 6*time.Second
)

// stage is a store with a row in every state, and an engine that works on it.
type stage struct {
	t      *testing.T
	ctx    context.Context
	path   string
	host   *host
	store  *sqlite.Store
	tap    *edgetest.Tap
	e      *edge.Engine
	rows   map[string]edge.DeliveryID
	final  map[string]edge.Delivery // as they were before the clock stepped
	hold   *edgetest.Latch          // running and leased work goes on when it is released
	mended atomic.Bool              // route, configuration and outcomes are well now
	synced atomic.Bool              // the host's clock is synchronised
	early  int64
}

func newStage(t *testing.T) *stage {
	s := &stage{t: t, ctx: context.Background(), path: dbPath(t), host: &host{began: time.Now()},
		rows: map[string]edge.DeliveryID{}, final: map[string]edge.Delivery{}, hold: edgetest.NewLatch()}
	s.open()
	return s
}

// open opens the file and starts an engine, as a process does.
func (s *stage) open() {
	s.t.Helper()
	var err error
	s.store, err = sqlite.Open(s.path, sqlite.Options{Clock: edge.NewClock(s.host.now), Durability: sqlite.DurabilityNormal})
	require.NoError(s.t, err)
	s.tap = edgetest.NewTap(s.store)
	revision := "v1"
	if s.mended.Load() {
		revision = "v2"
	}
	handler := func(name string, effect edge.Effect) edge.HandlerSpec {
		return edge.HandlerSpec{Name: name, Effect: effect, Revision: revision, Handler: edge.HandlerFunc(s.handle),
			Retry: edge.RetryPolicy{Base: clockDelay, Max: clockDelay, MaxAttempts: 100, GiveUpAfter: clockGive}, Timeout: time.Hour}
	}
	look := handler("look", edge.Once)
	look.Handler = inspected{look.Handler, func() { <-s.hold.Released() }}
	s.e, err = edge.New(s.tap, edge.Options{
		Handlers: []edge.HandlerSpec{handler("work", edge.Idempotent), handler("once", edge.Once), handler("shut", edge.Idempotent),
			handler("pause", edge.Idempotent), look},
		Router: edge.RouterFunc(s.route), Retention: edge.Retention{Succeeded: clockKeep, Failed: clockKeep, Dedupe: clockKeep}, InspectTimeout: time.Hour,
		ShutdownGrace: time.Second, StubbornAfter: time.Second, EarliestMS: s.early, ClockSynced: s.synced.Load,
		Jitter: func() float64 { return 0.99 },
	})
	require.NoError(s.t, err)
	require.NoError(s.t, s.e.Start(s.ctx))
}

func (s *stage) close() {
	s.t.Helper()
	_, err := s.e.Stop(s.ctx)
	require.NoError(s.t, err)
	edgetest.CheckInvariants(s.t, s.store)
	require.NoError(s.t, s.store.Close())
}

type inspected struct {
	edge.Handler
	wait func()
}

func (h inspected) Inspect(context.Context, *edge.Claim) edge.Inspection {
	h.wait()
	return edge.Inspection{}
}

func (s *stage) route(e *edge.Event) []edge.Routed {
	r := edge.Routed{Route: "all", Handler: e.Type, Key: e.Subject, TTLMS: clockTTL.Milliseconds()}
	switch e.ID {
	case "route":
		if !s.mended.Load() {
			r.Fault = "the key failed"
		}
	case "expired":
		r.TTLMS = 1000
	}
	return []edge.Routed{r}
}

func (s *stage) handle(_ context.Context, c *edge.Claim) edge.Result {
	switch c.Event.ID {
	case "retry", "doubted-retry":
		if c.Attempt == 1 {
			return edge.TryAgain("busy", "")
		}
	case "running", "doubted-running":
		if c.Attempt == 1 {
			<-s.hold.Released()
			return edge.TryAgain("busy", "")
		}
	case "failed":
		return edge.GiveUp("no", "")
	case "config":
		if !s.mended.Load() {
			return edge.Misconfigured("secret_missing", "")
		}
	case "outcome":
		if !s.mended.Load() {
			return edge.Unknown("cut", "")
		}
	}
	return edge.Done()
}

// add accepts an event under a target of its own.
func (s *stage) add(handler, id string) edge.DeliveryID {
	s.t.Helper()
	a, err := s.e.Enqueue(s.ctx, eventFor(handler, id, id))
	require.NoError(s.t, err)
	s.rows[id] = a.Deliveries[0].ID
	synctest.Wait()
	return a.Deliveries[0].ID
}

func (s *stage) row(id string) edge.Delivery {
	s.t.Helper()
	d, err := s.store.Delivery(s.ctx, s.rows[id])
	require.NoError(s.t, err, "delivery %q was removed", id)
	return d
}

func (s *stage) is(state edge.State, ids ...string) {
	s.t.Helper()
	for _, id := range ids {
		d := s.row(id)
		require.Equal(s.t, state, d.State, "delivery %q (%s), due in %s", id, d.Code, time.Duration(d.DueMS-s.store.Clock().NowMS())*time.Millisecond)
	}
}

func (s *stage) gate(name string, g edge.Gate, resume time.Duration) {
	s.t.Helper()
	ms := int64(0)
	if resume > 0 {
		ms = s.store.Clock().NowMS() + resume.Milliseconds()
	}
	_, err := s.e.SetGate(s.ctx, name, g, "test", ms)
	require.NoError(s.t, err)
}

// fill puts a row in every state.
func (s *stage) fill() {
	s.t.Helper()
	s.gate("shut", edge.GateOff, 0)
	s.gate("pause", edge.GatePaused, clockPause)
	s.add("shut", "held")
	require.NoError(s.t, s.store.HoldForTest(s.ctx, s.rows["held"]))
	s.add("shut", "due")
	s.add("shut", "cancelled")
	_, err := s.e.Cancel(s.ctx, s.rows["cancelled"])
	require.NoError(s.t, err)
	s.add("shut", "expired")
	s.add("pause", "paused")
	for _, id := range []string{"succeeded", "failed", "running", "config", "route"} {
		s.add("work", id)
	}
	s.add("once", "outcome")
	s.add("look", "leased")
	time.Sleep(2 * time.Second) // bubble time: past the short deadline
	s.add("work", "retry")
	synctest.Wait()
	for state, ids := range map[edge.State][]string{
		edge.Held: {"held"}, edge.Pending: {"due", "paused", "retry"}, edge.Leased: {"leased"}, edge.Running: {"running"},
		edge.Blocked: {"outcome", "config", "route"}, edge.Succeeded: {"succeeded"}, edge.Failed: {"failed"},
		edge.Cancelled: {"cancelled"}, edge.Expired: {"expired"},
	} {
		s.is(state, ids...)
	}
	for _, id := range []string{"succeeded", "failed", "cancelled", "expired"} {
		s.final[id] = s.row(id)
	}
}

// unharmed requires that nothing was expired, given up, pruned or forgotten.
func (s *stage) unharmed() {
	s.t.Helper()
	for id := range s.rows {
		if was, ok := s.final[id]; ok {
			require.Equal(s.t, was, s.row(id))
			continue
		}
		require.NotContains(s.t, []edge.State{edge.Expired, edge.Failed, edge.Cancelled}, s.row(id).State, "delivery %q: %s", id, s.row(id).Code)
	}
	a, err := s.e.Enqueue(s.ctx, eventFor("work", "succeeded", "succeeded"))
	require.NoError(s.t, err)
	require.True(s.t, a.Existing, "the event was forgotten")
}

// ended takes out what ended in 1970: it is old and may go, but that its event was
// taken is not forgotten.
func (s *stage) ended(ids ...string) {
	s.t.Helper()
	s.is(edge.Succeeded, ids...)
	for _, id := range ids {
		require.Less(s.t, s.row(id).FinishedMS, s.early)
		delete(s.rows, id)
	}
}

// still are those of ids that have not been taken out.
func (s *stage) still(ids ...string) []string {
	return slices.DeleteFunc(ids, func(id string) bool { return s.rows[id] == 0 })
}

// finish mends all that holds work up, in the life of a process and by its
// restart, and requires that every open row ends within the largest delay.
func (s *stage) finish() {
	s.t.Helper()
	s.hold.Release()
	s.gate("shut", edge.GateOn, 0)
	time.Sleep(clockSoon)
	s.is(edge.Succeeded, s.still("due", "paused", "leased")...)
	time.Sleep(clockSoon) // its first attempt has ended after the step
	s.is(edge.Succeeded, s.still("running", "doubted-running")...)
	s.is(edge.Held, "held")
	s.is(edge.Blocked, "outcome", "config", "route")
	s.mended.Store(true)
	fresh, err := s.e.Resolve(s.ctx, edge.Resolution{Delivery: s.rows["outcome"], Version: s.row("outcome").Version, As: edge.ResolveRetry, Reason: "looked", By: "me"})
	require.NoError(s.t, err)
	s.rows["outcome"] = fresh.ID
	s.close()
	s.open()
	time.Sleep(clockSoon)
	s.is(edge.Succeeded, "outcome", "config", "route")
	s.is(edge.Held, "held")
	s.unharmed()
}

func clockTest(t *testing.T, f func(s *stage)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		defer func() {
			s.hold.Release()
			if !t.Failed() {
				s.close()
				return
			}
			_, _ = s.e.Stop(s.ctx)
			_ = s.store.Close()
		}()
		f(s)
	})
}

// TestClockStepsLoseNothing has a row in every state and steps the wall clock
// both ways. Nothing expires, is given up or pruned while the clock is doubted,
// nothing is stuck after a step back, and the doubt ends by a person's word or
// when the clock is synchronised.
func TestClockStepsLoseNothing(t *testing.T) {
	t.Parallel()
	const day, years = 24 * time.Hour, 10 * 365 * 24 * time.Hour
	for name, tc := range map[string]struct {
		step    time.Duration
		doubted bool
	}{
		"an hour forward":   {time.Hour, false},
		"an hour back":      {-time.Hour, false},
		"a day forward":     {day, true},
		"a day back":        {-day, false},
		"ten years forward": {years, true},
		"ten years back":    {-years, false},
	} {
		t.Run(name, func(t *testing.T) {
			clockTest(t, func(s *stage) {
				s.fill()
				s.host.step(tc.step)
				time.Sleep(clockSoon)
				require.Equal(t, tc.doubted, s.e.Status().Doubted)
				s.is(edge.Succeeded, "retry")
				s.is(edge.Running, "running")
				s.is(edge.Leased, "leased")
				time.Sleep(20 * time.Minute) // expiry and pruning have had their turns
				s.is(edge.Succeeded, "paused")
				s.is(edge.Pending, "due")
				s.is(edge.Held, "held")
				s.unharmed()
				if tc.doubted {
					s.host.step(-tc.step) // it was wrong, and is set right
					time.Sleep(10 * time.Second)
					require.True(t, s.e.Status().Doubted, "until someone says that it is right")
					s.e.ConfirmClock()
					require.False(t, s.e.Status().Doubted)
				}
				s.finish()
			})
		})
	}
}

// TestClockStepThatIsRightEndsWhatIsTooLate confirms a step of a day: what stood
// still in the doubt is done then.
func TestClockStepThatIsRightEndsWhatIsTooLate(t *testing.T) {
	clockTest(t, func(s *stage) {
		s.fill()
		s.host.step(24 * time.Hour)
		time.Sleep(20 * time.Minute)
		require.True(t, s.e.Status().Doubted)
		s.unharmed()
		s.e.ConfirmClock()
		time.Sleep(6 * time.Second)
		s.is(edge.Expired, "due", "held")
		time.Sleep(10 * time.Minute)
		for id := range s.final {
			_, err := s.store.Delivery(s.ctx, s.rows[id])
			require.ErrorIs(t, err, edge.ErrNotFound, "%s is older than it is kept", id)
		}
		s.hold.Release()
	})
}

// TestClockThatStartsIn1970 is a board without a battery: it goes on with its
// rows in 1970, takes new ones and starts them, and is synchronised later.
func TestClockThatStartsIn1970(t *testing.T) {
	clockTest(t, func(s *stage) {
		s.fill()
		s.hold.Release()
		time.Sleep(time.Second)
		s.is(edge.Succeeded, "leased")
		s.is(edge.Pending, "running", "retry")
		s.close()
		s.hold = edgetest.NewLatch()
		s.early = withMono.UnixMilli() - 1000
		back := -time.Duration(withMono.Unix()-3600) * time.Second // an hour into 1970
		s.host.step(back)
		s.open()
		require.True(t, s.e.Status().Doubted)
		s.add("shut", "doubted-due")
		s.add("work", "doubted-running")
		s.add("work", "doubted-retry")
		s.add("work", "doubted-done")
		time.Sleep(clockSoon)
		s.is(edge.Succeeded, "retry", "doubted-retry", "doubted-done")
		s.is(edge.Running, "doubted-running")
		time.Sleep(20 * time.Minute)
		s.is(edge.Succeeded, "paused", "running")
		s.unharmed()

		s.host.step(-back)
		s.synced.Store(true)
		time.Sleep(6 * time.Second)
		require.False(t, s.e.Status().Doubted)
		s.unharmed()
		left := time.Duration(s.row("doubted-due").ExpiresMS-s.store.Clock().NowMS()) * time.Millisecond
		require.InDelta(t, clockTTL-20*time.Minute-clockSoon, left, float64(10*time.Second), "its deadline moved with the step")
		left = time.Duration(s.row("due").ExpiresMS-s.store.Clock().NowMS()) * time.Millisecond
		require.InDelta(t, clockTTL-20*time.Minute-clockSoon, left, float64(20*time.Second), "that of a row from before did not")
		s.ended("retry", "paused", "running", "doubted-retry", "doubted-done")
		time.Sleep(15 * time.Minute) // expiry and pruning have had their turns
		s.unharmed()
		a, err := s.e.Enqueue(s.ctx, eventFor("work", "doubted-done", "doubted-done"))
		require.NoError(t, err)
		require.True(t, a.Existing, "the identity of an event from the doubt is kept")
		s.finish()
		s.is(edge.Succeeded, "doubted-due", "doubted-running")
	})
}
