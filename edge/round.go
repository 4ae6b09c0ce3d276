package edge

import (
	"context"
	"fmt"
	"sync"
)

// Limits of one round of DispatchOnce.
const (
	DefaultRound = 16
	MaxRound     = 1000
	roundExpire  = 1000 // deliveries that one round expires
)

// DispatchOnce runs one bounded round: it settles what dead owners left,
// expires what is too late, claims up to limit due deliveries (0 means
// [DefaultRound], at most [MaxRound], and never more than Workers), runs them
// to their end and returns the counters of this round. A fault of one delivery
// does not touch the others. When ctx is done the handlers are cancelled as at
// shutdown and its cause is returned with what was counted.
//
// Rounds of one engine never overlap: a second call waits. ErrConflict: the
// engine is started, and dispatches by itself. When recovery or the claim cannot
// be done, the error is returned and nothing was claimed.
func (e *Engine) DispatchOnce(ctx context.Context, limit int) (Counters, error) {
	if limit == 0 {
		limit = DefaultRound
	}
	if limit < 1 || limit > MaxRound {
		return Counters{}, fmt.Errorf("%w: limit: %d, must be 1 to %d", ErrInvalid, limit, MaxRound)
	}
	if err := e.enterGate(ctx); err != nil {
		return Counters{}, err
	}
	defer e.leaveGate()
	if err := e.mayStart(); err != nil {
		return Counters{}, err
	}
	t := &tally{}
	err := e.runRound(ctx, limit, t)
	return t.get(), err
}

func (e *Engine) runRound(ctx context.Context, limit int, t *tally) error {
	e.judgeClock()
	found, err := e.recoverOwners(ctx)
	t.add(func(c *Counters) { c.Recovered += int64(found.InFlight + found.NotStarted) })
	if err != nil {
		return fmt.Errorf("recovery before the round: %w", err)
	}
	if _, err := e.store.Expire(ctx, roundExpire); err != nil {
		e.storeFault("expire", err)
	}
	before := e.clock.Mono()
	claims, err := e.store.Claim(ctx, limit)
	if err != nil {
		return fmt.Errorf("claim: %w", err)
	}
	err = e.runAll(ctx, claims, func(c Claimed) *run { return e.newRun(c, before, t) })
	e.notices.wait(storeTimeout)
	return err
}

// runAll works on all claims at once and waits for their ends; once ctx is done,
// for a bounded time only.
func (e *Engine) runAll(ctx context.Context, claims []Claimed, enter func(c Claimed) *run) error {
	var all sync.WaitGroup
	runs := make(map[*run]bool, len(claims))
	for i := range claims {
		r := enter(claims[i])
		runs[r] = true
		r.left = all.Done
		all.Add(1)
	}
	for r := range runs {
		go e.work(r)
	}
	unhook := context.AfterFunc(ctx, func() {
		e.live.cancelWhere(ErrShutdown, func(r *run) bool { return runs[r] })
	})
	defer unhook()
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
	}
	wait, cancel := context.WithTimeout(context.Background(), e.o.ShutdownWait)
	defer cancel()
	select {
	case <-ended:
	case <-wait.Done():
	}
	return context.Cause(ctx)
}
