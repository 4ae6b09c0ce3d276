package edge_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/edgetest"
)

// recorder is a handler that notes which revision of it was called for which
// event, and can be held.
type recorder struct {
	mu   sync.Mutex
	done map[string]string // revision by event id
	gate chan struct{}     // nil = does not wait
}

func newRecorder() *recorder { return &recorder{done: map[string]string{}} }

func (r *recorder) spec(name, revision string) edge.HandlerSpec {
	s := handler(name, edge.Idempotent, func(ctx context.Context, c *edge.Claim) edge.Result {
		if r.gate != nil {
			select {
			case <-r.gate:
			case <-ctx.Done():
			}
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.done[c.Event.ID] = revision
		return edge.Done()
	})
	s.Revision = revision
	return s
}

func (r *recorder) by(id string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.done[id]
}

func TestReload_WorkUnderWayEndsAsItBegan(t *testing.T) {
	bubble(t, func(t *testing.T) {
		rec := newRecorder()
		rec.gate = make(chan struct{})
		var retired atomic.Int32
		first := rec.spec("h", "one")
		first.Retired = func() { retired.Add(1) }
		b := newBench(t, only(first)).start()
		under := b.enqueue("1", "x")
		b.await(under, edge.Running)

		second := newRecorder()
		require.NoError(t, b.Reload(t.Context(), edge.Options{Handlers: []edge.HandlerSpec{second.spec("h", "two")}, Router: to("h")}))
		require.Zero(t, retired.Load(), "an execution is under way")
		b.await(b.enqueue("2", "y"), edge.Succeeded)
		require.Equal(t, "two", second.by("2"))
		require.Zero(t, retired.Load())
		close(rec.gate)
		b.await(under, edge.Succeeded)
		require.Equal(t, "one", rec.by("1"))
		require.EqualValues(t, 1, retired.Load(), "its last execution has ended")
		require.Equal(t, "one", b.executions(under)[0].Revision)
		b.finish()
		require.EqualValues(t, 1, retired.Load())
	})
}

func TestReload_AHandlerThatGoesKeepsItsWork(t *testing.T) {
	bubble(t, func(t *testing.T) {
		rec := newRecorder()
		var retired atomic.Int32
		gone := rec.spec("gone", "1")
		gone.Retired = func() { retired.Add(1) }
		both := edge.Options{Handlers: []edge.HandlerSpec{gone, rec.spec("stays", "1")}, Router: byType}
		b := newBench(t, both).start()
		_, err := b.SetGate(t.Context(), "gone", edge.GateOff, "test", 0)
		require.NoError(t, err)
		waiting := b.enqueueTo("1", "gone")
		require.NoError(t, b.Reload(t.Context(), edge.Options{Handlers: []edge.HandlerSpec{rec.spec("stays", "1")}, Router: byType}))
		require.EqualValues(t, 1, retired.Load(), "at once: nothing was under way")
		late := b.enqueueTo("2", "gone")
		b.await(b.enqueueTo("3", "stays"), edge.Succeeded)
		for _, id := range []edge.DeliveryID{waiting, late} {
			d, err := b.model.Delivery(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, edge.Pending, d.State)
		}
		require.NoError(t, b.Reload(t.Context(), both))
		_, err = b.SetGate(t.Context(), "gone", edge.GateOn, "", 0)
		require.NoError(t, err)
		b.await(waiting, edge.Succeeded)
		b.await(late, edge.Succeeded)
		b.finish()
	})
}

// byType routes an event to the handler that its type names.
var byType = edge.RouterFunc(func(e *edge.Event) []edge.Routed {
	return []edge.Routed{{Route: "by-type", Handler: e.Type, Key: edge.DefaultKey(e)}}
})

func (b *bench) enqueueTo(id, handler string) edge.DeliveryID {
	b.t.Helper()
	ev := edgetest.NewEvent(id, "k")
	ev.Type = handler
	a, err := b.Enqueue(b.t.Context(), ev)
	require.NoError(b.t, err)
	require.Len(b.t, a.Deliveries, 1)
	return a.Deliveries[0].ID
}

func TestReload_AChangedHandlerUnblocks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, only(handler("h", edge.Once, func(context.Context, *edge.Claim) edge.Result {
			return edge.Misconfigured("secret_missing", "")
		}))).start()
		id := b.enqueue("1", "x")
		b.await(id, edge.Blocked)
		require.NoError(t, b.Reload(t.Context(), edge.Options{Handlers: []edge.HandlerSpec{newRecorder().spec("h", "mended")}, Router: to("h")}))
		b.await(id, edge.Succeeded)
		b.finish()
	})
}

