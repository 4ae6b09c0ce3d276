package edge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// endpoints is what the engine knows of the other sides of its handlers and of
// the ways there. Handlers without breaker and uplink have no entry.
type endpoints struct {
	mu      sync.Mutex
	byName  map[string]*endpoint
	uplinks map[string]*uplink
}

func newEndpoints() *endpoints {
	return &endpoints{byName: map[string]*endpoint{}, uplinks: map[string]*uplink{}}
}

// of returns the endpoint of a handler, made when there is none.
func (s *endpoints) of(handler string) *endpoint {
	p := s.byName[handler]
	if p == nil {
		p = &endpoint{}
		s.byName[handler] = p
	}
	return p
}

// watched reports whether results of the handler are weighed.
func (h *handler) watched() bool {
	return h != nil && (h.spec.Breaker.Failures > 0 || h.spec.Uplink != "")
}

// recall takes over the episodes that the store keeps: what failed before the
// restart is tried one at a time, and not told again.
func (e *Engine) recall(ctx context.Context) error {
	infos, err := e.store.Handlers(ctx)
	if err != nil {
		return err
	}
	e.ends.mu.Lock()
	defer e.ends.mu.Unlock()
	for _, info := range infos {
		if info.Episode.BeganMS != 0 {
			p := e.ends.of(info.Name)
			p.episode, p.open, p.ramp, p.revision = info.Episode, true, 1, info.Revision
		}
	}
	return nil
}

// equip brings endpoints and uplinks in line with r: uplinks by name keep what is
// known of them, and what failed in another revision of a handler counts no more.
// It returns the handlers whose rest is over for that.
func (e *Engine) equip(r, old *roster) (mended []string) {
	episodes := map[string]Episode{} // that have changed
	defer func() {
		for name, ep := range episodes {
			e.keepEpisode(name, ep)
		}
	}()
	now := e.clock.NowMS()
	e.ends.mu.Lock()
	defer e.ends.mu.Unlock()
	uplinks := make(map[string]*uplink, len(r.o.Uplinks))
	for _, spec := range r.o.Uplinks {
		u := e.ends.uplinks[spec.Name]
		if u == nil {
			u = &uplink{state: UplinkState{Name: spec.Name}}
		}
		u.spec = spec
		uplinks[spec.Name] = u
	}
	e.ends.uplinks = uplinks
	for name, h := range r.handlers {
		if !h.watched() {
			if p := e.ends.byName[name]; p != nil && p.episode.BeganMS != 0 {
				episodes[name] = Episode{} // nothing weighs its results any more
			}
			delete(e.ends.byName, name)
			continue
		}
		p := e.ends.of(name)
		if old == nil && h.spec.Uplink != "" {
			p.ramp = 1 // the first try tells whether we are online
		}
		if p.revision != "" && p.revision != h.spec.Revision && (p.streak > 0 || p.open || p.episode.BeganMS != 0) {
			p.reopen(now)
			mended = append(mended, name)
			if p.episode.BeganMS != 0 {
				episodes[name] = p.episode
			}
		}
		p.revision = h.spec.Revision
	}
	return mended
}

// endRests opens the gates of handlers that rest because they failed in an earlier
// revision.
func (e *Engine) endRests(ctx context.Context, mended []string) {
	if len(mended) == 0 {
		return
	}
	infos, err := e.store.Handlers(ctx)
	if err != nil {
		e.storeFault("look at the gates", err)
		return
	}
	for _, info := range infos {
		if info.Gate != GatePaused || info.GateCode != CodeEndpointFailing || !slices.Contains(mended, info.Name) {
			continue
		}
		if _, err := e.store.SetGate(ctx, info.Name, GateOn, "", 0); err != nil {
			e.storeFault("open the gate", err)
		}
	}
}

// limitOf is how many deliveries of a handler may run at once now.
func (e *Engine) limitOf(h *handler) int {
	e.ends.mu.Lock()
	defer e.ends.mu.Unlock()
	n := h.spec.Concurrency
	if u := e.ends.uplinks[h.spec.Uplink]; u != nil && u.state.DownMS != 0 {
		return 0
	}
	if p := e.ends.byName[h.spec.Name]; p != nil && p.ramp > 0 {
		n = min(n, p.ramp)
	}
	return n
}

// offline reports whether nothing of h may be attempted.
func (e *Engine) offline(h *handler) bool {
	if h.spec.Uplink == "" {
		return false
	}
	e.ends.mu.Lock()
	defer e.ends.mu.Unlock()
	u := e.ends.uplinks[h.spec.Uplink]
	return u != nil && u.state.DownMS != 0
}

// weigh judges what the result of r tells of the handler's other side, and changes
// the settlement by it: a failure for want of an uplink is not charged, and a
// breaker pauses the gate. What is to be told when s is stored is returned; it
// may be nil.
func (e *Engine) weigh(r *run, s *Settlement, blame Blame, cause error) (tell func()) {
	if !r.h.watched() {
		return e.toTell(r, s, verdict{}, Episode{})
	}
	if errors.Is(cause, ErrShutdown) || errors.Is(cause, ErrCancelled) || errors.Is(cause, ErrLeaseLost) {
		return nil // cut by us
	}
	failed := s.Outcome == OutcomeRetry || s.Outcome == OutcomeIndeterminate
	if failed && blame == BlameConnection && e.uncharged(r, s) {
		return nil
	}
	v, ep := e.note(r, s, blame, failed)
	if v.limit {
		e.applyLimit(r.h.spec.Name) // before the pause ends
	}
	if v.rest.Milliseconds() > s.PauseMS {
		s.PauseMS, s.GateCode = v.rest.Milliseconds(), CodeEndpointFailing
	}
	if v.gateOff {
		s.GateOff, s.GateCode = true, CodeFailingTooLong
	}
	return e.toTell(r, s, v, ep)
}

