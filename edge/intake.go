package edge

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// extExpiry is the CloudEvents extension that says when an event is too late.
const extExpiry = "expirytime"

// maxRoutes bounds how many targets one event may be owed to.
const maxRoutes = 1000

// Enqueue validates one event, routes it and stores it with its deliveries. It
// returns after the commit. ErrInvalid: the event breaks a rule; ErrConflict:
// another event has its source and id. Nothing was stored then.
func (e *Engine) Enqueue(ctx context.Context, ev Event) (Accepted, error) {
	as, err := e.EnqueueBatch(ctx, []Event{ev})
	if err != nil {
		return Accepted{}, err
	}
	return as[0], as[0].Err
}

// EnqueueBatch is Enqueue for up to [MaxBatchEvents] events of together up to
// [MaxBatchBytes] in one commit. A fault of one event is in its answer and does
// not touch the others; an error means that nothing was stored.
func (e *Engine) EnqueueBatch(ctx context.Context, evs []Event) ([]Accepted, error) {
	if err := e.mayAccept(evs); err != nil {
		return nil, err
	}
	out := make([]Accepted, len(evs))
	subs := make([]Submission, 0, len(evs))
	at := make([]int, 0, len(evs)) // at[i]: place in out of subs[i]
	for i, ev := range evs {
		ev.N, ev.AcceptedMS, ev.Depth = 0, 0, 0
		sub, err := e.offered(ev)
		if err != nil {
			out[i].Err = err
			continue
		}
		subs, at = append(subs, sub), append(at, i)
	}
	if len(subs) == 0 {
		return out, nil
	}
	answers, err := e.store.Accept(ctx, subs)
	if err != nil {
		return nil, fmt.Errorf("accept: %w", err)
	}
	for i, a := range answers {
		out[at[i]] = a
	}
	e.expireWith(subs)
	e.logUnplaced(subs, answers)
	return out, nil
}

func (e *Engine) mayAccept(evs []Event) error {
	e.mu.Lock()
	state := e.state
	e.mu.Unlock()
	if state >= stopping {
		return fmt.Errorf("%w: the engine takes no more events", ErrClosed)
	}
	if len(evs) > MaxBatchEvents {
		return fmt.Errorf("%w: batch: %d events, the limit is %d", ErrInvalid, len(evs), MaxBatchEvents)
	}
	size := 0
	for i := range evs {
		size += len(evs[i].Data)
	}
	if len(evs) > 1 && size > MaxBatchBytes {
		return fmt.Errorf("%w: batch: %d bytes, the limit is %d", ErrInvalid, size, MaxBatchBytes)
	}
	return nil
}

// offered is submission for an event that the node has not made itself.
func (e *Engine) offered(ev Event) (Submission, error) {
	if strings.EqualFold(ev.Source, e.NoticeSource()) { // other case would pass for it, where a person looks
		return Submission{}, fieldFault("source", "%q is that of the node's own events", ev.Source)
	}
	return e.submission(ev)
}

// submission validates and routes one event: every event comes through here,
// follow-ups too.
func (e *Engine) submission(ev Event) (Submission, error) {
	if err := ev.Validate(e.now().o.MaxDataBytes); err != nil {
		return Submission{}, err
	}
	routes, err := e.route(&ev)
	if err != nil {
		return Submission{}, err
	}
	if err := limitTTL(&ev, routes, e.clock.NowMS()); err != nil {
		return Submission{}, err
	}
	return Submission{Event: ev, Routes: routes}, nil
}

// route asks the router, and turns what it may not answer into an error or into
// a fault of that route.
func (e *Engine) route(ev *Event) (routes []Routed, err error) {
	router := e.now().o.Router // asked once: it may be replaced meanwhile
	if router == nil {
		return nil, nil
	}
	defer func() {
		if p := recover(); p != nil {
			e.log.Error("router panicked", panicAttrs(p)...)
			routes, err = nil, fmt.Errorf("%w on event %q of %q", errRouter, ev.ID, ev.Source)
		}
	}()
	routes = router.Route(ev)
	if len(routes) > maxRoutes {
		return nil, fmt.Errorf("%w: the event is owed to %d targets, the limit is %d", ErrInvalid, len(routes), maxRoutes)
	}
	for i := range routes {
		to := &routes[i]
		if !ValidHandlerName(to.Handler) {
			return nil, fmt.Errorf("route %q: %q is not a handler's name", to.Route, to.Handler)
		}
		if to.Fault == "" {
			if err := validKey(to.Key); err != nil {
				to.Fault = err.Error()
			}
		}
		if to.Fault != "" { // the key means nothing then
			to.Key, to.Fault = "", scrub(to.Fault, maxTextBytes)
		}
	}
	return routes, nil
}

func validKey(key string) error {
	if key == RouteErrorKey {
		return fmt.Errorf("%w: target key %q is reserved", ErrInvalid, key)
	}
	return validText("target key", key)
}

// limitTTL lets deliveries expire at the event's expirytime at the latest.
func limitTTL(ev *Event, routes []Routed, nowMS int64) error {
	s, ok := ev.Extensions[extExpiry]
	if !ok {
		return nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return fmt.Errorf("%w: %s: %q is not an RFC 3339 time, such as 2026-01-31T08:00:00Z", ErrInvalid, extExpiry, s)
	}
	ttl := t.UnixMilli() - nowMS
	if ttl <= 0 {
		ttl = -1
	}
	for i := range routes {
		if r := &routes[i]; r.TTLMS == 0 || r.TTLMS > ttl {
			r.TTLMS = ttl
		}
	}
	return nil
}

// expireWith sets the expiry alarm for what was accepted.
func (e *Engine) expireWith(subs []Submission) {
	now := e.clock.NowMS()
	for i := range subs {
		for _, r := range subs[i].Routes {
			if r.TTLMS != 0 {
				e.expireAt(now + max(r.TTLMS, 0))
			}
		}
	}
}

// logUnplaced says which deliveries of accepted events no route could place: they
// are blocked from the beginning, so no execution will ever tell of them.
func (e *Engine) logUnplaced(subs []Submission, answers []Accepted) {
	for i := range min(len(subs), len(answers)) {
		a := &answers[i]
		if a.Err != nil || a.Existing {
			continue
		}
		for _, d := range a.Deliveries {
			if d.Target.Key == RouteErrorKey {
				route, fault := faultOf(subs[i].Routes, d.Target.Handler)
				e.log.Error("delivery blocked: its route failed on the event", "delivery", e.publicID(d.ID), "event", e.store.Names().Format(KindEvent, int64(a.Event)),
					"handler", d.Target.Handler, "route", route, "code", CodeRouteError, "fault", fault)
			}
		}
	}
}

// faultOf is the first route to a handler that failed, and why.
func faultOf(routes []Routed, handler string) (route, fault string) {
	for i := range routes {
		if routes[i].Handler == handler && routes[i].Fault != "" {
			return routes[i].Route, routes[i].Fault
		}
	}
	return "", ""
}
