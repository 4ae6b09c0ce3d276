package edge

import (
	"context"
	"time"
)

// A handler is stubborn when it goes on for StubbornAfter after its context is
// done. Go cannot end it, so its target stays visibly running, its lease is
// renewed as long as it lives, and its slot is replaced for others, up to
// MaxStubborn slots; past that the engine is not ready. When it returns, the
// slot goes back and its result is settled as usual.

// watch looks whether r's call returns in time once ctx is done. The returned
// function says that it has.
func (e *Engine) watch(r *run, ctx context.Context) (returned func()) {
	w := &watcher{}
	unhook := context.AfterFunc(ctx, func() {
		e.live.mu.Lock()
		defer e.live.mu.Unlock()
		if !w.returned {
			w.timer = time.AfterFunc(e.o.StubbornAfter, func() { e.becomeStubborn(r, w) })
		}
	})
	return func() {
		unhook()
		e.live.mu.Lock()
		w.returned = true
		if w.timer != nil {
			w.timer.Stop()
		}
		was, spare := r.stubborn, r.spare
		if was {
			r.stubborn, r.spare = false, false
			e.live.stubborn--
			if spare {
				e.live.spares[r.target.Handler]--
			}
		}
		e.live.mu.Unlock()
		if was {
			e.log.Warn("stubborn handler returned", r.logAttrs()...)
		}
		if spare {
			e.applySpares(r.target.Handler)
		}
	}
}

// watcher is one call under watch. Its fields belong to live.mu.
type watcher struct {
	returned bool
	timer    *time.Timer
}

func (e *Engine) becomeStubborn(r *run, w *watcher) {
	e.live.mu.Lock()
	if w.returned {
		e.live.mu.Unlock()
		return
	}
	r.stubborn = true
	e.live.stubborn++
	n := e.live.stubborn
	r.spare = n <= e.o.MaxStubborn && !r.lost // a lost lease counts for no slot
	spare := r.spare
	if spare {
		e.live.spares[r.target.Handler]++
	}
	e.live.mu.Unlock()
	e.log.Error("handler ignores that its time is over", append(r.logAttrs(), "stubborn", n)...)
	if spare {
		e.applySpares(r.target.Handler)
	}
}

// applyLimit tells the store how many deliveries of a handler may run at once.
func (e *Engine) applyLimit(name string) { e.applySpares(name) }

// applySpares tells the store how many slots a handler has with its spares.
func (e *Engine) applySpares(name string) {
	e.spareMu.Lock()
	defer e.spareMu.Unlock()
	now := e.now()
	h := now.handlers[name]
	if h == nil {
		return
	}
	e.live.mu.Lock()
	n, all := e.live.spares[name], 0
	for _, s := range e.live.spares {
		all += s
	}
	e.live.mu.Unlock()
	e.store.SetLimit(name, e.limitOf(h)+n, now.o.Workers+all)
}

func (e *Engine) stubbornRuns() int {
	e.live.mu.Lock()
	defer e.live.mu.Unlock()
	return e.live.stubborn
}