func TestReload_FailedRoutesAreAskedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		rec := newRecorder()
		faulty := edge.RouterFunc(func(*edge.Event) []edge.Routed {
			return []edge.Routed{{Route: "all", Handler: "h", Fault: "no such attribute"}}
		})
		b := newBench(t, edge.Options{Handlers: []edge.HandlerSpec{rec.spec("h", "1")}, Router: faulty}).start()
		id := b.enqueue("1", "x")
		b.await(id, edge.Blocked)
		require.NoError(t, b.Reload(t.Context(), edge.Options{Handlers: []edge.HandlerSpec{rec.spec("h", "1")}, Router: to("h")}))
		d := b.await(id, edge.Succeeded)
		require.Equal(t, "h:x", d.Target.String())
		b.finish()
	})
}

func TestReload_WhatIsRefusedChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		rec, never := newRecorder(), newRecorder()
		o := only(rec.spec("h", "1"))
		o.Router = to("h")
		b := newBench(t, o).start()
		for name, bad := range map[string]edge.Options{
			"a bad name":    {Handlers: []edge.HandlerSpec{never.spec("H", "2")}, Router: to("H")},
			"a name twice":  {Handlers: []edge.HandlerSpec{never.spec("h", "2"), never.spec("h", "2")}},
			"no handler":    {Handlers: []edge.HandlerSpec{{Name: "h"}}},
			"workers":       {Workers: -1},
			"another lease": {Handlers: []edge.HandlerSpec{never.spec("h", "2")}, Lease: 5 * time.Second},
		} {
			require.ErrorIs(t, b.Reload(t.Context(), bad), edge.ErrInvalid, name)
		}
		b.await(b.enqueue("1", "x"), edge.Succeeded)
		require.Equal(t, "1", rec.by("1"))

		// The store fails before or after its commit: both lead back.
		next := edge.Options{Handlers: []edge.HandlerSpec{never.spec("h", "2"), never.spec("new", "2")}, Router: to("new")}
		var retired atomic.Int32
		for i := range next.Handlers {
			next.Handlers[i].Retired = func() { retired.Add(1) }
		}
		for i, fail := range []func(string, int){b.model.FailNext, b.model.FailAfterNext} {
			fail("Register", 1)
			require.ErrorIs(t, b.Reload(t.Context(), next), edge.ErrUnavailable)
			id := fmt.Sprint("after-", i)
			d := b.await(b.enqueue(id, "x"), edge.Succeeded)
			require.Equal(t, "h", d.Target.Handler)
			require.Equal(t, "1", rec.by(id))
			require.EqualValues(t, 2*(i+1), retired.Load(), "the new ones are given up")
		}
		hs, err := b.model.Handlers(t.Context())
		require.NoError(t, err)
		require.Equal(t, "1", hs[0].Revision)
		require.NoError(t, b.Reload(t.Context(), next))
		b.await(b.enqueue("moved", "x"), edge.Succeeded)
		require.Equal(t, "2", never.by("moved"))
		b.finish()
		require.ErrorIs(t, b.Reload(context.Background(), next), edge.ErrClosed)
	})
}

func TestReload_LimitsChangeAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		rec := newRecorder()
		rec.gate = make(chan struct{})
		spec := rec.spec("h", "1")
		spec.Concurrency = 1
		b := newBench(t, only(spec)).start()
		ids := []edge.DeliveryID{b.enqueue("1", "a"), b.enqueue("2", "b"), b.enqueue("3", "c")}
		b.await(ids[0], edge.Running)
		require.Equal(t, 1, b.Status().Live)
		spec.Concurrency = 16
		require.NoError(t, b.Reload(t.Context(), edge.Options{Handlers: []edge.HandlerSpec{spec}, Router: to("h"), Workers: 2, MaxDataBytes: 1}))
		b.await(ids[1], edge.Running)
		require.Equal(t, 2, b.Status().Live, "the limit of all")
		ev := edgetest.NewEvent("large", "x")
		ev.Data = []byte("12")
		_, err := b.Enqueue(t.Context(), ev)
		require.ErrorIs(t, err, edge.ErrInvalid)
		close(rec.gate)
		b.await(ids[2], edge.Succeeded)
		b.finish()
	})
}

