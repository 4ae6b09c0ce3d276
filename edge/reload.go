package edge

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
)

// roster is what an engine works with from one reload to the next. It is not
// changed once it is made.
type roster struct {
	o        Options // whole, with defaults
	serial   int64   // names it to the store, and in each claim
	handlers map[string]*handler
}

// handler is a registered handler.
type handler struct {
	spec      HandlerSpec
	inspector Inspector   // nil when it has none
	failing   atomic.Bool // its last executions asked for another try

	// mu: live.mu
	runs    int  // live executions that call it
	retired bool // no roster that is in force has it
}

// newRoster makes the handlers of o, which is valid and has its defaults. A
// handler that old has in the same revision goes on where that one is.
func newRoster(o Options, serial int64, old *roster) *roster {
	r := &roster{o: o, serial: serial, handlers: make(map[string]*handler, len(o.Handlers))}
	for _, spec := range o.Handlers {
		h := &handler{spec: spec}
		h.inspector, _ = spec.Handler.(Inspector)
		if old != nil {
			if was := old.handlers[spec.Name]; was != nil && was.spec.Revision == spec.Revision {
				h.failing.Store(was.failing.Load())
			}
		}
		r.handlers[spec.Name] = h
	}
	return r
}

// again is r under another serial, with the same handlers.
func (r *roster) again(serial int64) *roster {
	return &roster{o: r.o, serial: serial, handlers: r.handlers}
}

func (r *roster) registrations() []Registration {
	rs := make([]Registration, 0, len(r.o.Handlers))
	for _, spec := range r.o.Handlers {
		rs = append(rs, Registration{
			Name: spec.Name, Revision: spec.Revision, Effect: spec.Effect, Serial: r.serial,
			Slots: spec.Slots, Limit: spec.Concurrency, Inspect: r.handlers[spec.Name].inspector != nil,
			Halt: spec.HaltOnFailure, MaxLosses: spec.MaxLosses, Rate: spec.Rate,
		})
	}
	return rs
}

// now is the roster in force.
func (e *Engine) now() *roster { return e.current.Load() }

// know makes r the roster in force, and claims that name it find their handlers.
// Old rosters stay known: a claim made under one may still be on its way.
func (e *Engine) know(r *roster) {
	e.live.mu.Lock()
	defer e.live.mu.Unlock()
	e.rosters[r.serial] = r
	e.current.Store(r)
}

// handlerOf is the handler that a claim was made for, marked as in use until
// release; nil when this process does not have it.
func (e *Engine) handlerOf(c *Claimed) *handler {
	e.live.mu.Lock()
	defer e.live.mu.Unlock()
	r := e.rosters[c.Serial]
	if r == nil { // a store that does not name it
		r = e.now()
	}
	h := r.handlers[c.Target.Handler]
	if h != nil {
		h.runs++
	}
	return h
}

// releaseHandler ends a use. The last one of a retired handler tells its owner.
func (e *Engine) releaseHandler(h *handler) {
	if h == nil {
		return
	}
	e.live.mu.Lock()
	h.runs--
	last := h.retired && h.runs == 0
	e.live.mu.Unlock()
	if last {
		h.gone()
	}
}

func (h *handler) gone() {
	if h.spec.Retired != nil {
		h.spec.Retired()
	}
}

// retire ends the service of r's handlers: each that works no more is told of
// at once, the others when their last execution has ended. r is forgotten: the
// store has handed out every claim that names it.
func (e *Engine) retire(r *roster) {
	var idle []*handler
	e.live.mu.Lock()
	delete(e.rosters, r.serial)
	for _, h := range r.handlers {
		h.retired = true
		if h.runs == 0 {
			idle = append(idle, h)
		}
	}
	e.live.mu.Unlock()
	for _, h := range idle {
		h.gone()
	}
}

