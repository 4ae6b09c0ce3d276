package edge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/edgetest"
)

// alerts routes what the node says of itself to a handler of its own, and all
// else to h.
func alerts(e *edge.Event) []edge.Routed {
	if len(e.Type) > len(edge.NoticePrefix) && e.Type[:len(edge.NoticePrefix)] == edge.NoticePrefix {
		return []edge.Routed{{Route: "alerts", Handler: "alert", Key: e.ID}}
	}
	return []edge.Routed{{Route: "all", Handler: "h", Key: e.Subject}}
}

// told collects the events that the handler "alert" is given.
type told struct {
	mu  sync.Mutex
	all []edge.Event
}

func (a *told) spec() edge.HandlerSpec {
	return handler("alert", edge.Idempotent, func(_ context.Context, c *edge.Claim) edge.Result {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.all = append(a.all, *c.Event)
		return edge.Done()
	})
}

func (a *told) types() (types []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.all {
		types = append(types, e.Type)
	}
	return types
}

func (a *told) first() edge.Event {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all[0]
}

// atOnce counts how many are inside at once.
type atOnce struct {
	mu           sync.Mutex
	active, most int
}

func (a *atOnce) enter() (leave func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.active++
	a.most = max(a.most, a.active)
	return func() { a.mu.Lock(); a.active--; a.mu.Unlock() }
}

// reset returns the most at once since the last reset.
func (a *atOnce) reset() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	most := a.most
	a.most = 0
	return most
}

func (a *told) count(typ string) (n int) {
	for _, t := range a.types() {
		if t == edge.NoticePrefix+typ {
			n++
		}
	}
	return n
}

// patient is a policy under which nothing is given up.
var patient = edge.RetryPolicy{Schedule: []time.Duration{time.Second}, GiveUpAfter: 1000 * time.Hour}

// D9: eight failures at once step over a threshold of five. The handler rests
// once, one alert is told, and one when it works again.
func TestD9_ManyFailuresAtOnceAreOneEpisode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log syncBuffer
		var a told
		var dead atomic.Bool
		dead.Store(true)
		var at atOnce
		meet := make(chan struct{})
		var waiting atomic.Int32
		h := handler("h", edge.Idempotent, func(_ context.Context, c *edge.Claim) edge.Result {
			defer at.enter()()
			if c.Attempt == 1 && waiting.Add(1) == 8 {
				close(meet)
			}
			<-meet
			if dead.Load() {
				return edge.TryAgain("http_500", "")
			}
			return edge.Done()
		})
		h.Retry, h.Breaker, h.Concurrency = patient, edge.Breaker{Failures: 5}, 8
		b := newBench(t, edge.Options{Handlers: []edge.HandlerSpec{h, a.spec()}, Router: edge.RouterFunc(alerts), Logger: logTo(&log)}).start()
		var ids []edge.DeliveryID
		for i := range 8 {
			ids = append(ids, b.enqueue(fmt.Sprint(i), fmt.Sprint("k", i)))
		}
		synctest.Wait()
		require.Equal(t, 8, at.reset())
		info := b.handlerInfo("h")
		require.Equal(t, edge.GatePaused, info.Gate)
		require.Equal(t, edge.CodeEndpointFailing, info.GateCode)
		require.Equal(t, 5, info.Episode.Failures)
		require.Equal(t, []string{"fencepost.handler.failing"}, a.types())

		time.Sleep(10 * time.Minute)
		require.Equal(t, 1, at.reset(), "one at a time is tried")
		require.Equal(t, []string{"fencepost.handler.failing"}, a.types())
		tries := 0
		for _, id := range ids {
			d, err := b.model.Delivery(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, edge.Pending, d.State)
			tries += d.Attempts
		}
		require.LessOrEqual(t, tries, 8+9, "a rest of 5 s, then twice as long each time, at most 5 min")
		require.GreaterOrEqual(t, tries, 8+5)

		dead.Store(false)
		for _, id := range ids {
			b.await(id, edge.Succeeded)
		}
		require.Equal(t, []string{"fencepost.handler.failing", "fencepost.handler.recovered"}, a.types())
		require.Zero(t, b.handlerInfo("h").Episode)
		require.Equal(t, 1, log.count("handler is failing"))
		require.Equal(t, 1, log.count("handler has recovered"))
		b.finish()
	})
}

