package edgetest

import (
	"context"
	"fmt"
	"slices"
	"unicode/utf8"

	"fencepost/edge"
)

// Start crosses the start barrier.
func (m *Model) Start(ctx context.Context, e edge.ExecutionID, token edge.Token) (edge.State, error) {
	var out edge.State
	err := m.update(ctx, "Start", func(t *tx) error {
		l := t.leases[token]
		if t.executions[e] == nil {
			return fmt.Errorf("%w: execution %d", edge.ErrNotFound, e)
		}
		if l == nil || l.Execution != e || l.Delivery == 0 {
			return fmt.Errorf("start execution %d: %w", e, edge.ErrLeaseLost)
		}
		d, x := t.deliveries[l.Delivery], t.executions[e]
		switch {
		case d.State == edge.Running:
			out = edge.Running
			return nil
		case l.ExpiresMS <= t.nowMS:
			return illegal(d, edge.OnStart, "the lease has expired")
		case t.tooLate(d):
			return illegal(d, edge.OnStart, "the delivery has expired")
		case d.CancelMS != 0:
			return illegal(d, edge.OnStart, "cancelling was asked for")
		case !gateOpen(t.handlers[d.Target.Handler], t.nowMS):
			return illegal(d, edge.OnStart, "the handler's gate is closed")
		}
		if t.isConsumed(d) {
			out = edge.Succeeded
			t.free(l, edge.OutcomeSucceeded, edge.CodeAlreadyConsumed, "")
			t.end(d, out, edge.CodeAlreadyConsumed, x)
			return nil
		}
		out = edge.Running
		t.begin(d, x)
		t.end(d, out, d.Code, x)
		return nil
	})
	return out, err
}

// Renew moves the expiry of leases, and voids this owner's expired ones that
// are not named.
func (m *Model) Renew(ctx context.Context, live []edge.Token) (edge.Renewed, error) {
	var out edge.Renewed
	err := m.update(ctx, "Renew", func(t *tx) error {
		for _, token := range live {
			l := t.leases[token]
			if l == nil || l.Owner != t.owner {
				out.Lost = append(out.Lost, token)
				continue
			}
			l.ExpiresMS = t.nowMS + t.leaseMS
			if d := t.deliveries[l.Delivery]; d != nil && d.CancelMS != 0 {
				out.Cancel = append(out.Cancel, token)
			}
		}
		out.Voided = t.void(func(l *edge.Lease) bool {
			return l.Owner == t.owner && l.ExpiresMS <= t.nowMS && !slices.Contains(live, l.Token)
		})
		return nil
	})
	return out, err
}

// Release ends an execution that has not started.
func (m *Model) Release(ctx context.Context, s edge.Settlement) (edge.Settled, error) {
	switch s.Outcome {
	case edge.OutcomeRetry, edge.OutcomeDeferred, edge.OutcomeInterrupted, edge.OutcomeBlocked:
	default:
		return edge.Settled{}, fmt.Errorf("%w: release: outcome %q", edge.ErrInvalid, s.Outcome)
	}
	if err := normalSettlement(&s); err != nil {
		return edge.Settled{}, err
	}
	var out edge.Settled
	err := m.update(ctx, "Release", func(t *tx) error {
		l := t.leases[s.Token]
		if l == nil || l.Execution != s.Execution || l.Delivery == 0 {
			x := t.executions[s.Execution]
			if x == nil {
				return fmt.Errorf("%w: execution %d", edge.ErrNotFound, s.Execution)
			}
			if x.token == s.Token && x.repeats(s) {
				out = *x.settled
				out.Repeated = true
				return nil
			}
			return fmt.Errorf("release execution %d: %w", s.Execution, edge.ErrLeaseLost)
		}
		d := t.deliveries[l.Delivery]
		if d.State != edge.Leased {
			return illegal(d, "release "+edge.Trigger(s.Outcome), "it has started: settle it")
		}
		v := t.weigh(d, s, false)
		out = t.finish(l, d, s, v)
		return nil
	})
	return out, err
}

