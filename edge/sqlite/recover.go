package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"time"

	"fencepost/edge"
)

// leaseRow names a lease that is to be voided.
type leaseRow struct {
	target    int64
	token     edge.Token
	execution edge.ExecutionID
	owner     string
	expires   int64
}

// void takes a lease from its owner and moves its delivery by what the handler
// declared at the claim.
func (tx *tx) void(l leaseRow) (edge.Voided, error) {
	x, err := tx.execution(l.execution)
	if err != nil {
		return edge.Voided{}, err
	}
	t, err := tx.target(l.target)
	if err != nil {
		return edge.Voided{}, err
	}
	answer := edge.Voided{Delivery: x.Delivery, Execution: x.ID, Target: t.name(), Owner: l.owner, Code: edge.CodeLeaseLost}
	if ok, err := tx.dropLease(t, l.token, x.Delivery == 0); !ok || err != nil {
		return answer, mustChange(ok, err, "void", l.execution)
	}
	if err := tx.endExecution(x.ID, edge.OutcomeLost, edge.CodeLeaseLost, ""); err != nil {
		return answer, err
	}
	tx.count("outcome_lost", 1)
	if x.Delivery == 0 {
		return answer, nil
	}
	d, err := tx.delivery(x.Delivery)
	if err != nil {
		return answer, err
	}
	answer.Started = d.State == edge.Running
	v := edge.JudgeLoss(answer.Started, edge.Situation{
		Effect: x.Effect, NowMS: tx.now, Cancel: d.CancelMS != 0, Attempts: d.Attempts, Losses: d.Losses, MaxLosses: t.handler.maxLosses(),
	})
	answer.State, answer.Code = v.To, v.Code
	if err := tx.move(d, t, edge.OnLose, v, blockOutcome, edge.OutcomeLost); err != nil {
		return answer, err
	}
	if v.Code == edge.CodeBudgetExhausted {
		tx.count("losses_exhausted", 1)
		tx.halt(d, t)
	}
	if v.To == edge.Blocked {
		return answer, tx.openRecovery(x.ID, d.ID)
	}
	return answer, nil
}

func (h *handler) maxLosses() int {
	if h.reg == nil {
		return 0
	}
	return h.reg.MaxLosses
}

// DeadOwners lists dead owners that hold leases; see [edge.Recoverer]. The
// exclusive lock proves that every other owner is dead; among sharers the lock
// file of each owner tells.
func (s *Store) DeadOwners(ctx context.Context) ([]string, error) {
	owners, err := s.leaseOwners(ctx)
	if err != nil {
		return nil, err
	}
	var dead []string
	for _, name := range owners {
		if name != s.owner && (!s.o.Share || ownerIsDead(s.path, name)) {
			dead = append(dead, name)
		}
	}
	return dead, nil
}

func (s *Store) leaseOwners(ctx context.Context) ([]string, error) {
	var owners []string
	const query = `SELECT DISTINCT o.name FROM leases l CROSS JOIN owners o ON o.id = l.owner ORDER BY o.name`
	return owners, s.read(ctx, func(ctx context.Context, q queryer) error {
		return q.SelectContext(ctx, &owners, query)
	})
}

// joinSharers makes this owner known, and refuses when a live sharer has another
// configuration: limits, routes and handlers must agree among those that work on
// one file.
func (s *Store) joinSharers(ctx context.Context) error {
	return s.w.doEnd(ctx, func(tx *tx) error {
		if err := tx.agree(s.o.Config); err != nil {
			return err
		}
		_, err := tx.ownerID()
		return err
	})
}

// agree refuses a digest of the configuration that a live sharer does not have.
func (tx *tx) agree(config string) error {
	s := tx.w.store
	var others []string
	const query = `SELECT name FROM owners WHERE config <> ? AND name <> ?`
	err := tx.each(query, func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		others = append(others, name)
		return err
	}, config, s.owner)
	if err != nil {
		return err
	}
	for _, name := range others {
		if !ownerIsDead(s.path, name) {
			return fmt.Errorf("%w: %s is shared with an owner (%s) of another configuration; give all sharers the same handlers and routes", edge.ErrConflict, s.path, name)
		}
	}
	return nil
}

