package edge_test

import (
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/edgetest"
)

// stepper is a time source whose wall clock can be stepped while monotonic time
// goes on as it does.
type stepper struct {
	start time.Time // of the bubble
	mu    sync.Mutex
	step  time.Duration // whole seconds
}

func (s *stepper) by(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.step += d
}

// withMono is a time with a monotonic part, which times in a bubble lack.
var withMono = time.Now()

// newStepper is made inside the bubble, whose time it follows.
func newStepper() *stepper { return &stepper{start: time.Now()} }

// now is the bubble's time with a monotonic part, and the wall part moved. No
// public function makes a time whose two parts disagree, as a stepped host's do;
// in memory the first word holds the wall seconds, above 30 bits of nanoseconds.
func (s *stepper) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := withMono.Add(time.Since(s.start))
	*(*uint64)(unsafe.Pointer(&t)) += uint64(s.step/time.Second) << 30
	return t
}

func TestClockFindsSteps(t *testing.T) {
	for _, tc := range []struct {
		name    string
		step    time.Duration
		found   bool
		doubted bool
	}{
		{"none", 0, false, false},
		{"within the threshold", 5 * time.Second, false, false},
		{"forward", 6 * time.Second, true, false},
		{"backward", -6 * time.Second, true, false},
		{"an hour back", -time.Hour, true, false},
		{"three hours forward", 3 * time.Hour, true, false},
		{"more than three hours forward", 3*time.Hour + time.Second, true, true},
		{"a day back", -24 * time.Hour, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				host := newStepper()
				c := edge.NewClock(host.now)
				start := c.NowMS()
				time.Sleep(90 * time.Second)
				host.by(tc.step)
				require.Equal(t, start+90_000, c.NowMS(), "a step does not show until it is looked for")
				require.Equal(t, 90*time.Second, c.Mono())
				found := c.Check()
				if !tc.found {
					require.Zero(t, found)
					require.Equal(t, start+90_000, c.NowMS())
					return
				}
				require.Equal(t, tc.step, found)
				require.Equal(t, start+90_000+tc.step.Milliseconds(), c.NowMS())
				require.Equal(t, 90*time.Second, c.Mono(), "no step moves the monotonic time")
				require.Equal(t, tc.doubted, c.Doubted())
				time.Sleep(time.Second)
				require.Zero(t, c.Check(), "a step is found once")
				require.Equal(t, 91*time.Second, c.Mono())
				c.Confirm()
				require.False(t, c.Doubted())
			})
		})
	}
}

// steppedBench has a host clock that can be stepped.
func steppedBench(t *testing.T, o edge.Options) (*bench, *stepper) {
	host := newStepper()
	return benchOn(t, edgetest.NewModel(edge.NewClock(host.now)), o), host
}

func TestBackwardStepLeavesNothingInTheFarFuture(t *testing.T) {
	bubble(t, func(t *testing.T) {
		script := edgetest.NewScript(edgetest.Retry("not_yet"), edgetest.Succeed())
		o := only(handler("h", edge.Idempotent, script.Handle))
		o.Handlers[0].Retry = edge.RetryPolicy{Base: 20 * time.Second, Max: 30 * time.Second}
		b, host := steppedBench(t, o)
		b.start()
		begun := time.Now()
		id := b.enqueue("1", "k")
		b.awaitNow(id, edge.Pending)
		host.by(-24 * time.Hour)
		b.awaitNow(id, edge.Succeeded)
		require.Less(t, time.Since(begun), time.Minute, "a retry waits for its delay, not for a day")
		b.finish()
	})
}

func TestClockSetBackWhileNoProcessRan(t *testing.T) {
	bubble(t, func(t *testing.T) {
		script := edgetest.NewScript(edgetest.Retry("not_yet"), edgetest.Succeed())
		o := only(handler("h", edge.Idempotent, script.Handle))
		o.Handlers[0].Retry = edge.RetryPolicy{Base: 20 * time.Second, Max: 30 * time.Second}
		b, host := steppedBench(t, o)
		b.start()
		id := b.enqueue("1", "k")
		b.awaitNow(id, edge.Pending)
		b.finish()
		b.model.Kill()
		host.by(-24 * time.Hour)
		b = benchOn(t, b.model.Open(edge.NewClock(host.now)), o).start()
		begun := time.Now()
		b.awaitNow(id, edge.Succeeded)
		require.Less(t, time.Since(begun), time.Minute)
		b.finish()
	})
}

func TestForwardStepOfADoubtedClockMovesDeadlines(t *testing.T) {
	bubble(t, func(t *testing.T) {
		synced := make(chan struct{})
		o := only(handler("h", edge.Idempotent, edgetest.NewScript(edgetest.Retry("busy")).Handle))
		o.Handlers[0].Retry = edge.RetryPolicy{Base: time.Hour, Max: time.Hour}
		o.EarliestMS = withMono.Add(time.Hour).UnixMilli() // the clock reads before the build
		o.ClockSynced = func() bool {
			select {
			case <-synced:
				return true
			default:
				return false
			}
		}
		o.Router = edge.RouterFunc(func(*edge.Event) []edge.Routed {
			return []edge.Routed{{Route: "r", Handler: "h", TTLMS: (10 * time.Minute).Milliseconds()}}
		})
		b, host := steppedBench(t, o)
		b.start()
		id := b.enqueue("1", "k")
		b.awaitNow(id, edge.Pending)
		require.True(t, b.Status().Doubted)
		time.Sleep(6 * time.Second)
		host.by(1000 * time.Hour)
		time.Sleep(20 * time.Second)
		require.True(t, b.Status().Doubted, "not synchronised yet")
		d, err := b.model.Delivery(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, edge.Pending, d.State, "nothing expires while the clock is doubted")
		require.InDelta(t, b.model.Clock().NowMS()+10*60_000-26_000, d.ExpiresMS, 1000, "the deadline moved with the step")
		close(synced)
		b.awaitNow(id, edge.Expired)
		require.False(t, b.Status().Doubted)
		require.InDelta(t, d.ExpiresMS, b.model.Clock().NowMS(), 10)
		b.finish()
	})
}

func TestClockThatReadsTooEarlyIsDoubtedUntilSomeoneConfirms(t *testing.T) {
	bubble(t, func(t *testing.T) {
		o := only(handler("h", edge.Idempotent, edgetest.NewScript(edgetest.Retry("busy")).Handle))
		o.Handlers[0].Retry = edge.RetryPolicy{Base: time.Hour, Max: time.Hour}
		b, _ := steppedBench(t, o)
		b.model.Clock().Doubt()
		b.start()
		ev := edgetest.NewEvent("1", "k")
		ev.Extensions = map[string]string{"expirytime": withMono.Add(time.Minute).Format(time.RFC3339)}
		a, err := b.Enqueue(t.Context(), ev)
		require.NoError(t, err)
		time.Sleep(10 * time.Minute)
		d, err := b.model.Delivery(t.Context(), a.Deliveries[0].ID)
		require.NoError(t, err)
		require.Equal(t, edge.Pending, d.State)
		b.ConfirmClock()
		b.awaitNow(a.Deliveries[0].ID, edge.Expired)
		b.finish()
	})
}
