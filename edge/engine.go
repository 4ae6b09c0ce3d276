package edge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// registerTimeout bounds a registration.
const registerTimeout = 30 * time.Second

// Engine dispatches the deliveries of a store to handlers. It is inert until
// [Engine.Start] or [Engine.Run]; [Engine.DispatchOnce] runs single rounds
// without them. All methods may be called from many goroutines. An engine that
// was used must be stopped, and is not started again.
type Engine struct {
	store Store
	clock *Clock
	o     Options
	log   *slog.Logger

	current atomic.Pointer[roster] // in force; changed by Reload alone
	rosters map[int64]*roster      // by serial; belongs to live.mu

	live   *live
	ring   *ring
	totals tally
	expiry *alarm
	ends   *endpoints

	notices notices
	doubt   doubt // belongs to the upkeep goroutine

	// bg is the context of the engine's own goroutines and store calls. It
	// is kept here because they live as long as the engine, not as a call.
	bg     context.Context
	stopBG context.CancelFunc
	quit   chan struct{}  // closed when held settles and heartbeat must end
	goes   sync.WaitGroup // the engine's own goroutines
	gate   chan struct{}  // one place: rounds and starting exclude each other

	mu           sync.Mutex
	state        engineState
	stopDispatch context.CancelFunc // nil until started
	dispatched   chan struct{}      // closed when Dispatch has returned
	fault        error
	faulted      chan struct{} // closed with fault
	begun        chan struct{} // closed with state started
	recovery     Recovery
	spareMu      sync.Mutex // orders SetLimit calls

	stopOnce sync.Once
	stopped  chan struct{}
	summary  Summary
	stopErr  error
}

type engineState int

const (
	inert engineState = iota
	started
	stopping
	stopped
)

// New returns an engine on store and registers its handlers there. All faults of
// o are reported at once, as an error that wraps [ErrInvalid]. The engine does
// not own the store: close it after [Engine.Stop].
func New(store Store, o Options) (*Engine, error) {
	if store == nil {
		return nil, fmt.Errorf("%w: store: must not be nil", ErrInvalid)
	}
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("engine options: %w", err)
	}
	e := &Engine{
		store:      store,
		clock:      store.Clock(),
		o:          o,
		log:        o.Logger,
		rosters:    map[int64]*roster{},
		live:       newLive(),
		ring:       newRing(ringSize),
		expiry:     newAlarm(),
		ends:       newEndpoints(),
		quit:       make(chan struct{}),
		gate:       make(chan struct{}, 1),
		dispatched: make(chan struct{}),
		faulted:    make(chan struct{}),
		begun:      make(chan struct{}),
		stopped:    make(chan struct{}),
	}
	e.bg, e.stopBG = context.WithCancel(context.Background())
	store.Watch(e.ring.publish) // before the first change
	first := newRoster(o, 1, nil)
	e.know(first)
	err := e.recall(e.bg)
	if err == nil {
		mended := e.equip(first, nil)
		err = e.register(e.bg, first)
		e.endRests(e.bg, mended)
	}
	if err != nil {
		store.Watch(nil)
		e.stopBG()
		return nil, fmt.Errorf("register handlers: %w", err)
	}
	return e, nil
}

// spawn runs fn in a goroutine of the engine, unless the engine has ended.
func (e *Engine) spawn(fn func()) bool {
	e.live.mu.Lock()
	defer e.live.mu.Unlock()
	if e.live.closed {
		return false
	}
	e.goes.Go(fn)
	return true
}

func (e *Engine) register(ctx context.Context, r *roster) error {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	rs := r.registrations()
	for i := range rs {
		rs[i].Limit = max(e.limitOf(r.handlers[rs[i].Name]), 1)
	}
	if err := e.store.Register(ctx, rs, r.o.Workers, r.o.Lease.Milliseconds()); err != nil {
		return err
	}
	for name, h := range r.handlers { // what a registration cannot say
		if h.watched() && e.limitOf(h) == 0 {
			e.applyLimit(name)
		}
	}
	return nil
}

