package edge

import (
	"context"
	"sync"
	"time"
)

// phase is how far a run has come.
type phase int

const (
	claimed  phase = iota // its handler has not been called
	working               // the handler (or WithTarget's function) is called
	settling              // it has returned; the result is being stored
)

// run is one live execution of this process: from its claim until the store
// has its end. The fields below mu belong to live.mu.
type run struct {
	c      *Claimed // nil for WithTarget
	h      *handler // nil for WithTarget
	token  Token
	target Target
	round  *tally        // counters of its DispatchOnce round; nil in Dispatch
	began  time.Duration // on Clock.Mono

	// Of the worker's goroutine alone:
	started  bool   // the start barrier is crossed
	gaveBack bool   // it ended before its handler was called
	left     func() // called when it is live no longer; may be nil

	ctx    context.Context // done with a cause when the work must end
	cancel context.CancelCauseFunc

	// mu: live.mu
	phase    phase
	trusted  time.Duration // on Clock.Mono: the lease is trusted until then
	trust    *time.Timer   // fires when trust may have ended
	lost     bool          // the store says that the token is gone
	stubborn bool          // did not return after its context was done
	spare    bool          // its slot was replaced
	held     bool          // its settle waits for the store
}

// live is the set of live executions. Every token in it is renewed.
type live struct {
	mu    sync.Mutex
	runs  map[Token]*run
	empty chan struct{} // closed when runs becomes empty; nil when nobody waits

	beating bool          // the heartbeat goroutine exists
	closed  bool          // no new heartbeat: the engine has stopped
	orphans time.Duration // on Clock.Mono: an own lease without a run may stand until then

	stubborn int            // runs that are stubborn
	spares   map[string]int // replaced slots by handler
}

func newLive() *live {
	return &live{runs: map[Token]*run{}, spares: map[string]int{}}
}

// remove takes r out and stops its trust timer.
func (l *live) remove(r *run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.trust != nil {
		r.trust.Stop()
	}
	delete(l.runs, r.token)
	if len(l.runs) == 0 && l.empty != nil {
		close(l.empty)
		l.empty = nil
	}
}

// begin moves r to the phase in which its handler is called. It reports false
// when r's context is done already: then nothing may begin.
func (l *live) begin(r *run) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.ctx.Err() != nil {
		return false
	}
	r.phase = working
	return true
}

// settles marks that r's handler has returned.
func (l *live) settles(r *run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.phase = settling
}

// holds marks that r's end waits for the store.
func (l *live) holds(r *run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.held = true
}

// cancelWhere cancels, with cause, the runs that want selects.
func (l *live) cancelWhere(cause error, want func(r *run) bool) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, r := range l.runs {
		if want(r) {
			r.cancel(cause)
			n++
		}
	}
	return n
}

// count returns how many runs want selects; nil selects all.
func (l *live) count(want func(r *run) bool) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, r := range l.runs {
		if want == nil || want(r) {
			n++
		}
	}
	return n
}

// wait returns when the set is empty, true, or when ctx or the time is over.
func (l *live) wait(ctx context.Context, limit time.Duration) bool {
	l.mu.Lock()
	if len(l.runs) == 0 {
		l.mu.Unlock()
		return true
	}
	if l.empty == nil {
		l.empty = make(chan struct{})
	}
	empty := l.empty
	l.mu.Unlock()
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-empty:
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}