func (b *bench) handlerInfo(name string) edge.HandlerInfo {
	b.t.Helper()
	hs, err := b.model.Handlers(context.Background())
	require.NoError(b.t, err)
	for _, h := range hs {
		if h.Name == name {
			return h
		}
	}
	require.Fail(b.t, "no handler "+name)
	return edge.HandlerInfo{}
}

// What the event says, and that it is accepted under the node's own source, which
// nobody else may use.
func TestNoticesAreOrdinaryEvents(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var a told
		h := handler("h", edge.Idempotent, func(context.Context, *edge.Claim) edge.Result { return edge.TryAgain("http_500", "") })
		h.Retry, h.Breaker = patient, edge.Breaker{Failures: 1}
		b := newBench(t, edge.Options{Handlers: []edge.HandlerSpec{h, a.spec()}, Router: edge.RouterFunc(alerts)}).start()
		b.enqueue("1", "k")
		synctest.Wait()
		require.Len(t, a.types(), 1)
		e := a.first()
		require.Equal(t, "fencepost/"+b.model.Node(), e.Source)
		require.Equal(t, "h", e.Subject)
		require.Equal(t, "application/json", e.ContentType)
		var data map[string]any
		require.NoError(t, json.Unmarshal(e.Data, &data))
		require.Equal(t, "h", data["handler"])
		require.EqualValues(t, 1, data["failures"])
		require.Equal(t, "http_500", data["code"])
		require.EqualValues(t, b.handlerInfo("h").Episode.BeganMS, data["since_ms"])
		forged := e
		forged.ID = "forged"
		_, err := b.Enqueue(t.Context(), forged)
		require.ErrorIs(t, err, edge.ErrInvalid)
		require.ErrorContains(t, err, "source")
		b.Notify(edge.Notice{Type: "test.fact", ID: e.ID, Data: 1}) // told before, whatever it says now
		b.Notify(edge.Notice{Type: "test.fact", ID: "new", Data: 1})
		synctest.Wait()
		require.Equal(t, []string{"fencepost.handler.failing", "fencepost.test.fact"}, a.types())
		b.finish()
	})
}

// An alert about the handler that delivers alerts does not multiply.
func TestAlertsAboutTheAlertHandlerDoNotMultiply(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var alertsTried atomic.Int32
		h := handler("h", edge.Idempotent, func(_ context.Context, c *edge.Claim) edge.Result {
			if c.Event.Type == "fencepost.handler.failing" {
				alertsTried.Add(1)
			}
			return edge.TryAgain("down", "")
		})
		h.Retry, h.Breaker, h.Concurrency = patient, edge.Breaker{Failures: 2}, 1
		b := newBench(t, only(h)).start() // every event goes to h, those about h too
		b.enqueue("1", "k")
		time.Sleep(24 * time.Hour)
		ds, err := b.model.Deliveries(t.Context(), edge.DeliveryFilter{})
		require.NoError(t, err)
		require.Len(t, ds, 2, "the event, and one alert")
		require.Positive(t, alertsTried.Load())
		b.finish()
	})
}

// An episode outlives a restart: it is not told again, the handler is tried one at
// a time, and what was not told before is told now.
func TestEpisodeOutlivesARestart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var a told
		var dead atomic.Bool
		dead.Store(true)
		var at atOnce
		h := handler("h", edge.Idempotent, func(context.Context, *edge.Claim) edge.Result {
			defer at.enter()()
			time.Sleep(10 * time.Millisecond)
			if dead.Load() {
				return edge.TryAgain("http_500", "")
			}
			return edge.Done()
		})
		h.Retry, h.Breaker = patient, edge.Breaker{Failures: 3}
		o := edge.Options{Handlers: []edge.HandlerSpec{h, a.spec()}, Router: edge.RouterFunc(alerts)}
		b := newBench(t, o).start()
		var ids []edge.DeliveryID
		for i := range 12 {
			ids = append(ids, b.enqueue(fmt.Sprint(i), fmt.Sprint("k", i)))
		}
		time.Sleep(time.Minute)
		require.Equal(t, 1, a.count("handler.failing"))
		b.finish()

		require.Greater(t, at.reset(), 1)
		c := benchOn(t, b.model.Open(nil), o).start()
		time.Sleep(time.Minute)
		require.Equal(t, 1, at.reset())
		require.Equal(t, 1, a.count("handler.failing"))
		c.finish()

		dead.Store(false)
		d := benchOn(t, b.model.Open(nil), o)
		// A crash between the episode and its event: the event is told at the start.
		require.NoError(t, d.model.SetEpisode(t.Context(), "alert", edge.Episode{BeganMS: 5, SinceMS: 5, Failures: 1, Code: "x"}))
		d.start()
		for _, id := range ids {
			d.await(id, edge.Succeeded)
		}
		require.Equal(t, 1, a.count("handler.recovered"))
		d.finish()
		f := benchOn(t, b.model.Open(nil), o).start()
		time.Sleep(time.Second)
		require.Equal(t, 1, a.count("handler.failing"), "nothing weighs the results of the alert handler: its episode is over")
		require.Zero(t, f.handlerInfo("alert").Episode)
		f.finish()
	})
}