// Settle ends a started execution.
func (m *Model) Settle(ctx context.Context, s edge.Settlement) (edge.Settled, error) {
	switch s.Outcome {
	case edge.OutcomeSucceeded, edge.OutcomeFailed, edge.OutcomeRetry, edge.OutcomeDeferred,
		edge.OutcomeInterrupted, edge.OutcomeBlocked, edge.OutcomeIndeterminate:
	default:
		return edge.Settled{}, fmt.Errorf("%w: settle: outcome %q", edge.ErrInvalid, s.Outcome)
	}
	if err := normalSettlement(&s); err != nil {
		return edge.Settled{}, err
	}
	var out edge.Settled
	err := m.update(ctx, "Settle", func(t *tx) error {
		l := t.leases[s.Token]
		if l == nil || l.Execution != s.Execution || l.Delivery == 0 {
			var err error
			out, err = t.settleWithoutLease(s)
			return err
		}
		d := t.deliveries[l.Delivery]
		if d.State != edge.Running {
			return illegal(d, "settle "+edge.Trigger(s.Outcome), "it has not started: release it")
		}
		out = t.settle(l, d, s)
		return nil
	})
	return out, err
}

func normalSettlement(s *edge.Settlement) error {
	if s.Code == "" {
		s.Code = string(s.Outcome)
	}
	if !edge.ValidCode(s.Code) {
		return fmt.Errorf("%w: code %q: [a-z0-9][a-z0-9_.:-]*, at most %d bytes", edge.ErrInvalid, s.Code, edge.MaxCodeBytes)
	}
	if len(s.FollowUps) > 0 && s.Outcome != edge.OutcomeSucceeded {
		return fmt.Errorf("%w: follow-up events with outcome %s", edge.ErrInvalid, s.Outcome)
	}
	if len(s.Detail) > edge.MaxDetailBytes {
		s.Detail = s.Detail[:edge.MaxDetailBytes]
		for !utf8.ValidString(s.Detail) && len(s.Detail) > edge.MaxDetailBytes-utf8.UTFMax {
			s.Detail = s.Detail[:len(s.Detail)-1]
		}
	}
	return nil
}

// settle ends a running delivery's execution under its lease.
func (t *tx) settle(l *edge.Lease, d *delivery, s edge.Settlement) edge.Settled {
	if s.Outcome == edge.OutcomeSucceeded && !t.acceptable(s.FollowUps) {
		s.Outcome, s.Code, s.FollowUps = edge.OutcomeFailed, edge.CodeFollowUpRefused, nil
		answer := t.finish(l, d, s, t.weigh(d, s, true))
		return answer
	}
	answer := t.finish(l, d, s, t.weigh(d, s, true))
	for i := range s.FollowUps {
		answer.FollowUps = append(answer.FollowUps, t.accept(&s.FollowUps[i]))
	}
	t.executions[s.Execution].settled.FollowUps = answer.FollowUps
	return answer
}

// acceptable says whether all follow-up events can be accepted.
func (t *tx) acceptable(subs []edge.Submission) bool {
	if len(subs) > edge.MaxFollowUps {
		return false
	}
	digests := map[identity][32]byte{}
	for i := range subs {
		if _, err := t.judge(&subs[i]); err != nil || subs[i].Event.Depth > edge.MaxFollowUpDepth {
			return false
		}
		e := &subs[i].Event
		id, digest := identity{e.Source, e.ID}, e.Digest()
		if other, twice := digests[id]; twice && other != digest {
			return false
		}
		digests[id] = digest
	}
	return true
}

// finish writes the end of an execution under its lease.
func (t *tx) finish(l *edge.Lease, d *delivery, s edge.Settlement, v verdict) edge.Settled {
	x := t.free(l, s.Outcome, s.Code, s.Detail)
	d.Attempts, d.Losses = v.attempts, v.losses
	if v.to == edge.Pending {
		d.DueMS = v.dueMS
	}
	t.end(d, v.to, v.code, x)
	if v.unknown {
		d.unknown = true
	}
	t.halt(d)
	t.throttle(d.Target.Handler, s)
	answer := edge.Settled{Delivery: d.ID, State: v.to, Code: v.code, DueMS: v.dueMS}
	x.settled = &answer
	return answer
}

// throttle closes a handler's gate as a settlement asks.
func (t *tx) throttle(handler string, s edge.Settlement) {
	row := t.handlers[handler]
	h := &row.HandlerInfo
	missing := h.Gate == edge.GateMissing
	if missing {
		h = &row.kept
	}
	switch {
	case h.Gate == edge.GateOff, missing && !s.GateOff:
		return
	case s.GateOff:
		h.Gate, h.GateCode, h.ResumeMS = edge.GateOff, s.GateCode, 0
	case s.PauseMS > 0:
		resume := t.nowMS + s.PauseMS
		if h.Gate == edge.GatePaused && h.ResumeMS >= resume {
			return
		}
		h.Gate, h.GateCode, h.ResumeMS = edge.GatePaused, s.GateCode, resume
	default:
		return
	}
	row.Version++
}

