package edgetest

import (
	"context"
	"fmt"
	"sort"
	"time"

	"fencepost/edge"
)

// Claim claims up to max due deliveries.
func (m *Model) Claim(ctx context.Context, max int) ([]edge.Claimed, error) {
	if max < 1 {
		return nil, fmt.Errorf("%w: limit %d: must be at least 1", edge.ErrInvalid, max)
	}
	var out []edge.Claimed
	err := m.update(ctx, "Claim", func(t *tx) error {
		out = t.claim(max)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// ClaimDelivery claims this delivery if a Claim of now could; when it ends
// without a claim (its time has passed, its effect is done) the answer is empty.
// A test that repeats the choices of another store on the model uses it.
// ErrConflict: a Claim could not take it.
func (m *Model) ClaimDelivery(ctx context.Context, id edge.DeliveryID) (edge.Claimed, error) {
	var out edge.Claimed
	err := m.update(ctx, "Claim", func(t *tx) error {
		d, err := t.find(id)
		if err != nil {
			return err
		}
		tg := t.target(d.Target)
		r, ok := m.regs[d.Target.Handler]
		first, retry := t.held(d.Target.Handler)
		switch {
		case tg.next != d || tg.ReadyMS == 0 || tg.ReadyMS > t.nowMS:
			return illegal(d, edge.OnClaim, "nothing claimable, or not this one")
		case ok && !t.hasToken(d.Target.Handler):
			return illegal(d, edge.OnClaim, "the rate limit is reached")
		case !ok || !gateOpen(t.handlers[d.Target.Handler], t.nowMS):
			return illegal(d, edge.OnClaim, "the handler's gate is closed")
		case first+retry >= r.Limit || t.heldInAll() >= m.total:
			return illegal(d, edge.OnClaim, "the limit is reached")
		}
		if !t.endUnclaimed(d) {
			out = t.take(d)
		}
		return nil
	})
	return out, err
}

// Dispatch keeps claiming until ctx is done.
func (m *Model) Dispatch(ctx context.Context, deliver func([]edge.Claimed)) error {
	if err := m.enterDispatch(); err != nil {
		return err
	}
	defer m.leaveDispatch()
	for {
		var out []edge.Claimed
		var wake <-chan struct{}
		var waitMS int64
		m.giving.Lock()
		err := m.update(ctx, "Dispatch", func(t *tx) error {
			out = t.claim(edge.MaxBatchEvents)
			if waitMS = t.nextDue(); waitMS >= 0 {
				waitMS = max(0, waitMS-t.nowMS)
			}
			if len(t.changes) == 0 {
				t.quiet, wake = true, m.wake
			}
			return nil
		})
		if len(out) > 0 && err == nil {
			deliver(out)
		}
		m.giving.Unlock()
		switch {
		case len(out) > 0 && err == nil:
			continue
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case wake == nil:
			continue
		}
		if err := m.await(ctx, wake, waitMS); err != nil || ctx.Err() != nil {
			return err
		}
	}
}

func (m *Model) enterDispatch() error {
	m.lock <- struct{}{}
	defer func() { <-m.lock }()
	if m.dispatching {
		return fmt.Errorf("%w: this opening has a Dispatch already", edge.ErrConflict)
	}
	m.dispatching = true
	return nil
}

func (m *Model) leaveDispatch() {
	m.lock <- struct{}{}
	m.dispatching = false
	<-m.lock
}

// await waits for a commit, the next due time (waitMS from now; negative means
// that there is none) or the end.
func (m *Model) await(ctx context.Context, wake <-chan struct{}, waitMS int64) error {
	var due <-chan time.Time
	if waitMS >= 0 {
		timer := time.NewTimer(time.Duration(waitMS) * time.Millisecond)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-ctx.Done():
		return nil
	case <-wake:
	case <-due:
	case <-m.done:
		return edge.ErrClosed
	case <-m.failed:
		return edge.ErrStorage
	}
	return nil
}

// claim takes what is due, fairly, within the limits.
func (t *tx) claim(max int) []edge.Claimed {
	var out []edge.Claimed
	for len(out) < max && t.heldInAll() < t.total {
		tg := t.pick()
		if tg == nil {
			break
		}
		if d := tg.next; !t.endUnclaimed(d) {
			out = append(out, t.take(d))
		}
	}
	return out
}

// endUnclaimed ends a due delivery that must not be claimed.
func (t *tx) endUnclaimed(d *delivery) bool {
	switch {
	case t.tooLate(d):
		t.move(d, edge.Expired, edge.CodeExpired)
	case t.isConsumed(d):
		t.move(d, edge.Succeeded, edge.CodeAlreadyConsumed)
	default:
		return false
	}
	return true
}

// pick chooses the target of the next claim: of all handlers that may claim,
// the one that has waited longest.
func (t *tx) pick() *target {
	var best *target
	for _, name := range t.registered() {
		r := t.regs[name]
		first, retry := t.held(name)
		if !gateOpen(t.handlers[name], t.nowMS) || first+retry >= r.Limit || !t.hasToken(name) {
			continue
		}
		if tg := t.pickOf(r, retry); tg != nil && (best == nil || tg.ReadyMS < best.ReadyMS) {
			best = tg
		}
	}
	return best
}

// pickOf chooses among the due targets of one handler. While both first tries
// and retries are due, retries get at least a quarter and at most half of the
// limit; with a limit of one the two alternate.
func (t *tx) pickOf(r edge.Registration, retriesHeld int) *target {
	first, retry := t.earliest(r.Name, false), t.earliest(r.Name, true)
	switch {
	case first == nil:
		return retry
	case retry == nil:
		return first
	case r.Limit == 1:
		if t.retryLast[r.Name] {
			return first
		}
		return retry
	case retriesHeld < (r.Limit+3)/4:
		return retry
	case retriesHeld >= (r.Limit+1)/2:
		return first
	case retry.ReadyMS < first.ReadyMS:
		return retry
	}
	return first
}

// earliest is the due target of a handler and class that has waited longest.
func (t *tx) earliest(handler string, retry bool) *target {
	var best *target
	for at, tg := range t.targets {
		if at.Handler != handler || tg.ReadyMS == 0 || tg.ReadyMS > t.nowMS || isRetry(tg.next) != retry {
			continue
		}
		if best == nil || tg.ReadyMS < best.ReadyMS || tg.ReadyMS == best.ReadyMS && tg.id < best.id {
			best = tg
		}
	}
	return best
}

// hasToken says that the rate limit of a handler lets one more be claimed.
func (t *tx) hasToken(handler string) bool {
	h := t.handlers[handler]
	return h.Rate.ReadyMS(h.fullUS) <= t.nowMS
}

func isRetry(d *delivery) bool { return d.Attempts > 0 || d.Losses > 0 }

// nextDue is when something that is not due now becomes claimable; -1 for
// never.
func (t *tx) nextDue() int64 {
	next := int64(-1)
	if t.heldInAll() >= t.total {
		return next
	}
	for at, tg := range t.targets {
		r, ok := t.regs[at.Handler]
		first, retry := t.held(at.Handler)
		h := t.handlers[at.Handler]
		if !ok || tg.ReadyMS == 0 || first+retry >= r.Limit {
			continue
		}
		due := max(tg.ReadyMS, h.Rate.ReadyMS(h.fullUS))
		switch h.Gate {
		case edge.GateOn:
		case edge.GatePaused:
			due = max(due, h.ResumeMS)
		default:
			continue
		}
		if next < 0 || due < next {
			next = due
		}
	}
	return next
}

func (t *tx) registered() []string {
	names := make([]string, 0, len(t.regs))
	for name := range t.regs {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// held counts the deliveries of a handler that this owner holds.
func (t *tx) held(handler string) (first, retry int) {
	for _, l := range t.leases {
		if l.Owner != t.owner || l.Delivery == 0 || l.Target.Handler != handler {
			continue
		}
		if isRetry(t.deliveries[l.Delivery]) {
			retry++
		} else {
			first++
		}
	}
	return first, retry
}

func (t *tx) heldInAll() int {
	n := 0
	for _, l := range t.leases {
		if l.Owner == t.owner && l.Delivery != 0 {
			n++
		}
	}
	return n
}

// tooLate says that a delivery's time has passed, on a clock that is trusted.
func (t *tx) tooLate(d *delivery) bool {
	return d.ExpiresMS != 0 && d.ExpiresMS <= t.nowMS && !t.clock.Doubted()
}

func (t *tx) isConsumed(d *delivery) bool {
	return !d.Again && t.consumed[consumption{d.Event, d.Target}]
}

// take claims a delivery and, when there is nothing to inspect, starts it.
func (t *tx) take(d *delivery) edge.Claimed {
	r := t.regs[d.Target.Handler]
	l, e := t.lease(d.Target, d.ID, r.Effect, r.Revision)
	e.Attempt = d.Attempts + 1
	retry := isRetry(d)
	t.retryLast[r.Name] = retry
	if h := t.handlers[r.Name]; h.Rate.Limited() {
		h.fullUS = h.Rate.Take(h.fullUS, t.nowMS)
	}
	tg := t.target(d.Target)
	tg.servedMS = t.nowMS
	d.Execution = e.ID
	t.remember(d, e.ID)
	state := edge.Leased
	if !r.Inspect {
		state = edge.Running
		t.begin(d, e)
	}
	t.end(d, state, "", e)
	ev := cloneEvent(&t.events[d.Event].Event)
	return edge.Claimed{
		Claim: edge.Claim{
			Delivery: d.ID, DeliveryID: edge.FormatID(edge.KindDelivery, t.node, int64(d.ID)),
			Event: &ev, EventID: edge.FormatID(edge.KindEvent, t.node, int64(d.Event)),
			Target: d.Target, Route: d.Route,
			Key:   edge.FormatID(edge.KindDelivery, t.node, int64(d.KeyOf)),
			Fence: e.ID, Attempt: e.Attempt, DeadlineMS: d.ExpiresMS, Owner: t.owner,
		},
		Token: l.Token, Effect: e.Effect, Started: !r.Inspect, ExpiresMS: l.ExpiresMS, Retry: retry, Serial: r.Serial,
	}
}

// lease takes a slot of a target with a new execution.
func (t *tx) lease(at edge.Target, d edge.DeliveryID, effect edge.Effect, revision string) (*edge.Lease, *execution) {
	t.lastExecution++
	e := &execution{token: edge.NewToken()}
	e.ID, e.Delivery, e.Owner = t.lastExecution, d, t.owner
	e.Effect, e.Revision, e.ClaimedMS = effect, revision, t.nowMS
	t.executions[e.ID] = e
	l := &edge.Lease{
		Token: e.token, Target: at, Delivery: d, Execution: e.ID, Owner: t.owner, ExpiresMS: t.nowMS + t.leaseMS,
	}
	t.leases[l.Token] = l
	tg := t.target(at)
	tg.Busy++
	t.refresh(tg)
	return l, e
}

// begin crosses the start barrier.
func (t *tx) begin(d *delivery, e *execution) {
	e.StartedMS = t.nowMS
	if d.FirstStartMS == 0 {
		d.FirstStartMS = t.nowMS
	}
}
