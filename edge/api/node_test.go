package api_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
	_ "time/tzdata"

	"fencepost/edge"
	"fencepost/edge/api"
	"fencepost/edge/edgetest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// zoneHelper makes this test binary print a stamp in the zone of TZ.
const zoneHelper = "API_TEST_PRINT_STAMP"

func TestMain(m *testing.M) {
	if os.Getenv(zoneHelper) != "" {
		fmt.Print(api.Stamp(1_700_000_000_123).String(), " ", time.UnixMilli(0).Format("-0700"))
		os.Exit(0)
	}
	// net/http keeps a closed connection for half a second, so that the caller
	// gets the answer.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// node is an engine on a model store: real rules, no disk.
type node struct {
	*edge.Engine
	edge.Reader
	keeper
	model *edgetest.Model

	ready error
	probe func(context.Context) error
	// accept, when set, answers instead of the engine.
	accept func(context.Context, []edge.Event) ([]edge.Accepted, error)
	// fail, when set, is what every read of deliveries answers.
	fail   error
	reload func() (api.Reloaded, error)
}

const handlerName = "greet"

// newNode returns a node that routes every event to handler greet, keyed by
// subject. Its engine is not started, so deliveries stay pending.
func newNode(t testing.TB) *node {
	t.Helper()
	m := edgetest.NewModel(edge.ManualClock(1_700_000_000_000))
	e, err := edge.New(m, edge.Options{
		Handlers: []edge.HandlerSpec{{
			Name:    handlerName,
			Handler: edge.HandlerFunc(func(context.Context, *edge.Claim) edge.Result { return edge.Unknown("odd", "") }),
		}},
		Router: edge.RouterFunc(func(ev *edge.Event) []edge.Routed {
			return []edge.Routed{{Route: "all", Handler: handlerName, Key: edge.DefaultKey(ev)}}
		}),
	})
	require.NoError(t, err)
	n := &node{Engine: e, Reader: m, model: m, probe: func(ctx context.Context) error {
		_, err := m.Counters(ctx)
		return err
	}}
	t.Cleanup(func() {
		_, _ = e.Stop(context.Background())
		_ = m.Close()
	})
	return n
}

func (n *node) Names() edge.Names               { return n.model.Names() }
func (n *node) Clock() *edge.Clock              { return n.model.Clock() }
func (n *node) Ready() error                    { return n.ready }
func (n *node) Probe(ctx context.Context) error { return n.probe(ctx) }
func (n *node) Status() api.Status {
	return api.Status{Node: n.Names().Node(), Now: api.Stamp(n.Clock().NowMS()), Doubted: n.Clock().Doubted()}
}

func (n *node) ConfirmClock(context.Context) error {
	n.Engine.ConfirmClock()
	return nil
}

func (n *node) Reload(context.Context) (api.Reloaded, error) {
	if n.reload != nil {
		return n.reload()
	}
	return api.Reloaded{}, nil
}

func (n *node) EnqueueBatch(ctx context.Context, evs []edge.Event) ([]edge.Accepted, error) {
	if n.accept != nil {
		return n.accept(ctx, evs)
	}
	return n.Engine.EnqueueBatch(ctx, evs)
}

func (n *node) Delivery(ctx context.Context, id edge.DeliveryID) (edge.Delivery, error) {
	if n.fail != nil {
		return edge.Delivery{}, n.fail
	}
	return n.Reader.Delivery(ctx, id)
}

// events are all events in the store, in order.
func (n *node) events(t testing.TB) []edge.Event {
	t.Helper()
	var out []edge.Event
	for id := edge.EventID(1); ; id++ {
		ev, err := n.model.Event(t.Context(), id)
		if err != nil {
			require.ErrorIs(t, err, edge.ErrNotFound)
			return out
		}
		out = append(out, ev)
	}
}

const goodToken = "correct-horse-battery-staple"

// serve runs the network listener of n on a free port and returns its address.
func serve(t testing.TB, n api.Door, o api.Options, timeouts api.Timeouts, connections int) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	if o.Token == (api.TokenHash{}) {
		o.Token = api.HashToken(goodToken)
	}
	run(t, api.LimitListener(l, connections), api.NewServer(api.NewHandler(n, o), o.Logger, timeouts))
	return l.Addr().String()
}

func run(t testing.TB, l net.Listener, s *http.Server) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		_ = s.Close()
		require.ErrorIs(t, <-done, http.ErrServerClosed)
	})
}

// serveLocal runs the socket of n and returns its path.
func serveLocal(t testing.TB, n api.Node) string {
	t.Helper()
	path := socketPath(t)
	l, err := api.ListenUnix(path, api.SocketOptions{})
	require.NoError(t, err)
	run(t, l, api.NewServer(api.NewLocalHandler(n, api.LocalOptions{}), nil, api.Timeouts{}))
	return path
}

// socketPath is a path short enough for a socket in a private directory.
func socketPath(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fp")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

func dial(t testing.TB, socket string) *api.Client {
	t.Helper()
	c, err := api.Dial(t.Context(), socket)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}
