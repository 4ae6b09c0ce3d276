// Package node assembles a whole node from a configuration: store, handlers,
// engine, network listener and the socket of the command line. It is the only
// place where they meet. For an engine inside another program, use
// [fencepost/edge.New] with [fencepost/edge/sqlite.Open] instead.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"fencepost/edge"
	"fencepost/edge/api"
	"fencepost/edge/config"
	"fencepost/edge/metrics"
	"fencepost/edge/route"
	"fencepost/edge/service"
	"fencepost/edge/sqlite"
	"fencepost/handlers/command"
)

// Options are what a node needs beside its configuration. The zero value is
// useful.
type Options struct {
	Logger  *slog.Logger // nil discards
	Share   bool         // several nodes work on one database file; slower
	Version string       // shown in the status
	// EarliestMS is a time known to have passed, milliseconds UTC, such as
	// when this program was built; a clock that reads earlier is doubted.
	EarliestMS int64
	Clock      *edge.Clock // nil means the system's clock
	// AllowRootCommands is as allow_root_commands of the configuration.
	AllowRootCommands bool
	// LogLevel is the level that Logger obeys; a reload sets it. nil = the
	// level does not change.
	LogLevel *slog.LevelVar
	// Notify tells the service manager how the node is; nil tells nobody.
	Notify *service.Notifier
}

// Node is a whole node. Make one with [New], then call [Node.Run] once, or
// [Node.Close] instead.
type Node struct {
	c     config.Config // that it was made from; conf() is the one in force
	o     Options
	log   *slog.Logger
	since int64

	store  *sqlite.Store
	engine *edge.Engine

	reloading chan struct{} // one place: reloads come one after the other
	current   atomic.Pointer[config.Config]
	metrics   *metrics.Metrics
	set       *handlerSet // in force; belongs to who holds reloading

	network *server // nil when the configuration has no listener
	local   *server // nil when it has no socket

	closing sync.Once
}

