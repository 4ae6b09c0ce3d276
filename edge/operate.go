package edge

import (
	"context"
	"errors"
	"fmt"
)

// Cancel calls a delivery off. Before the start it is final at once; a running
// handler's context is cancelled with [ErrCancelled] and what it answers is
// stored. A final delivery is returned as it is; a blocked one must be resolved.
func (e *Engine) Cancel(ctx context.Context, id DeliveryID) (Delivery, error) {
	d, err := e.store.Cancel(ctx, id)
	if err != nil {
		return d, fmt.Errorf("cancel: %w", err)
	}
	e.acted("cancel asked for", nil, "delivery", e.publicID(id), "state", d.State)
	if d.CancelMS != 0 || d.State == Cancelled {
		e.live.cancelWhere(ErrCancelled, func(r *run) bool { return r.c != nil && r.c.Delivery == id })
	}
	return d, nil
}

// Resolve decides a blocked delivery; see [Operator].
func (e *Engine) Resolve(ctx context.Context, r Resolution) (Delivery, error) {
	d, err := e.store.Resolve(ctx, r)
	e.acted("delivery resolved", err, "delivery", e.publicID(r.Delivery), "target", d.Target.String(), "as", r.As,
		"by", scrub(r.By, maxTextBytes), "reason", scrub(r.Reason, maxTextBytes))
	return d, err
}

// Redrive makes a new generation of a final delivery; see [Operator].
func (e *Engine) Redrive(ctx context.Context, r Redrive) (Delivery, error) {
	d, err := e.store.Redrive(ctx, r)
	e.acted("delivery redriven", err, "delivery", e.publicID(d.ID), "of", e.publicID(r.Delivery), "target", d.Target.String(),
		"again", r.Again, "new_key", r.NewKey)
	return d, err
}

// RetryNow makes a waiting retry due now; see [Operator].
func (e *Engine) RetryNow(ctx context.Context, id DeliveryID) (Delivery, error) {
	d, err := e.store.RetryNow(ctx, id)
	e.acted("retry asked for now", err, "delivery", e.publicID(id), "target", d.Target.String())
	return d, err
}

// Bulk does one verb to many deliveries, each as it was seen; see [Operator].
// Running handlers among those that are cancelled are told.
func (e *Engine) Bulk(ctx context.Context, b Bulk) ([]BulkResult, error) {
	rs, err := e.store.Bulk(ctx, b)
	if err != nil {
		return rs, err
	}
	done, stop := 0, map[DeliveryID]bool{}
	for i, r := range rs {
		if r.Err != nil || r.Delivery.ID == b.Items[i].Delivery && r.Delivery.Version == b.Items[i].Version {
			continue // refused, or as it was: there was nothing to do
		}
		done++
		if b.Verb == BulkCancel {
			stop[r.Delivery.ID] = true
		}
	}
	if done > 0 {
		e.acted("bulk operation", nil, "verb", b.Verb, "asked", len(b.Items), "done", done,
			"first", e.publicID(b.Items[0].Delivery), "last", e.publicID(b.Items[len(b.Items)-1].Delivery))
	}
	if len(stop) > 0 {
		e.live.cancelWhere(ErrCancelled, func(r *run) bool { return r.c != nil && stop[r.c.Delivery] })
	}
	return rs, nil
}

// ResumeTarget ends a halt; see [Operator].
func (e *Engine) ResumeTarget(ctx context.Context, t Target) (TargetInfo, error) {
	info, err := e.store.ResumeTarget(ctx, t)
	e.acted("target resumed", err, "target", t.String())
	return info, err
}

// SkipTarget lets a line go past its stall; see [Operator].
func (e *Engine) SkipTarget(ctx context.Context, t Target, version int64, reason, by string) (TargetInfo, error) {
	info, err := e.store.SkipTarget(ctx, t, version, reason, by)
	e.acted("target skipped", err, "target", t.String(), "by", scrub(by, maxTextBytes), "reason", scrub(reason, maxTextBytes))
	return info, err
}