// Reload replaces what the engine works with while it works: of o it takes
// Handlers, Uplinks, Router, Workers, ShutdownGrace, MaxDataBytes and Retention; all else
// stays as New was given it. It does so whole or not at all: on an error
// the engine goes on with what it had.
//
// An event that is accepted meanwhile is routed wholly by the old router or
// wholly by the new one. Executions under way end with the handler they began
// with; the next claims use the new one. A handler that is no longer named gets
// the gate [GateMissing] and keeps its deliveries; one that came back or has
// another revision gets those that are blocked for a configuration reason back.
// Deliveries with route_error are routed again, in the background. When the last
// execution of a handler that was replaced has ended, its Retired is called; so
// is, once, that of each handler of o when the call fails.
//
// ErrInvalid: o has faults, all of which are reported, or another Lease.
// ErrClosed: the engine was stopped. A call waits for a round of
// [Engine.DispatchOnce]. Once it has begun to change something, ctx no longer
// cuts it.
func (e *Engine) Reload(ctx context.Context, o Options) error {
	begun := false
	defer func() {
		if !begun {
			dismiss(o.Handlers)
		}
	}()
	whole, err := e.reloaded(o)
	if err != nil {
		return err
	}
	if err := e.enterGate(ctx); err != nil {
		return err
	}
	defer e.leaveGate()
	if err := e.mayReload(); err != nil {
		return err
	}
	old := e.now()
	next := newRoster(whole, old.serial+1, old)
	begun = true
	// The router first: no event is then owed to a handler that is going away,
	// and one that is owed to a handler that is coming waits a moment for it.
	e.know(next)
	mended := e.equip(next, old)
	ctx = context.WithoutCancel(ctx)
	if err := e.register(ctx, next); err != nil {
		e.goBack(ctx, old, next)
		return fmt.Errorf("register handlers: %w", err)
	}
	e.endRests(ctx, mended)
	e.retire(old)
	e.SetRetention(next.o.Retention)
	e.applyAllSpares()
	e.rerouteSoon()
	e.log.Info("engine reloaded", "handlers", len(next.handlers), "workers", next.o.Workers)
	return nil
}

// dismiss tells the owners of handlers that were not taken.
func dismiss(specs []HandlerSpec) {
	for _, spec := range specs {
		if spec.Retired != nil {
			spec.Retired()
		}
	}
}

// reloaded is the options in force with what a reload changes of them.
func (e *Engine) reloaded(o Options) (Options, error) {
	now := e.now().o
	if o.Lease != 0 && o.Lease != now.Lease {
		return o, fmt.Errorf("%w: engine options: Lease: %s, is %s and cannot change while the engine works", ErrInvalid, o.Lease, now.Lease)
	}
	now.Handlers, now.Uplinks, now.Router, now.Workers = o.Handlers, o.Uplinks, o.Router, o.Workers
	now.ShutdownGrace, now.MaxDataBytes, now.Retention = o.ShutdownGrace, o.MaxDataBytes, o.Retention
	now = now.withDefaults()
	if err := now.validate(); err != nil {
		return o, fmt.Errorf("engine options: %w", err)
	}
	return now, nil
}

func (e *Engine) mayReload() error {
	if err := e.failed(); err != nil {
		return err
	}
	err := e.mayStart()
	if errors.Is(err, ErrConflict) { // it is started
		return nil
	}
	return err
}

// goBack puts the old roster in force again after a registration that failed,
// which may have been stored in part.
func (e *Engine) goBack(ctx context.Context, old, failed *roster) {
	restored := old.again(failed.serial + 1)
	e.know(restored)
	_ = e.equip(restored, failed)
	err := e.register(ctx, restored)
	if err != nil { // what was claimed under either finds its handler
		e.storeFault("register the handlers again", err)
		return
	}
	e.retire(failed)
	e.forget(old)
}

// forget forgets a roster whose handlers serve on in another.
func (e *Engine) forget(r *roster) {
	e.live.mu.Lock()
	defer e.live.mu.Unlock()
	delete(e.rosters, r.serial)
}

// applyAllSpares tells the store again of replaced slots, which a registration
// does not know of.
func (e *Engine) applyAllSpares() {
	e.live.mu.Lock()
	var names []string
	for name, n := range e.live.spares {
		if n > 0 {
			names = append(names, name)
		}
	}
	e.live.mu.Unlock()
	for _, name := range names {
		e.applySpares(name)
	}
}

// rerouteSoon routes again, in the background, what a failing route has blocked.
func (e *Engine) rerouteSoon() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state == started {
		e.goes.Go(func() { e.rerouteAtStart(e.bg) })
	}
}
