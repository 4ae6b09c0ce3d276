package edge

import (
	"context"
	"errors"
	"time"
)

// The heartbeat is one goroutine that renews the leases of all live executions
// in one call, at a third of the lease's length. It exists only while there is
// something to renew, so an idle engine is never woken by it.
//
// Trust is kept apart from renewing, by one timer per execution on the
// monotonic clock: the lease is trusted until a tenth before its end, counted
// from just before the claim or the renewal. A store that hangs can therefore
// not delay the end of trust, and no step of the wall clock moves it.

const (
	renewShare = 3  // renewals per lease
	trustShare = 10 // the last part of a lease that is not trusted
)

func (e *Engine) trustFor() time.Duration { return e.o.Lease - e.o.Lease/trustShare }

// enter makes r live: renewed and under a trust timer that counts from mono.
func (e *Engine) enter(r *run, mono time.Duration) {
	l := e.live
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs[r.token] = r
	r.trusted = mono + e.trustFor()
	left := r.trusted - e.clock.Mono()
	if left <= 0 { // the claim took too long to be stored: nothing may begin under it
		r.cancel(ErrLeaseLost)
	}
	r.trust = time.AfterFunc(max(left, 0), func() { e.trustEnds(r) })
	e.beatLocked()
}

// orphan says that a lease of this process stands without a run: it is left to
// expire, and the heartbeat goes on until the store has voided it.
func (e *Engine) orphan() {
	l := e.live
	l.mu.Lock()
	defer l.mu.Unlock()
	l.orphans = e.clock.Mono() + e.o.Lease + e.o.Lease/renewShare
	e.beatLocked()
}

// orphansStepped lets a lease without a run stand for a whole lease again, after
// the clock was set back.
func (e *Engine) orphansStepped() {
	l := e.live
	l.mu.Lock()
	defer l.mu.Unlock()
	if mono := e.clock.Mono(); l.orphans > mono {
		l.orphans = mono + e.o.Lease + e.o.Lease/renewShare
	}
}

func (e *Engine) beatLocked() {
	if e.live.beating || e.live.closed {
		return
	}
	e.live.beating = true
	e.goes.Go(e.beat)
}

// trustEnds cancels r when its lease is trusted no longer; after a renewal it
// only sets the timer anew.
func (e *Engine) trustEnds(r *run) {
	l := e.live
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.runs[r.token] != r {
		return
	}
	if left := r.trusted - e.clock.Mono(); left > 0 {
		r.trust.Reset(left)
		return
	}
	if r.phase != settling && r.ctx.Err() == nil {
		e.log.Warn("lease no longer trusted", r.logAttrs()...)
	}
	r.cancel(ErrLeaseLost)
}

// beat renews until nothing is live.
func (e *Engine) beat() {
	t := time.NewTimer(e.o.Lease / renewShare)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-e.quit:
			return
		}
		next, more := e.renew()
		if !more {
			return
		}
		t.Reset(next)
	}
}

// renew makes one renewal and returns when to make the next; more is false, and
// the heartbeat has ended, when nothing is live.
func (e *Engine) renew() (next time.Duration, more bool) {
	period := e.o.Lease / renewShare
	tokens, more := e.tokens()
	if !more {
		return 0, false
	}
	before := e.clock.Mono()
	ctx, cancel := context.WithTimeout(e.bg, period)
	defer cancel()
	renewed, err := e.store.Renew(ctx, tokens)
	if err != nil {
		e.storeFault("renew", err)
		if terminal(err) {
			return period, true
		}
		return min(max(e.o.Lease/30, 20*time.Millisecond), 2*time.Second), true
	}
	e.renewed(tokens, before, renewed)
	for _, v := range renewed.Voided {
		e.log.Warn("own expired lease voided", "target", v.Target, "fence", v.Execution, "code", v.Code)
		e.expireAt(e.clock.NowMS())
	}
	return period, true
}

// tokens lists what to renew. With nothing live it ends the heartbeat.
func (e *Engine) tokens() (ts []Token, more bool) {
	l := e.live
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.runs) == 0 && e.clock.Mono() >= l.orphans {
		l.beating = false
		return nil, false
	}
	ts = make([]Token, 0, len(l.runs))
	for t, r := range l.runs {
		if !r.lost {
			ts = append(ts, t)
		}
	}
	return ts, true
}

// renewed takes in the answer to the renewal of tokens begun at before.
func (e *Engine) renewed(tokens []Token, before time.Duration, a Renewed) {
	l := e.live
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range a.Lost {
		if r := l.runs[t]; r != nil {
			r.lost = true
			if r.phase != settling {
				e.log.Warn("lease lost", r.logAttrs()...)
			}
			r.cancel(ErrLeaseLost)
		}
	}
	for _, t := range tokens {
		if r := l.runs[t]; r != nil && !r.lost {
			r.trusted = before + e.trustFor()
		}
	}
	for _, t := range a.Cancel {
		if r := l.runs[t]; r != nil {
			r.cancel(ErrCancelled)
		}
	}
}

// terminal reports whether repeating a call of the store is useless.
func terminal(err error) bool {
	return errors.Is(err, ErrStorage) || errors.Is(err, ErrClosed)
}