// SetGate opens, closes or pauses a handler's gate; see [Operator].
func (e *Engine) SetGate(ctx context.Context, handler string, g Gate, code string, resumeMS int64) (HandlerInfo, error) {
	h, err := e.store.SetGate(ctx, handler, g, code, resumeMS)
	if err == nil {
		e.gateSet(handler, g)
	}
	e.acted("gate set", err, "handler", handler, "gate", h.Gate, "code", h.GateCode)
	return h, err
}

// acted logs what a person did. A refusal is told to that person alone.
func (e *Engine) acted(what string, err error, attrs ...any) {
	if err == nil {
		e.log.Info(what, attrs...)
	}
}

func (e *Engine) publicID(id DeliveryID) string {
	return e.store.Names().Format(KindDelivery, int64(id))
}

// Bounds of one pass of Reroute.
const (
	reroutePage = 500
	rerouteMost = 100_000
)

// Reroute asks the router again about deliveries that are blocked because their
// route failed, and gives those whose route works now their target. It returns
// how many those were. Start and Reload do this by themselves.
func (e *Engine) Reroute(ctx context.Context) (int, error) {
	if e.now().o.Router == nil {
		return 0, nil
	}
	f := DeliveryFilter{State: Blocked, Code: CodeRouteError, Limit: reroutePage}
	n := 0
	for seen := 0; seen < rerouteMost; {
		page, err := e.store.Deliveries(ctx, f)
		if err != nil {
			return n, fmt.Errorf("list deliveries with %s: %w", CodeRouteError, err)
		}
		for i := range page {
			moved, err := e.rerouteOne(ctx, &page[i])
			if err != nil {
				return n, err
			}
			if moved {
				n++
			}
		}
		if len(page) < reroutePage {
			return n, nil
		}
		seen += len(page)
		f.Before = page[len(page)-1].ID
	}
	return n, nil
}

// RouteFault says why the route of a delivery fails on its event now; "" when it
// does not, or when that cannot be told. It is for people who look at a delivery
// with route_error.
func (e *Engine) RouteFault(ctx context.Context, d *Delivery) string {
	ev, err := e.store.Event(ctx, d.Event)
	if err != nil {
		return ""
	}
	routes, err := e.route(&ev)
	if err != nil {
		return scrub(err.Error(), maxTextBytes)
	}
	for _, to := range routes {
		if to.Route == d.Route && to.Handler == d.Target.Handler {
			return to.Fault
		}
	}
	return ""
}

// rerouteOne reports whether d got its target. What concerns this delivery alone
// (pruned, moved meanwhile, still no route) is no error.
func (e *Engine) rerouteOne(ctx context.Context, d *Delivery) (bool, error) {
	ev, err := e.store.Event(ctx, d.Event)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read event %d: %w", d.Event, err)
	}
	routes, err := e.route(&ev)
	if err == nil {
		err = limitTTL(&ev, routes, e.clock.NowMS())
	}
	if err != nil {
		e.log.Warn("route still fails", "delivery", e.publicID(d.ID), "err", err)
		return false, nil
	}
	for _, to := range routes {
		if to.Route != d.Route || to.Handler != d.Target.Handler || to.Fault != "" {
			continue
		}
		_, err := e.store.Reroute(ctx, d.ID, to)
		if errors.Is(err, ErrConflict) || errors.Is(err, ErrNotFound) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("reroute delivery %d: %w", d.ID, err)
		}
		if to.TTLMS != 0 {
			e.expireAt(e.clock.NowMS() + max(to.TTLMS, 0))
		}
		return true, nil
	}
	return false, nil
}

func (e *Engine) rerouteAtStart(ctx context.Context) {
	n, err := e.Reroute(ctx)
	if err != nil {
		e.storeFault("reroute", err)
	}
	if n > 0 {
		e.log.Info("routes work again", "deliveries", n)
	}
}