// toTell is what is to be told of a result, nil when nothing is.
func (e *Engine) toTell(r *run, s *Settlement, v verdict, ep Episode) func() {
	if !v.began && v.recovered.BeganMS == 0 && !s.GateOff {
		return nil
	}
	code, gateCode, off := s.Code, s.GateCode, s.GateOff
	return func() { e.tell(r.h.spec.Name, v, ep, code, gateCode, off) }
}

// note enters a result. The episode returned is the one after it.
func (e *Engine) note(r *run, s *Settlement, blame Blame, failed bool) (verdict, Episode) {
	e.ends.mu.Lock()
	defer e.ends.mu.Unlock()
	p, b := e.ends.of(r.h.spec.Name), r.h.spec.Breaker
	var v verdict
	switch {
	case s.Outcome == OutcomeSucceeded:
		v = p.succeeded(b, r.h.spec.Concurrency)
	case failed && blame != BlameNone && b.Failures > 0:
		if e.clock.Doubted() {
			b.GateOffAfter = 0 // no patience ends by a clock that is doubted
		}
		v = p.failed(b, e.clock.NowMS(), e.clock.Mono(), s.Code)
		if !p.open && blame == BlameEndpoint { // it answered: the way is there
			v.limit = p.widen(r.h.spec.Concurrency)
		}
	case failed && blame != BlameConnection && !p.open:
		v.limit = p.widen(r.h.spec.Concurrency)
	}
	return v, p.episode
}

// uncharged asks the uplink of r whether a failed connection was its fault. If so,
// or if a stop cut the question, s becomes deferred.
func (e *Engine) uncharged(r *run, s *Settlement) bool {
	if s.Outcome == OutcomeIndeterminate && r.c.Effect != Idempotent && r.c.Effect != Transactional {
		return false // once: a person decides, whatever the uplink does
	}
	e.ends.mu.Lock()
	u := e.ends.uplinks[r.h.spec.Uplink]
	e.ends.mu.Unlock()
	if u == nil {
		return false
	}
	down, known := e.verify(r.ctx, u)
	if known && !down {
		return false
	}
	code := CodeUplinkDown
	if !known {
		code = CodeShutdown
		if err := context.Cause(r.ctx); err != nil {
			code = causeCode(err)
		}
	}
	*s = Settlement{
		Execution: s.Execution, Token: s.Token, Outcome: OutcomeDeferred, Code: code,
		Detail: validDetail(fmt.Sprintf("%s: %s", s.Code, s.Detail)), DelayMS: MinDeferMS,
	}
	return true
}

// tell keeps the episode in the store and tells of what changed.
func (e *Engine) tell(handler string, v verdict, ep Episode, code, gateCode string, off bool) {
	if v.began {
		e.log.Error("handler is failing: it is tried one delivery at a time", "handler", handler, "failures", ep.Failures, "code", code)
		e.keepEpisode(handler, ep)
		e.tellFailing(handler, ep)
	}
	if old := v.recovered; old.BeganMS != 0 {
		e.log.Info("handler has recovered", "handler", handler, "failing_since_ms", old.BeganMS)
		e.Notify(Notice{Type: "handler.recovered", ID: fmt.Sprint("handler-", handler, "-recovered-", old.BeganMS), Subject: handler,
			Data: map[string]any{"handler": handler, "since_ms": old.BeganMS}})
		e.keepEpisode(handler, Episode{})
	}
	if off && e.firstOff(handler) {
		now := e.clock.NowMS()
		e.log.Error("gate is off: deliveries wait, uncharged, until an operator opens it", "handler", handler, "code", gateCode)
		e.Notify(Notice{Type: "handler.gate_off", ID: fmt.Sprint("handler-", handler, "-gate_off-", now), Subject: handler,
			Data: map[string]any{"handler": handler, "code": gateCode}})
	}
}

func (e *Engine) tellFailing(handler string, ep Episode) {
	e.Notify(Notice{Type: "handler.failing", ID: fmt.Sprint("handler-", handler, "-failing-", ep.BeganMS), Subject: handler,
		Data: map[string]any{"handler": handler, "since_ms": ep.BeganMS, "failures": ep.Failures, "code": ep.Code}})
}

// tellAgain tells of the episodes that a process before this one may have kept
// without telling.
func (e *Engine) tellAgain() {
	e.ends.mu.Lock()
	open := map[string]Episode{}
	for name, p := range e.ends.byName {
		if p.episode.BeganMS != 0 {
			open[name] = p.episode
		}
	}
	e.ends.mu.Unlock()
	for name, ep := range open {
		e.tellFailing(name, ep)
	}
}

// firstOff reports whether that the gate is off has not been told yet.
func (e *Engine) firstOff(handler string) bool {
	e.ends.mu.Lock()
	defer e.ends.mu.Unlock()
	p := e.ends.of(handler)
	first := !p.gone
	p.gone = true
	return first
}

// keepEpisode stores an episode, in line with the notices.
func (e *Engine) keepEpisode(handler string, ep Episode) {
	e.notices.add(e, func(ctx context.Context) error {
		err := e.store.SetEpisode(ctx, handler, ep)
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		return err
	})
}

// gateSet follows an operator who opened a gate: what failed before counts no more.
func (e *Engine) gateSet(handler string, g Gate) {
	if g != GateOn {
		return
	}
	e.ends.mu.Lock()
	p := e.ends.byName[handler]
	if p == nil {
		e.ends.mu.Unlock()
		return
	}
	p.reopen(e.clock.NowMS())
	ep := p.episode
	e.ends.mu.Unlock()
	if ep.BeganMS != 0 {
		e.keepEpisode(handler, ep)
	}
	e.applyLimit(handler)
}