// Reconfigure gives this opening another digest of its configuration, in place
// of Options.Config. While a live sharer of the file has another one it is
// refused, with ErrConflict.
func (s *Store) Reconfigure(ctx context.Context, config string) error {
	return s.w.doEnd(ctx, func(tx *tx) error {
		if s.o.Share {
			if err := tx.agree(config); err != nil {
				return err
			}
		}
		id, err := tx.ownerID()
		if err != nil {
			return err
		}
		was := s.o.Config // like all of o that changes, the writer's own
		tx.undo = append(tx.undo, func() { s.o.Config = was })
		s.o.Config = config
		tx.wrote = true
		return tx.exec(`UPDATE owners SET config = ? WHERE id = ?`, config, id)
	})
}

// VoidOwner voids a dead owner's leases; see [edge.Recoverer].
func (s *Store) VoidOwner(ctx context.Context, owner string) ([]edge.Voided, error) {
	if owner == s.owner || s.o.Share && !ownerIsDead(s.path, owner) {
		return nil, fmt.Errorf("%w: owner %s is alive", edge.ErrConflict, owner)
	}
	var voided []edge.Voided
	err := s.w.doEnd(ctx, func(tx *tx) error {
		voided = nil
		leases, err := tx.leases(`WHERE l.owner = (SELECT id FROM owners WHERE name = ?)`, owner)
		if err != nil {
			return err
		}
		voided, err = tx.voidAll(leases)
		return err
	})
	return voided, err
}

func (tx *tx) voidAll(leases []leaseRow) ([]edge.Voided, error) {
	var voided []edge.Voided
	for _, l := range leases {
		v, err := tx.void(l)
		if err != nil {
			return nil, err
		}
		voided = append(voided, v)
	}
	return voided, nil
}

func (tx *tx) leases(where string, args ...any) ([]leaseRow, error) {
	var ls []leaseRow
	query := `SELECT l.target, l.token, l.execution, o.name, l.expires_ms
	          FROM leases l CROSS JOIN owners o ON o.id = l.owner ` + where + ` ORDER BY l.execution`
	err := tx.each(query, func(rows *sql.Rows) error {
		var l leaseRow
		err := rows.Scan(&l.target, &l.token, &l.execution, &l.owner, &l.expires)
		ls = append(ls, l)
		return err
	}, args...)
	return ls, err
}

// foreignLeases remembers when the leases of other live owners last moved, on
// this process's monotonic clock.
type foreignLeases struct {
	mu   sync.Mutex
	seen map[edge.Token]observed
}

type observed struct {
	expires int64
	since   time.Duration
}

// VoidStale voids leases of live foreign owners that have stood still for a full
// lease; see [edge.Recoverer].
func (s *Store) VoidStale(ctx context.Context) ([]edge.Voided, error) {
	if !s.o.Share {
		return nil, nil
	}
	s.foreign.mu.Lock()
	defer s.foreign.mu.Unlock()
	var voided []edge.Voided
	err := s.w.doEnd(ctx, func(tx *tx) error {
		leases, err := tx.leases(`WHERE o.name <> ?`, s.owner)
		if err != nil {
			return err
		}
		lease := tx.w.hands.lease
		if lease == 0 { // nothing is registered yet
			lease = edge.DefaultLease.Milliseconds()
		}
		voided, err = tx.voidAll(s.foreign.stale(leases, tx.w.clock.Mono(), lease))
		return err
	})
	return voided, err
}

// stale returns the leases whose expiry has not moved for a full lease, and
// remembers the others.
func (f *foreignLeases) stale(leases []leaseRow, mono time.Duration, leaseMS int64) []leaseRow {
	seen := map[edge.Token]observed{}
	var stale []leaseRow
	for _, l := range leases {
		o, ok := f.seen[l.token]
		if !ok || o.expires != l.expires {
			o = observed{l.expires, mono}
		}
		seen[l.token] = o
		if mono-o.since >= time.Duration(leaseMS)*time.Millisecond {
			stale = append(stale, l)
		}
	}
	f.seen = seen
	return stale
}