// settleWithoutLease answers a settlement whose lease is gone.
func (t *tx) settleWithoutLease(s edge.Settlement) (edge.Settled, error) {
	lost := fmt.Errorf("settle execution %d: %w", s.Execution, edge.ErrLeaseLost)
	x := t.executions[s.Execution]
	if x == nil {
		return edge.Settled{}, fmt.Errorf("%w: execution %d", edge.ErrNotFound, s.Execution)
	}
	if x.token != s.Token || x.Delivery == 0 {
		return edge.Settled{}, lost
	}
	if x.repeats(s) {
		answer := *x.settled
		answer.Repeated = true
		return answer, nil
	}
	if x.late != nil && x.LateOutcome == s.Outcome && x.code == s.Code && x.detail == s.Detail {
		answer := *x.late
		answer.Repeated = true
		return answer, nil
	}
	d := t.deliveries[x.Delivery]
	final := s.Outcome == edge.OutcomeSucceeded || s.Outcome == edge.OutcomeFailed
	own := d != nil && d.State == edge.Blocked && d.unknown && d.Execution == x.ID && x.Outcome == edge.OutcomeLost
	if own && final {
		return t.settleLate(d, x, s), nil
	}
	if x.Outcome != edge.OutcomeLost || x.late != nil {
		return edge.Settled{}, fmt.Errorf("%w: execution %d has ended as %s (%s)", edge.ErrConflict, x.ID, x.Outcome, x.Code)
	}
	if x.LateOutcome == "" {
		x.LateOutcome = s.Outcome
	}
	return edge.Settled{}, lost
}

// repeats says that s is the settlement that ended x.
func (x *execution) repeats(s edge.Settlement) bool {
	return x.settled != nil && x.Outcome == s.Outcome && x.Code == s.Code && x.Detail == s.Detail
}

// settleLate takes the result that was thought lost.
func (t *tx) settleLate(d *delivery, x *execution, s edge.Settlement) edge.Settled {
	var followUps []edge.Submission
	to, code := edge.Failed, s.Code
	if s.Outcome == edge.OutcomeSucceeded {
		to, followUps = edge.Succeeded, s.FollowUps
		if !t.acceptable(followUps) {
			to, code, followUps = edge.Failed, edge.CodeFollowUpRefused, nil
		}
	}
	if to == edge.Failed {
		d.Attempts++
	}
	x.LateOutcome, x.code, x.detail = s.Outcome, s.Code, s.Detail
	t.end(d, to, code, x)
	t.halt(d)
	answer := edge.Settled{Delivery: d.ID, State: to, Code: code}
	for i := range followUps {
		answer.FollowUps = append(answer.FollowUps, t.accept(&followUps[i]))
	}
	x.late = &answer
	return answer
}

// Acquire takes a lease on a target for code that is not a delivery.
func (m *Model) Acquire(ctx context.Context, at edge.Target) (edge.Lease, error) {
	if at.Handler == "" || at.Key == edge.RouteErrorKey {
		return edge.Lease{}, fmt.Errorf("%w: target %q", edge.ErrInvalid, at)
	}
	var out edge.Lease
	err := m.update(ctx, "Acquire", func(t *tx) error {
		if tg := t.targets[at]; tg != nil && tg.full() {
			return fmt.Errorf("target %s: %w", at, edge.ErrBusy)
		}
		t.target(at)
		l, e := t.lease(at, 0, "", "")
		e.StartedMS = t.nowMS
		out = *l
		return nil
	})
	return out, err
}

// Relinquish ends what Acquire began.
func (m *Model) Relinquish(ctx context.Context, e edge.ExecutionID, token edge.Token, o edge.Outcome, code string) error {
	return m.update(ctx, "Relinquish", func(t *tx) error {
		l := t.leases[token]
		if l == nil || l.Execution != e || l.Delivery != 0 {
			return fmt.Errorf("relinquish execution %d: %w", e, edge.ErrLeaseLost)
		}
		t.free(l, o, code, "")
		t.pruneTargets()
		return nil
	})
}
