package edgetest

import (
	"context"
	"fmt"
	"sort"
	"time"

	"fencepost/edge"
)

// DeadOwners lists the owners of closed and killed openings that hold leases.
func (m *Model) DeadOwners(ctx context.Context) ([]string, error) {
	var out []string
	err := m.view(ctx, "DeadOwners", func(t *tx) error {
		for _, owner := range t.openingsByOwner() {
			if t.openings[owner].closed && t.holds(owner) {
				out = append(out, owner)
			}
		}
		return nil
	})
	return out, err
}

func (s *state) holds(owner string) bool {
	for _, l := range s.leases {
		if l.Owner == owner {
			return true
		}
	}
	return false
}

// VoidOwner voids all leases of a dead owner.
func (m *Model) VoidOwner(ctx context.Context, owner string) ([]edge.Voided, error) {
	var out []edge.Voided
	err := m.update(ctx, "VoidOwner", func(t *tx) error {
		if o := t.openings[owner]; o != nil && !o.closed {
			return fmt.Errorf("%w: owner %s is alive", edge.ErrConflict, owner)
		}
		out = t.void(func(l *edge.Lease) bool { return l.Owner == owner })
		return nil
	})
	return out, err
}

// VoidStale voids leases of live foreign owners whose expiry has not moved for
// a full lease on this opening's monotonic clock.
func (m *Model) VoidStale(ctx context.Context) ([]edge.Voided, error) {
	var out []edge.Voided
	err := m.update(ctx, "VoidStale", func(t *tx) error {
		mono, full := t.clock.Mono(), time.Duration(t.leaseMS)*time.Millisecond
		seen := map[edge.Token]sighting{}
		stale := map[edge.Token]bool{}
		for token, l := range t.leases {
			if o := t.openings[l.Owner]; l.Owner == t.owner || o == nil || o.closed {
				continue
			}
			before, known := t.stale[token]
			if !known || before.expiresMS != l.ExpiresMS {
				before = sighting{expiresMS: l.ExpiresMS, at: mono}
			}
			seen[token] = before
			stale[token] = mono-before.at >= full
		}
		t.stale = seen
		out = t.void(func(l *edge.Lease) bool { return stale[l.Token] })
		return nil
	})
	return out, err
}

// void takes away the leases that match, by the order of their executions.
func (t *tx) void(match func(*edge.Lease) bool) []edge.Voided {
	var lost []*edge.Lease
	for _, l := range t.leases {
		if match(l) {
			lost = append(lost, l)
		}
	}
	sort.Slice(lost, func(i, j int) bool { return lost[i].Execution < lost[j].Execution })
	var out []edge.Voided
	for _, l := range lost {
		out = append(out, t.lose(l))
	}
	return out
}

// lose restates where a lost lease leads.
func (t *tx) lose(l *edge.Lease) edge.Voided {
	x := t.executions[l.Execution]
	started := x.StartedMS != 0
	v := edge.Voided{
		Delivery: l.Delivery, Execution: l.Execution, Target: l.Target, Owner: l.Owner,
		Started: started, Code: edge.CodeLeaseLost,
	}
	d := t.deliveries[l.Delivery]
	if d == nil {
		t.free(l, edge.OutcomeLost, v.Code, "")
		t.pruneTargets()
		return v
	}
	d.Losses++
	most := 10
	if r, ok := t.regs[l.Target.Handler]; ok {
		most = r.MaxLosses
	}
	switch {
	case started && x.Effect != edge.Idempotent && x.Effect != edge.Transactional:
		v.State, v.Code = edge.Blocked, edge.CodeLostAfterStart
	case d.CancelMS != 0:
		v.State, v.Code = edge.Cancelled, edge.CodeCancelled
	case d.Losses >= most:
		v.State, v.Code = edge.Failed, edge.CodeBudgetExhausted
	default:
		v.State, d.DueMS = edge.Pending, t.nowMS
	}
	t.free(l, edge.OutcomeLost, edge.CodeLeaseLost, "")
	t.end(d, v.State, v.Code, x)
	d.unknown = v.State == edge.Blocked
	t.halt(d)
	return v
}
