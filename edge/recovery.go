package edge

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// recoveryPeriod is how often other owners are looked at.
	recoveryPeriod = 5 * time.Second
	// killTimeout bounds the wait for a dead owner's processes to be gone.
	killTimeout = 10 * time.Second
)

// Recovery is what one pass of recovery found and did.
type Recovery struct {
	Owners     int // dead owners whose leases were settled
	Left       int // dead owners that could not be settled; tried again
	Killed     int // child processes that dead owners had left
	InFlight   int // executions that had started when their owner died
	NotStarted int // executions that had only been claimed
	Retried    int // deliveries that are pending again
	Waiting    int // deliveries that wait for evidence or a person
	Ended      int // deliveries that became final: called off, or losses spent
}

func (r *Recovery) add(vs []Voided) {
	for _, v := range vs {
		if v.Started {
			r.InFlight++
		} else {
			r.NotStarted++
		}
		switch {
		case v.Delivery == 0:
		case v.State == Pending:
			r.Retried++
		case v.State == Blocked:
			r.Waiting++
		default:
			r.Ended++
		}
	}
}

// recoverOwners settles the executions of dead owners, and of silent ones when
// the store is shared. It never executes. A fault with one owner leaves the
// others to be settled; the error is that the owners could not be read or that
// the store failed for good.
func (e *Engine) recoverOwners(ctx context.Context) (Recovery, error) {
	var found Recovery
	owners, err := e.store.DeadOwners(ctx)
	if err != nil {
		return found, fmt.Errorf("list dead owners: %w", err)
	}
	for _, owner := range owners {
		if err := e.voidOwner(ctx, owner, &found); err != nil {
			found.Left++
			e.log.Error("dead owner's work is left for later", "owner", owner, "err", err)
			if terminal(err) || ctx.Err() != nil {
				return found, err
			}
			continue
		}
		found.Owners++
	}
	if e.o.Shared {
		vs, err := e.store.VoidStale(ctx)
		if err != nil {
			e.storeFault("void stale leases", err)
		}
		found.add(vs)
	}
	n := int64(found.InFlight + found.NotStarted)
	e.totals.add(func(c *Counters) { c.Recovered += n })
	if n > 0 {
		e.expireAt(e.clock.NowMS()) // what is pending again may be too late
	}
	return found, nil
}

// voidOwner ends what a dead owner left running and then takes its leases.
func (e *Engine) voidOwner(ctx context.Context, owner string, found *Recovery) error {
	if e.o.KillOwner != nil {
		kill, cancel := context.WithTimeout(ctx, killTimeout)
		n, err := e.o.KillOwner(kill, owner)
		cancel()
		found.Killed += n
		if err != nil {
			return fmt.Errorf("end its processes: %w", err)
		}
	}
	vs, err := e.store.VoidOwner(ctx, owner)
	if err != nil {
		return fmt.Errorf("take its leases: %w", err)
	}
	found.add(vs)
	for _, v := range vs {
		if v.State == Blocked {
			e.log.Error("begun work was lost: a person must say what happened",
				"delivery", e.publicID(v.Delivery), "target", v.Target.String(), "fence", int64(v.Execution), "code", v.Code)
		}
	}
	return nil
}

// recoverByTimer repeats recovery: for ever when the store is shared, else until
// nothing is left.
func (e *Engine) recoverByTimer(ctx context.Context) {
	for sleep(ctx, recoveryPeriod) {
		found, err := e.recoverOwners(ctx)
		if err != nil {
			e.storeFault("recovery", err)
			if errors.Is(err, ErrStorage) {
				return
			}
			continue
		}
		if found.InFlight+found.NotStarted+found.Owners > 0 {
			e.logRecovery(found)
		}
		e.mu.Lock()
		e.recovery.join(found)
		e.mu.Unlock()
		if !e.o.Shared && found.Left == 0 {
			return
		}
	}
}

// join adds a later pass to r.
func (r *Recovery) join(later Recovery) {
	r.Owners += later.Owners
	r.Left = later.Left
	r.Killed += later.Killed
	r.InFlight += later.InFlight
	r.NotStarted += later.NotStarted
	r.Retried += later.Retried
	r.Waiting += later.Waiting
	r.Ended += later.Ended
}

func (e *Engine) logRecovery(f Recovery) {
	e.log.Info("recovery", "owners", f.Owners, "left", f.Left, "killed", f.Killed, "in_flight", f.InFlight,
		"not_started", f.NotStarted, "retried", f.Retried, "waiting", f.Waiting, "ended", f.Ended)
}
