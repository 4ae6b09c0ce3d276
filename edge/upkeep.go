package edge

import (
	"context"
	"sync"
	"time"
)

// Upkeep is one goroutine with three duties: expiry when the next deadline
// comes, pruning soon after the start and then every minute, and a look at the clock every 5 s.

const (
	clockPeriod = 5 * time.Second
	pruneFirst  = 10 * time.Second // a node that does not live for a minute prunes too
	prunePeriod = time.Minute
	pruneStep   = 50 // rows of one step of pruning: each takes several writes
	pruneRest   = 10 * time.Millisecond
	upkeepStep  = 500 // rows of one step
	upkeepSteps = 200 // steps of one duty at a time

	prunesAtOnce = 20 // steps of pruning before other duties have their turn
	expireAgain  = time.Second
	maxAlarm     = 24 * time.Hour
)

// alarm holds the time of the next expiry. It can be set from any goroutine.
type alarm struct {
	mu     sync.Mutex
	nextMS int64         // 0 = none
	rung   chan struct{} // one place: nextMS was moved forward
}

func newAlarm() *alarm { return &alarm{rung: make(chan struct{}, 1)} }

// at makes sure that the alarm goes off at ms at the latest.
func (a *alarm) at(ms int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.nextMS != 0 && a.nextMS <= ms {
		return
	}
	a.nextMS = max(ms, 1)
	select {
	case a.rung <- struct{}{}:
	default:
	}
}

func (a *alarm) take() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	ms := a.nextMS
	a.nextMS = 0
	return ms
}

func (a *alarm) next() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.nextMS
}

func (e *Engine) expireAt(ms int64) { e.expiry.at(ms) }

func (e *Engine) upkeep(ctx context.Context) {
	clock := time.NewTicker(clockPeriod)
	defer clock.Stop()
	prune := time.NewTimer(pruneFirst)
	defer prune.Stop()
	expire := time.NewTimer(maxAlarm)
	defer expire.Stop()
	e.checkClock(ctx)
	e.expireAt(e.clock.NowMS())
	for {
		select {
		case <-ctx.Done():
			return
		case <-clock.C:
			e.checkClock(ctx)
		case <-prune.C:
			next := prunePeriod
			if e.prune(ctx) {
				next = pruneRest
			}
			prune.Reset(next)
		case <-expire.C:
		case <-e.expiry.rung:
		}
		if e.expiryDue() {
			e.expire(ctx)
		}
		expire.Reset(e.untilExpiry())
	}
}

// expiryDue reports whether something is to be expired now. While the clock is
// doubted nothing is.
func (e *Engine) expiryDue() bool {
	next := e.expiry.next()
	return next != 0 && next <= e.clock.NowMS() && !e.clock.Doubted()
}

func (e *Engine) untilExpiry() time.Duration {
	next := e.expiry.next()
	if next == 0 || e.clock.Doubted() {
		return maxAlarm
	}
	left := next - e.clock.NowMS()
	if left > maxAlarm.Milliseconds() {
		return maxAlarm
	}
	return time.Duration(max(left, 1)) * time.Millisecond
}

// expire expires what is due and sets the alarm for the next.
func (e *Engine) expire(ctx context.Context) {
	e.expiry.take()
	for range upkeepSteps {
		s, err := e.store.Expire(ctx, upkeepStep)
		if err != nil {
			e.storeFault("expire", err)
			e.expireAt(e.clock.NowMS() + expireAgain.Milliseconds())
			return
		}
		if s.More {
			continue
		}
		if s.Next != 0 {
			e.expireAt(max(s.Next, e.clock.NowMS()+1))
		}
		return
	}
	e.expireAt(e.clock.NowMS() + expireAgain.Milliseconds())
}

// prune removes what is no longer kept, in bounded steps between which other
// writers have their turn. It reports whether more is to be removed.
func (e *Engine) prune(ctx context.Context) (more bool) {
	p := e.retention().policy(e.clock.NowMS())
	for range prunesAtOnce {
		s, err := e.store.Prune(ctx, p)
		if err != nil {
			e.storeFault("prune", err)
			return false
		}
		if !s.More {
			return false
		}
	}
	return true
}