// Start runs recovery and then dispatches until [Engine.Stop]. It returns when
// dispatch has begun; ctx bounds only the call. When recovery cannot read the
// store, nothing is dispatched, the error is returned and Start may be called
// again. ErrConflict: it was started before; ErrClosed: it was stopped.
func (e *Engine) Start(ctx context.Context) error {
	if err := e.enterGate(ctx); err != nil {
		return err
	}
	defer e.leaveGate()
	if err := e.mayStart(); err != nil {
		return err
	}
	e.judgeClock()
	found, err := e.recoverOwners(ctx)
	if err != nil {
		return fmt.Errorf("recovery before the start: %w", err)
	}
	e.lookBehind(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state != inert {
		return fmt.Errorf("%w: the engine was stopped while it started", ErrClosed)
	}
	e.state, e.recovery = started, found
	close(e.begun)
	e.logRecovery(found)
	var dctx context.Context
	dctx, e.stopDispatch = context.WithCancel(e.bg)
	e.goes.Go(func() { e.dispatch(dctx) })
	e.goes.Go(func() { e.upkeep(e.bg) })
	e.goes.Go(func() { e.rerouteAtStart(e.bg) })
	e.tellAgain()
	if e.o.Shared || found.Left > 0 {
		e.goes.Go(func() { e.recoverByTimer(e.bg) })
	}
	e.log.Info("engine started", "handlers", len(e.now().handlers), "workers", e.now().o.Workers)
	return nil
}

func (e *Engine) mayStart() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch e.state {
	case inert:
		return nil
	case started:
		return fmt.Errorf("%w: the engine is started already", ErrConflict)
	default:
		return fmt.Errorf("%w: the engine was stopped", ErrClosed)
	}
}

// Run starts the engine, works until ctx is done or the store fails, and then
// stops it in stages. The error is nil after a stop that ctx asked for.
func (e *Engine) Run(ctx context.Context) (Summary, error) {
	err := e.Start(ctx)
	stop := context.Background()
	if ctx.Err() != nil && !terminal(err) {
		err = nil // asked to stop while it started
	}
	if err == nil {
		select {
		case <-ctx.Done():
		case <-e.stopped:
		case <-e.faulted:
		case <-e.store.Failed():
			e.fail(ErrStorage)
		}
		if err = e.failed(); err != nil { // nothing can be stored: do not wait for handlers
			var cancel context.CancelFunc
			stop, cancel = context.WithCancel(stop)
			cancel()
		}
	}
	s, stopErr := e.Stop(stop)
	if err == nil {
		err = stopErr // else it says the same, or less
	}
	return s, err
}

// Ready is nil when the engine dispatches and can be relied on. Otherwise the
// error says why not.
func (e *Engine) Ready() error {
	select {
	case <-e.store.Failed():
		return fmt.Errorf("%w: restart the process and look at the disk", ErrStorage)
	default:
	}
	e.mu.Lock()
	state, fault := e.state, e.fault
	e.mu.Unlock()
	switch {
	case fault != nil:
		return fault
	case state == inert:
		return errors.New("not started: recovery has not finished")
	case state != started:
		return fmt.Errorf("%w: the engine stops", ErrClosed)
	}
	if s := e.store.Storage(); s.State == StorageLow {
		return fmt.Errorf("%w: %s", ErrLowSpace, s.Reason)
	}
	if n := e.stubbornRuns(); n > e.o.MaxStubborn {
		return fmt.Errorf("%d handlers ignore that their time is over, the limit is %d: restart the process", n, e.o.MaxStubborn)
	}
	return nil
}

// Started is closed once the engine dispatches: recovery has finished.
func (e *Engine) Started() <-chan struct{} { return e.begun }

// Totals are the counters of all executions since the engine was made.
func (e *Engine) Totals() Counters { return e.totals.get() }

// Status is what the engine is doing now.
type Status struct {
	Live     int // executions that are claimed, running or being settled
	Held     int // of those, results that wait for the store
	Stubborn int // of those, handlers that ignore that their time is over
	Recovery Recovery
	Doubted  bool // the clock is doubted
}

// Status returns what the engine is doing now.
func (e *Engine) Status() Status {
	e.mu.Lock()
	rec := e.recovery
	e.mu.Unlock()
	return Status{
		Live:     e.live.count(nil),
		Held:     e.live.count(func(r *run) bool { return r.held }),
		Stubborn: e.stubbornRuns(),
		Recovery: rec,
		Doubted:  e.clock.Doubted(),
	}
}

// fail records the first fault that ends the engine's work.
func (e *Engine) fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fault == nil {
		e.fault = err
		close(e.faulted)
	}
}

func (e *Engine) failed() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.fault
}

// storeFault logs a failed call of the store; a terminal one ends the engine.
func (e *Engine) storeFault(op string, err error) {
	if e.bg.Err() != nil && !errors.Is(err, ErrStorage) {
		return // stopped: the call was cut on purpose
	}
	if errors.Is(err, ErrLowSpace) {
		return // the store has said so, once
	}
	if !terminal(err) {
		e.log.Warn("store call failed", "op", op, "err", err)
		return
	}
	e.log.Error("store failed", "op", op, "err", err)
	e.fail(fmt.Errorf("%s: %w", op, err))
}

func (e *Engine) enterGate(ctx context.Context) error {
	select {
	case e.gate <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-e.stopped:
		return fmt.Errorf("%w: the engine was stopped", ErrClosed)
	}
}

func (e *Engine) leaveGate() { <-e.gate }