// A gate goes off after a long failure, once, and its work is held uncharged. An
// operator who opens it gives it its patience anew.
func TestGateGoesOffAfterLongFailure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var a told
		var dead atomic.Bool
		dead.Store(true)
		var calls atomic.Int32
		h := handler("h", edge.Idempotent, func(context.Context, *edge.Claim) edge.Result {
			calls.Add(1)
			if dead.Load() {
				return edge.TryAgain("http_500", "")
			}
			return edge.Done()
		})
		h.Retry, h.Breaker, h.Concurrency = patient, edge.Breaker{Failures: 2, GateOffAfter: 10 * time.Hour}, 1
		b := newBench(t, edge.Options{Handlers: []edge.HandlerSpec{h, a.spec()}, Router: edge.RouterFunc(alerts)}).start()
		id := b.enqueue("1", "k")
		time.Sleep(9 * time.Hour)
		require.Equal(t, edge.GatePaused, b.handlerInfo("h").Gate)
		time.Sleep(2 * time.Hour)
		info := b.handlerInfo("h")
		require.Equal(t, edge.GateOff, info.Gate)
		require.Equal(t, edge.CodeFailingTooLong, info.GateCode)
		require.Equal(t, []string{"fencepost.handler.failing", "fencepost.handler.gate_off"}, a.types())
		before := b.awaitNow(id, edge.Pending)
		n := calls.Load()
		time.Sleep(100 * time.Hour)
		require.Equal(t, before, b.awaitNow(id, edge.Pending), "held, and not charged")
		require.Equal(t, n, calls.Load())

		_, err := b.SetGate(t.Context(), "h", edge.GateOn, "", 0)
		require.NoError(t, err)
		time.Sleep(9 * time.Hour)
		require.Greater(t, calls.Load(), n)
		require.Equal(t, edge.GatePaused, b.handlerInfo("h").Gate, "its patience began anew")
		dead.Store(false)
		b.await(id, edge.Succeeded)
		require.Equal(t, []string{"fencepost.handler.failing", "fencepost.handler.gate_off", "fencepost.handler.recovered"}, a.types())
		b.finish()
	})
}

// 410: the gate goes off, that is told once however many hear it, and the work is
// held uncharged. It needs no breaker.
func TestGoneEndpointIsToldOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var a told
		meet := make(chan struct{})
		var n atomic.Int32
		h := handler("h", edge.Idempotent, func(context.Context, *edge.Claim) edge.Result {
			if n.Add(1) == 8 {
				close(meet)
			}
			<-meet
			return edge.Result{Outcome: edge.OutcomeDeferred, Code: edge.CodeEndpointGone, GateOff: true}
		})
		b := newBench(t, edge.Options{Handlers: []edge.HandlerSpec{h, a.spec()}, Router: edge.RouterFunc(alerts)}).start()
		for i := range 8 {
			b.enqueue(fmt.Sprint(i), fmt.Sprint("k", i))
		}
		time.Sleep(time.Hour)
		require.EqualValues(t, 8, n.Load())
		require.Equal(t, []string{"fencepost.handler.gate_off"}, a.types())
		ds, err := b.model.Deliveries(t.Context(), edge.DeliveryFilter{Handler: "h"})
		require.NoError(t, err)
		for _, d := range ds {
			require.Equal(t, edge.Pending, d.State)
			require.Zero(t, d.Attempts)
		}
		b.finish()
	})
}

// An endpoint that asks for patience works: 429 neither counts nor resets.
func TestPatienceIsNoFailure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var a told
		h := handler("h", edge.Idempotent, func(context.Context, *edge.Claim) edge.Result {
			return edge.Result{Outcome: edge.OutcomeRetry, Code: "http_429", Pause: time.Second, Blame: edge.BlameNone}
		})
		h.Retry, h.Breaker = patient, edge.Breaker{Failures: 2}
		b := newBench(t, edge.Options{Handlers: []edge.HandlerSpec{h, a.spec()}, Router: edge.RouterFunc(alerts)}).start()
		id := b.enqueue("1", "k")
		time.Sleep(time.Hour)
		require.Greater(t, b.awaitNow(id, edge.Pending).Attempts, 100)
		require.Empty(t, a.types())
		b.finish()
	})
}