// A stubborn handler keeps its replaced slot over a reload.
func TestReload_KeepsReplacedSlots(t *testing.T) {
	bubble(t, func(t *testing.T) {
		release := make(chan struct{})
		var calls atomic.Int32
		spec := handler("h", edge.Idempotent, func(context.Context, *edge.Claim) edge.Result {
			if calls.Add(1) == 1 {
				<-release
			}
			return edge.Done()
		})
		spec.Concurrency, spec.Timeout, spec.Revision = 1, time.Second, "1"
		o := only(spec)
		o.Workers = 1
		b := newBench(t, o).start()
		b.await(b.enqueue("1", "a"), edge.Running)
		time.Sleep(10 * time.Second) // of virtual time: it is stubborn now
		b.await(b.enqueue("2", "b"), edge.Succeeded)
		o.Router = to("h")
		require.NoError(t, b.Reload(t.Context(), o))
		b.await(b.enqueue("3", "c"), edge.Succeeded)
		close(release)
		b.finish()
	})
}

// Events are accepted and delivered while handlers and routes change under them:
// each goes wholly by one router, and none is lost.
func TestReload_UnderLoad(t *testing.T) {
	t.Parallel()
	const rounds, senders, each = 30, 4, 50
	m := edgetest.NewModel(nil)
	var retired, made atomic.Int32
	var current atomic.Int64 // generation in force
	options := func(n int64) edge.Options {
		rec := newRecorder()
		// Generation n routes each event to two targets of its own name.
		var specs []edge.HandlerSpec
		for _, name := range []string{"a", "b"} {
			s := rec.spec(name, fmt.Sprint(n))
			made.Add(1)
			s.Retired = func() { retired.Add(1) }
			specs = append(specs, s)
		}
		return edge.Options{Handlers: specs, Router: edge.RouterFunc(func(e *edge.Event) []edge.Routed {
			key := fmt.Sprint(e.ID, "-", n)
			return []edge.Routed{{Route: "a", Handler: "a", Key: key}, {Route: "b", Handler: "b", Key: key}}
		})}
	}
	b := benchOn(t, m, options(0)).start()
	var mu sync.Mutex
	var accepted []edge.Accepted
	overlapped := 0 // accepts during which a reload came
	var sending sync.WaitGroup
	for s := range senders {
		sending.Go(func() {
			for i := range each {
				before := current.Load()
				a, err := b.Enqueue(context.Background(), edgetest.NewEvent(fmt.Sprintf("%d-%d", s, i), "k"))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				accepted = append(accepted, a)
				if current.Load() != before {
					overlapped++
				}
				mu.Unlock()
			}
		})
	}
	// Go on until reloads have met accepts.
	done := make(chan struct{})
	go func() { sending.Wait(); close(done) }()
	n := int64(0)
	for open := true; open || n < rounds; {
		n++
		require.NoError(t, b.Reload(t.Context(), options(n)))
		current.Store(n)
		select {
		case <-done:
			open = false
		default:
		}
	}
	require.Len(t, accepted, senders*each)
	for _, a := range accepted {
		require.Len(t, a.Deliveries, 2)
		require.Equal(t, a.Deliveries[0].Target.Key, a.Deliveries[1].Target.Key, "both by one router")
		for _, d := range a.Deliveries {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			_, err := b.tap.AwaitState(ctx, d.ID, edge.Succeeded)
			cancel()
			require.NoError(t, err)
		}
	}
	require.Positive(t, overlapped)
	b.finish()
	require.Equal(t, made.Load()-2, retired.Load(), "all but those in force")
}

func TestReload_BeforeTheStartAndAfterAFault(t *testing.T) {
	bubble(t, func(t *testing.T) {
		rec := newRecorder()
		b := newBench(t, only(newRecorder().spec("h", "1")))
		id := b.enqueue("1", "x")
		require.NoError(t, b.Reload(t.Context(), edge.Options{Handlers: []edge.HandlerSpec{rec.spec("h", "2")}, Router: to("h")}))
		_, err := b.DispatchOnce(t.Context(), 1)
		require.NoError(t, err)
		b.await(id, edge.Succeeded)
		require.Equal(t, "2", rec.by("1"))
		b.model.Break()
		err = b.Reload(t.Context(), only(rec.spec("h", "3")))
		require.ErrorIs(t, err, edge.ErrStorage)
		_, _ = b.Stop(context.Background())
	})
}