// New opens the database, makes the handlers and binds listener and socket. Its
// errors wrap [edge.ErrInvalid] (configuration, or a database file that is
// refused), [edge.ErrConflict] (another node has the database or the socket) or
// a storage error. When it fails, nothing stays open.
func New(c config.Config, o Options) (*Node, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	n := &Node{c: c, o: o, log: o.Logger, reloading: make(chan struct{}, 1)}
	n.current.Store(&n.c)
	if err := n.assemble(); err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

func (n *Node) assemble() error {
	router, err := newRouter(n.c.Routes)
	if err != nil {
		return err
	}
	if n.set, err = n.handlers(&n.c, nil); err != nil {
		return err
	}
	if err := n.lookAhead(); err != nil {
		return err
	}
	if n.store, err = sqlite.Open(n.c.Node.Data, sqlite.Options{
		Clock:      n.o.Clock,
		Durability: sqlite.Durability(n.c.Node.Durability),
		OnLoss:     sqlite.OnLoss(n.c.Node.OnLoss),
		Share:      n.o.Share,
		Config:     digest(n.c),
		Logger:     n.log,

		Limits: limitsOf(n.c.Storage), ReserveBytes: reserveBytes,
	}); err != nil {
		return err
	}
	n.since = n.store.Clock().NowMS()
	n.metrics = metrics.New(scraped{n}, metrics.Build{Version: n.o.Version, StartedMS: n.since})
	if n.engine, err = edge.New(n.store, n.engineOptions(&n.c, n.set, router)); err != nil {
		return err
	}
	return n.bind()
}

// engineOptions is what a configuration means for the engine.
func (n *Node) engineOptions(c *config.Config, set *handlerSet, router *route.Router) edge.Options {
	return edge.Options{
		Handlers:      set.specs,
		Uplinks:       set.uplinks,
		Router:        router,
		Workers:       c.Node.Workers,
		Lease:         c.Node.Lease,
		Logger:        n.log,
		ShutdownGrace: graceOf(c.Node.ShutdownGrace),
		MaxDataBytes:  c.HTTP.MaxBodyBytes,
		Retention:     retentionOf(c.Retention),
		KillOwner:     command.KillOwner,
		Shared:        n.o.Share,
		ClockSynced:   clockSynced,
		EarliestMS:    n.o.EarliestMS,
		Ended:         n.metrics.ExecutionEnded,
	}
}

// graceOf keeps a grace of none: to the engine, 0 means its default.
func graceOf(d time.Duration) time.Duration { return max(d, time.Millisecond) }

func newRouter(routes []config.Route) (*route.Router, error) {
	rules := make([]route.Rule, len(routes))
	for i, r := range routes {
		rules[i] = route.Rule{
			Name: r.Name, Type: r.Type, Source: r.Source, Subject: r.Subject,
			When: r.When, Handler: r.Handler, Key: r.Key, TTL: r.TTL,
		}
	}
	return route.New(rules)
}

func (n *Node) socketOptions() api.SocketOptions {
	return api.SocketOptions{Group: n.c.HTTP.SocketGroup}
}

// lookAhead refuses what stands in place of the socket or of the token before
// anything is made, so that a refused start leaves all as it was.
func (n *Node) lookAhead() error {
	if path := n.c.HTTP.Socket; path != "" {
		if _, err := api.CheckSocket(path, n.socketOptions()); err != nil {
			return fmt.Errorf("http.socket: %w", err)
		}
	}
	if n.c.HTTP.Listen != "" {
		return lookForTokens(&n.c)
	}
	return nil
}

// bind opens listener and socket. Nothing is served before Run.
func (n *Node) bind() error {
	if n.c.HTTP.Socket != "" {
		l, err := api.ListenUnix(n.c.HTTP.Socket, n.socketOptions())
		if err != nil {
			return fmt.Errorf("http.socket: %w", err)
		}
		n.local = newServer(l, n.localHandler(&n.c), n.log, api.Timeouts{Answer: localAnswer})
	}
	if n.c.HTTP.Listen == "" {
		return nil
	}
	token, err := n.ensureTokens(&n.c)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", n.c.HTTP.Listen)
	if err != nil {
		class := edge.ErrInvalid
		if errors.Is(err, syscall.EADDRINUSE) {
			class = edge.ErrConflict
		}
		return fmt.Errorf("%w: http.listen: %w: choose another address, or stop what uses this one", class, err)
	}
	n.network = newServer(api.LimitListener(l, 0), n.networkHandler(&n.c, token), n.log, api.Timeouts{})
	return nil
}

func (n *Node) localHandler(c *config.Config) http.Handler {
	return api.NewLocalHandler(n.door(), api.LocalOptions{
		MaxBody: c.HTTP.MaxBodyBytes, Logger: n.log, Metrics: n.metrics.Handler(),
		Keep: func() time.Duration { return c.Retention.Dedupe },
	})
}

func (n *Node) networkHandler(c *config.Config, token tokens) http.Handler {
	return api.NewHandler(n.door(), api.Options{
		Token: token.events, Hosts: c.HTTP.AllowedHosts, MaxBody: c.HTTP.MaxBodyBytes, Logger: n.log,
		MetricsToken: token.metrics, Metrics: n.metrics.Handler(), Observe: n.metrics.Request,
		Keep: func() time.Duration { return c.Retention.Dedupe },
	})
}

// localAnswer is how long a call of the command line may take: a full check
// reads the whole file.
const localAnswer = time.Hour

// Addr is the address of the network listener; "" when there is none.
func (n *Node) Addr() string {
	if n.network == nil {
		return ""
	}
	return n.network.l.Addr().String()
}

// Store is the node's store: for reading, and for tests.
func (n *Node) Store() edge.Store { return n.store }

// Engine is the node's engine, for subscribing.
func (n *Node) Engine() *edge.Engine { return n.engine }

// Run works until ctx is done or the store or a listener fails, then stops in
// stages: no new requests and claims; running handlers may end within the grace;
// then they are cancelled; then the socket and the store close. The error is nil
// after a stop that ctx asked for, and wraps [edge.ErrStorage] when the store
// failed.
func (n *Node) Run(ctx context.Context) (edge.Summary, error) {
	defer n.Close()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	serving := n.serve(stop)
	defer serving.Wait()
	defer n.notifying(ctx)()

	down := make(chan struct{})
	go func() { // producers are turned away as soon as the stop begins
		defer close(down)
		<-ctx.Done()
		n.network.shutdown()
	}()
	n.log.Info("node started", "node", n.store.Node(), "owner", n.store.Owner(), "database", n.c.Node.Data,
		"last_end", n.store.LastEnd(), "listen", n.Addr(), "socket", n.c.HTTP.Socket, "version", n.o.Version)
	if l := n.store.Hold(); l != nil { // found now, or by a start or a restore before
		n.log.Warn("on hold: events are taken, nothing is delivered; fencepost status says what to do", "kind", string(l.Kind), "detail", l.Detail)
	}
	n.warnFirst()
	summary, err := n.engine.Run(ctx)
	stop(nil)
	<-down
	n.local.shutdown()
	if cause := context.Cause(ctx); err == nil && errors.Is(cause, errListener) {
		err = cause
	}
	return summary, err
}

// errListener says that a listener failed while the node was to go on.
var errListener = errors.New("listener failed")

func (n *Node) serve(stop context.CancelCauseFunc) *sync.WaitGroup {
	var wg sync.WaitGroup
	for _, s := range []*server{n.local, n.network} {
		if s == nil {
			continue
		}
		wg.Go(func() {
			if err := s.http.Serve(s.l); !errors.Is(err, http.ErrServerClosed) {
				n.log.Error("listener failed", "address", s.l.Addr().String(), "err", err)
				stop(fmt.Errorf("%w: %w", errListener, err))
			}
		})
	}
	return &wg
}

// Close gives up everything that New opened. It is called by Run.
func (n *Node) Close() {
	n.closing.Do(func() {
		n.network.close()
		n.local.close()
		if n.engine != nil {
			done, cancel := context.WithCancel(context.Background())
			cancel()
			_, _ = n.engine.Stop(done)
		}
		n.reloading <- struct{}{} // a reload that meets the end gives up soon
		n.set.drop()
		<-n.reloading
		if n.store != nil {
			if err := n.store.Close(); err != nil {
				n.log.Error("closing the store failed", "err", err)
			}
		}
	})
}