// An endpoint that answers one of ten opens the breaker as well, and one that
// answers nine of ten does not.
func TestMostlyFailingEndpoint(t *testing.T) {
	for _, c := range []struct {
		good     int // of ten
		episodes int
	}{{1, 1}, {9, 0}} {
		t.Run(fmt.Sprint(c.good), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var a told
				var n atomic.Int32
				h := handler("h", edge.Idempotent, func(context.Context, *edge.Claim) edge.Result {
					if int(n.Add(1))%10 < c.good {
						return edge.Done()
					}
					return edge.TryAgain("http_500", "")
				})
				h.Retry, h.Concurrency, h.Breaker = patient, 1, edge.Breaker{Failures: 10}
				b := newBench(t, edge.Options{Handlers: []edge.HandlerSpec{h, a.spec()}, Router: edge.RouterFunc(alerts)}).start()
				for i := range 200 {
					b.enqueue(fmt.Sprint(i), fmt.Sprint("k", i))
				}
				time.Sleep(10 * time.Minute)
				require.Greater(t, n.Load(), int32(30))
				require.Equal(t, c.episodes, a.count("handler.failing"))
				b.finish()
			})
		})
	}
}

// R36: nine live handlers beside a dead one are served as if it were not there:
// each delivery is claimed in the very moment in which it is accepted.
func TestR36_ADeadEndpointAndNineLiveOnes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var served, late atomic.Int32
		var specs []edge.HandlerSpec
		for i := range 10 {
			name := fmt.Sprint("h", i)
			h := handler(name, edge.Idempotent, func(_ context.Context, c *edge.Claim) edge.Result {
				if name == "h0" {
					time.Sleep(20 * time.Second) // it never answers
					return edge.Unknown("reply_timeout", "")
				}
				served.Add(1)
				if time.Now().UnixMilli() != c.Event.AcceptedMS {
					late.Add(1)
				}
				return edge.Done()
			})
			h.Retry, h.Breaker = patient, edge.Breaker{Failures: 5}
			specs = append(specs, h)
		}
		b := newBench(t, edge.Options{Handlers: specs, Workers: 64, Router: edge.RouterFunc(func(e *edge.Event) []edge.Routed {
			return []edge.Routed{{Handler: e.Subject, Key: e.ID}}
		})}).start()
		for round := range 100 {
			for i := range 10 {
				b.enqueue(fmt.Sprint(round, "-", i), fmt.Sprint("h", i))
			}
			time.Sleep(time.Second)
		}
		require.EqualValues(t, 900, served.Load())
		require.Zero(t, late.Load())
		require.NotZero(t, b.handlerInfo("h0").Episode)
		b.finish()
	})
}

// R36: one dead target beside nine live ones of the same handler: the live ones
// are served in the moment in which their events are accepted, and no episode
// begins.
func TestR36_ADeadTargetAndNineLiveOnesOfOneHandler(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var served, late atomic.Int32
		h := handler("h", edge.Idempotent, func(_ context.Context, c *edge.Claim) edge.Result {
			if c.Target.Key == "k0" {
				return edge.TryAgain("http_500", "")
			}
			served.Add(1)
			if time.Now().UnixMilli() != c.Event.AcceptedMS {
				late.Add(1)
			}
			return edge.Done()
		})
		h.Retry, h.Breaker = patient, edge.Breaker{Failures: 5}
		b := newBench(t, only(h)).start()
		for round := range 100 {
			for i := range 10 {
				b.enqueue(fmt.Sprint(round, "-", i), fmt.Sprint("k", i))
			}
			time.Sleep(time.Second)
		}
		require.EqualValues(t, 900, served.Load())
		require.Zero(t, late.Load())
		require.Zero(t, b.handlerInfo("h").Episode)
		b.finish()
	})
}

