package edgetest

import (
	"context"
	"fmt"
	"sort"

	"fencepost/edge"
)

// Register declares the handlers of this opening.
func (m *Model) Register(ctx context.Context, rs []edge.Registration, limit int, leaseMS int64) error {
	regs := map[string]edge.Registration{}
	for _, r := range rs {
		r, err := normalRegistration(r)
		if err != nil {
			return err
		}
		if _, twice := regs[r.Name]; twice {
			return fmt.Errorf("%w: handler %q is registered twice", edge.ErrInvalid, r.Name)
		}
		regs[r.Name] = r
	}
	if limit < 1 || leaseMS < 1 {
		return fmt.Errorf("%w: limit %d and lease %d ms must be at least 1", edge.ErrInvalid, limit, leaseMS)
	}
	// What was claimed before is delivered when this returns.
	m.giving.Lock()
	defer m.giving.Unlock()
	return m.update(ctx, "Register", func(t *tx) error {
		m.regs, m.total, m.leaseMS = regs, limit, leaseMS
		for name, h := range t.handlers {
			if _, ok := regs[name]; !ok && h.Gate != edge.GateMissing {
				h.kept = h.HandlerInfo
				h.Gate, h.GateCode, h.ResumeMS = edge.GateMissing, edge.CodeHandlerMissing, 0
				h.Version++
			}
		}
		for _, r := range regs {
			t.registerOne(r)
		}
		return nil
	})
}

func normalRegistration(r edge.Registration) (edge.Registration, error) {
	if r.Name == "" {
		return r, fmt.Errorf("%w: a handler has no name", edge.ErrInvalid)
	}
	if r.Slots < 1 || r.Limit < 1 {
		return r, fmt.Errorf("%w: handler %q: slots and limit must be at least 1", edge.ErrInvalid, r.Name)
	}
	if err := r.Rate.Validate(); err != nil {
		return r, fmt.Errorf("%w: handler %q: %w", edge.ErrInvalid, r.Name, err)
	}
	if r.Halt && r.Slots > 1 {
		return r, fmt.Errorf("%w: handler %q: halt on failure needs strict order (one slot per target)", edge.ErrInvalid, r.Name)
	}
	if r.Effect != edge.Idempotent && r.Effect != edge.Transactional && r.Effect != edge.Once {
		return r, fmt.Errorf("%w: handler %q: effect %q", edge.ErrInvalid, r.Name, r.Effect)
	}
	if r.MaxLosses <= 0 {
		r.MaxLosses = 10
	}
	return r, nil
}

func (t *tx) registerOne(r edge.Registration) {
	h := t.handlers[r.Name]
	switch {
	case h == nil:
		h = t.handler(r.Name)
		h.Gate, h.GateCode, h.Revision = edge.GateOn, "", r.Revision
	case h.Gate == edge.GateMissing || h.Revision != r.Revision:
		if h.Gate == edge.GateMissing {
			h.Gate, h.GateCode, h.ResumeMS = h.kept.Gate, h.kept.GateCode, h.kept.ResumeMS
		}
		h.Revision = r.Revision
		h.Version++
	}
	h = t.handlers[r.Name]
	if r.Rate.Limited() && !h.Rate.Limited() {
		h.fullUS = t.nowMS * 1000
	}
	h.slots, h.Rate, h.fullUS = r.Slots, r.Rate, r.Rate.Clamp(h.fullUS, t.nowMS)
	for at, tg := range t.targets {
		if at.Handler == r.Name && at.Key != edge.RouteErrorKey && tg.Slots != r.Slots {
			tg.Slots = r.Slots
			tg.Version++
			t.refresh(tg)
		}
	}
	for _, d := range t.byID() {
		if d.Target.Handler == r.Name && blockedByConfiguration(d) {
			t.reconfigure(d)
		}
	}
}

// blockedByConfiguration tells this reason to be blocked from an unknown
// outcome and a fault of a route.
func blockedByConfiguration(d *delivery) bool {
	return d.State == edge.Blocked && !d.unknown && d.Code != edge.CodeRouteError
}

func (t *tx) reconfigure(d *delivery) {
	if d.CancelMS != 0 {
		t.move(d, edge.Cancelled, edge.CodeCancelled)
		return
	}
	d.DueMS = t.nowMS
	t.move(d, edge.Pending, edge.CodeHandlerRequeued)
}

// byID is all deliveries in the order of their ids.
func (s *state) byID() []*delivery {
	all := make([]*delivery, 0, len(s.deliveries))
	for _, d := range s.deliveries {
		all = append(all, d)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].ID < all[j].ID })
	return all
}

// SetLimit changes the limits of a registered handler and of all.
func (m *Model) SetLimit(handler string, n, total int) {
	m.lock <- struct{}{}
	defer func() { <-m.lock }()
	if r, ok := m.regs[handler]; ok {
		r.Limit = n
		m.regs[handler] = r
	}
	m.total = total
	m.rouse()
}

