package edge_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"fencepost/edge"
	"fencepost/edge/edgetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a store, an engine on it and what they were made of.
type bench struct {
	t     *testing.T
	model *edgetest.Model
	tap   *edgetest.Tap
	*edge.Engine
}

// newBench makes an engine on a new model store. Events go to the first handler
// under their default key unless o has a router.
func newBench(t *testing.T, o edge.Options) *bench {
	t.Helper()
	return benchOn(t, edgetest.NewModel(nil), o)
}

func benchOn(t *testing.T, m *edgetest.Model, o edge.Options) *bench {
	t.Helper()
	if o.Router == nil && len(o.Handlers) > 0 {
		o.Router = to(o.Handlers[0].Name)
	}
	tap := edgetest.NewTap(m)
	e, err := edge.New(tap, o)
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = e.Stop(context.Background()) })
	return &bench{t: t, model: m, tap: tap, Engine: e}
}

// to routes every event to one handler under its default key.
func to(handler string) edge.Router {
	return edge.RouterFunc(func(e *edge.Event) []edge.Routed {
		return []edge.Routed{{Route: "all", Handler: handler, Key: edge.DefaultKey(e)}}
	})
}

// handler is the specification of a handler that is a function.
func handler(name string, effect edge.Effect, f edge.HandlerFunc) edge.HandlerSpec {
	return edge.HandlerSpec{Name: name, Handler: f, Effect: effect}
}

func only(h edge.HandlerSpec) edge.Options {
	return edge.Options{Handlers: []edge.HandlerSpec{h}, Jitter: func() float64 { return 0 }}
}

func (b *bench) start() *bench {
	b.t.Helper()
	require.NoError(b.t, b.Start(b.t.Context()))
	return b
}

// enqueue accepts an event and returns its only delivery.
func (b *bench) enqueue(id, key string) edge.DeliveryID {
	b.t.Helper()
	a, err := b.Enqueue(b.t.Context(), edgetest.NewEvent(id, key))
	require.NoError(b.t, err)
	require.Len(b.t, a.Deliveries, 1)
	return a.Deliveries[0].ID
}

// await waits, with a hang guard, until the delivery was in the state and all that
// follows of itself has happened: of a running one, the handler has been called.
func (b *bench) await(id edge.DeliveryID, states ...edge.State) edge.Delivery {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 48*time.Hour)
	defer cancel()
	d, err := b.tap.AwaitState(ctx, id, states...)
	require.NoError(b.t, err)
	synctest.Wait()
	return d
}

// awaitNow waits until the delivery is in the state.
func (b *bench) awaitNow(id edge.DeliveryID, state edge.State) edge.Delivery {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 48*time.Hour)
	defer cancel()
	var d edge.Delivery
	err := b.tap.Await(ctx, func([]edge.Change) bool {
		var err error
		d, err = b.model.Delivery(ctx, id)
		return err == nil && d.State == state
	})
	require.NoError(b.t, err)
	return d
}

func (b *bench) executions(id edge.DeliveryID) []edge.Execution {
	b.t.Helper()
	xs, err := b.model.Executions(context.Background(), id)
	require.NoError(b.t, err)
	return xs
}

// finish stops the engine and checks the store.
func (b *bench) finish() edge.Summary {
	b.t.Helper()
	s, err := b.Stop(context.Background())
	require.NoError(b.t, err)
	edgetest.CheckInvariants(b.t, b.model)
	b.tap.History().Check(b.t, b.model)
	return s
}

// bubble runs f in virtual time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

// times collects moments of virtual time.
type times struct {
	mu sync.Mutex
	at []time.Time
}

func (s *times) mark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = append(s.at, time.Now())
}

func (s *times) all() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]time.Time(nil), s.at...)
}