// R24: a handler that leaves the configuration while it fails keeps its deliveries
// parked, and its episode goes on when it comes back.
func TestR24_AHandlerThatLeavesParksItsDeliveries(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var a told
		var dead atomic.Bool
		dead.Store(true)
		h := handler("h", edge.Idempotent, func(context.Context, *edge.Claim) edge.Result {
			if dead.Load() {
				return edge.TryAgain("http_500", "")
			}
			return edge.Done()
		})
		h.Retry, h.Breaker = patient, edge.Breaker{Failures: 2}
		with := edge.Options{Handlers: []edge.HandlerSpec{h, a.spec()}, Router: edge.RouterFunc(alerts)}
		without := edge.Options{Handlers: []edge.HandlerSpec{a.spec()}, Router: edge.RouterFunc(alerts)}
		b := newBench(t, with).start()
		id := b.enqueue("1", "k")
		time.Sleep(time.Minute)
		require.NoError(t, b.Reload(t.Context(), without))
		before := b.awaitNow(id, edge.Pending)
		time.Sleep(24 * time.Hour)
		require.Equal(t, before, b.awaitNow(id, edge.Pending))
		dead.Store(false)
		require.NoError(t, b.Reload(t.Context(), with))
		b.await(id, edge.Succeeded)
		require.Equal(t, []string{"fencepost.handler.failing", "fencepost.handler.recovered"}, a.types())
		b.finish()
	})
}

// What failed in an earlier revision of a handler's configuration counts no more:
// after a reload, and after a restart, it is tried at once.
func TestAMendedHandlerIsTriedAtOnce(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint(restart), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var a told
				options := func(revision string, answer edge.Result) edge.Options {
					h := handler("h", edge.Idempotent, func(context.Context, *edge.Claim) edge.Result { return answer })
					h.Retry, h.Breaker, h.Revision = patient, edge.Breaker{Failures: 2}, revision
					return edge.Options{Handlers: []edge.HandlerSpec{h, a.spec()}, Router: edge.RouterFunc(alerts)}
				}
				b := newBench(t, options("1", edge.TryAgain("http_404", ""))).start()
				id := b.enqueue("1", "k")
				for b.handlerInfo("h").ResumeMS-b.model.Clock().NowMS() < 4*time.Minute.Milliseconds() {
					time.Sleep(time.Second)
				}
				began := time.Now()
				if restart {
					b.finish()
					b = benchOn(t, b.model.Open(nil), options("2", edge.Done())).start()
				} else {
					require.NoError(t, b.Reload(t.Context(), options("2", edge.Done())))
				}
				b.await(id, edge.Succeeded)
				require.Less(t, time.Since(began), time.Minute)
				require.Equal(t, []string{"fencepost.handler.failing", "fencepost.handler.recovered"}, a.types())
				b.finish()
			})
		})
	}
}

func TestBreakerAndUplinkOptionsAreJudged(t *testing.T) {
	t.Parallel()
	ok := func(context.Context, *edge.Claim) edge.Result { return edge.Done() }
	probe := func(context.Context) error { return nil }
	for name, o := range map[string]edge.Options{
		"Breaker.Failures":     {Handlers: []edge.HandlerSpec{{Name: "h", Handler: edge.HandlerFunc(ok), Breaker: edge.Breaker{Failures: -1}}}},
		"Breaker.GateOffAfter": {Handlers: []edge.HandlerSpec{{Name: "h", Handler: edge.HandlerFunc(ok), Breaker: edge.Breaker{GateOffAfter: time.Hour}}}},
		"Rate.Burst":           {Handlers: []edge.HandlerSpec{{Name: "h", Handler: edge.HandlerFunc(ok), Rate: edge.Rate{Interval: time.Second}}}},
		"Rate.Interval":        {Handlers: []edge.HandlerSpec{{Name: "h", Handler: edge.HandlerFunc(ok), Rate: edge.Rate{Interval: 11, Burst: 1}}}},
		`none is named "wan"`:  {Handlers: []edge.HandlerSpec{{Name: "h", Handler: edge.HandlerFunc(ok), Uplink: "wan"}}},
		"Probe: must be set":   {Uplinks: []edge.Uplink{{Name: "wan"}}},
		"Interval: 1s":         {Uplinks: []edge.Uplink{{Name: "wan", Probe: probe, Interval: time.Second}}},
		"Timeout: 1m0s":        {Uplinks: []edge.Uplink{{Name: "wan", Probe: probe, Timeout: time.Minute}}},
		"the name is used":     {Uplinks: []edge.Uplink{{Name: "wan", Probe: probe}, {Name: "wan", Probe: probe}}},
	} {
		_, err := edge.New(edgetest.NewModel(nil), o)
		require.ErrorIs(t, err, edge.ErrInvalid, name)
		require.ErrorContains(t, err, name)
	}
}