// Accept stores events with their deliveries.
func (m *Model) Accept(ctx context.Context, subs []edge.Submission) ([]edge.Accepted, error) {
	if len(subs) > edge.MaxBatchEvents {
		return nil, fmt.Errorf("%w: batch: %d events, the limit is %d", edge.ErrInvalid, len(subs), edge.MaxBatchEvents)
	}
	var out []edge.Accepted
	err := m.update(ctx, "Accept", func(t *tx) error {
		out = t.acceptAll(subs)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (t *tx) acceptAll(subs []edge.Submission) []edge.Accepted {
	out := make([]edge.Accepted, len(subs))
	for i := range subs {
		out[i] = t.accept(&subs[i])
	}
	return out
}

// judge says whether a submission may be stored: nil, ErrInvalid or ErrConflict,
// and the event that is there already.
func (t *tx) judge(sub *edge.Submission) (*event, error) {
	if err := sub.Event.Validate(0); err != nil {
		return nil, err
	}
	for _, r := range sub.Routes {
		switch {
		case r.Handler == "":
			return nil, fmt.Errorf("%w: route %q names no handler", edge.ErrInvalid, r.Route)
		case len(r.Key) > edge.MaxNameBytes:
			return nil, fmt.Errorf("%w: key: %d bytes, the limit is %d", edge.ErrInvalid, len(r.Key), edge.MaxNameBytes)
		case r.Fault == "" && r.Key == edge.RouteErrorKey:
			return nil, fmt.Errorf("%w: key %q is reserved", edge.ErrInvalid, r.Key)
		}
	}
	n, ok := t.identities[identity{sub.Event.Source, sub.Event.ID}]
	if !ok {
		return nil, nil
	}
	e := t.events[n]
	if e.digest != sub.Event.Digest() {
		return e, fmt.Errorf("%w: event %q of source %q is there with other content", edge.ErrConflict, sub.Event.ID, sub.Event.Source)
	}
	return e, nil
}

func (t *tx) accept(sub *edge.Submission) edge.Accepted {
	there, err := t.judge(sub)
	if err != nil {
		return edge.Accepted{Err: err}
	}
	if there != nil {
		return edge.Accepted{Event: there.N, Existing: true, Deliveries: t.refs(there.N)}
	}
	t.lastEvent++
	e := &event{Event: cloneEvent(&sub.Event), digest: sub.Event.Digest()}
	if e.Data == nil {
		e.Data = []byte{} // nil means pruned
	}
	e.N, e.AcceptedMS = t.lastEvent, t.nowMS
	t.events[e.N] = e
	t.identities[identity{e.Source, e.Event.ID}] = e.N
	t.counters["accepted"]++
	seen := map[edge.Target]bool{}
	for _, r := range sub.Routes {
		// Faults are not one target: each is mended by its own route.
		if at := routedTo(r); r.Fault != "" || !seen[at] {
			seen[at] = true
			t.owe(e.N, r, edge.ShareBytes(&e.Event, len(sub.Routes)))
		}
	}
	return edge.Accepted{Event: e.N, Deliveries: t.refs(e.N)}
}

func routedTo(r edge.Routed) edge.Target {
	if r.Fault != "" {
		return edge.Target{Handler: r.Handler, Key: edge.RouteErrorKey}
	}
	return edge.Target{Handler: r.Handler, Key: r.Key}
}

// owe makes the delivery of an event to a route's target.
func (t *tx) owe(n edge.EventID, r edge.Routed, bytes int64) {
	at := routedTo(r)
	d := &delivery{bytes: bytes}
	d.Event, d.Target, d.Generation, d.Route = n, at, 1, r.Route
	d.State = edge.Pending
	d.Ordered = t.target(at).strict()
	if r.TTLMS != 0 {
		d.ExpiresMS = t.nowMS + r.TTLMS
	}
	if r.Fault != "" {
		d.State, d.Code = edge.Blocked, edge.CodeRouteError
	}
	t.insert(d)
}

// refs names the deliveries of an event's first generation.
func (s *state) refs(n edge.EventID) []edge.DeliveryRef {
	var refs []edge.DeliveryRef
	for _, d := range s.byID() {
		if d.Event == n && d.Generation == 1 {
			refs = append(refs, edge.DeliveryRef{ID: d.ID, Target: d.Target, State: d.State})
		}
	}
	return refs
}

func cloneEvent(e *edge.Event) edge.Event {
	c := *e
	if e.Extensions != nil {
		c.Extensions = make(map[string]string, len(e.Extensions))
		for k, v := range e.Extensions {
			c.Extensions[k] = v
		}
	}
	if e.Data != nil {
		c.Data = append([]byte{}, e.Data...)
	}
	return c
}
