package edge

import (
	"context"
	"fmt"
	"time"
)

// Summary says what a shutdown met.
type Summary struct {
	Ended       int64 // executions that ended by their own result
	Interrupted int64 // executions cut or given back; they run again later
	Unknown     int64 // begun once work whose outcome is unknown: a person must act
	Lost        int64 // executions whose lease was gone
	Unsettled   int64 // results that the store did not take
	Stubborn    int64 // handlers that were left running
	Duration    time.Duration
}

// String is one line for people.
func (s Summary) String() string {
	t := fmt.Sprintf("stopped in %s: %d ended, %d interrupted", s.Duration.Round(time.Millisecond), s.Ended, s.Interrupted)
	for _, p := range [...]struct {
		n    int64
		text string
	}{
		{s.Unknown, "of unknown outcome (a person must act)"},
		{s.Lost, "lost"},
		{s.Unsettled, "not stored"},
		{s.Stubborn, "left running"},
	} {
		if p.n > 0 {
			t += fmt.Sprintf(", %d %s", p.n, p.text)
		}
	}
	return t
}

// Stop ends the engine in stages: no more claims; what was claimed and not begun
// is given back; running handlers may go on for the grace; then their contexts
// are cancelled with [ErrShutdown] and they are waited for, for a bounded time;
// what is left is counted. When ctx is done the grace ends at once. Stop may be
// called more than once, and all calls give the first one's answer; the error is
// the fault that had ended the engine's work, if any.
func (e *Engine) Stop(ctx context.Context) (Summary, error) {
	e.stopOnce.Do(func() {
		e.summary = e.shutdown(ctx)
		e.stopErr = e.failed()
		e.log.Info("engine stopped", "summary", e.summary.String())
		close(e.stopped)
	})
	return e.summary, e.stopErr
}

func (e *Engine) shutdown(ctx context.Context) Summary {
	began := e.clock.Mono()
	before := e.totals.get()
	e.stopClaims(ctx)
	e.live.cancelWhere(ErrShutdown, func(r *run) bool { return r.phase == claimed })
	if n := e.live.count(nil); n > 0 {
		e.log.Info("stopping: running work may end by itself", "running", n, "grace_ms", e.now().o.ShutdownGrace.Milliseconds())
	}
	if !e.live.wait(ctx, e.now().o.ShutdownGrace-(e.clock.Mono()-began)) {
		e.live.cancelWhere(ErrShutdown, func(r *run) bool { return true })
		e.live.wait(context.Background(), e.o.ShutdownWait)
		e.awaitStored()
	}
	e.endGoroutines()
	s := summarise(before, e.totals.get())
	s.Stubborn = int64(e.live.count(func(r *run) bool { return r.phase != settling }))
	s.Unsettled += int64(e.live.count(func(r *run) bool { return r.phase == settling }))
	s.Duration = e.clock.Mono() - began
	return s
}

// awaitStored lets the results of handlers that have returned be stored, though the
// time is up: a slow disk would otherwise turn known results into unknown ones.
// It does not wait for handlers, nor for a store that has refused them.
func (e *Engine) awaitStored() {
	ctx, cancel := context.WithTimeout(e.bg, storeWait)
	defer cancel()
	for e.live.count(func(r *run) bool { return r.phase == settling && !r.held }) > 0 {
		if !sleep(ctx, storePause) {
			return
		}
	}
}

const (
	storeWait  = 5 * time.Second // for results that are being stored at the end
	storePause = 5 * time.Millisecond
	noticeWait = 500 * time.Millisecond // for notices that are being stored
)

// stopClaims ends dispatching. After it, no claim is delivered.
func (e *Engine) stopClaims(ctx context.Context) {
	e.mu.Lock()
	e.state = stopping
	stop := e.stopDispatch
	e.mu.Unlock()
	if stop == nil {
		return
	}
	stop()
	t := time.NewTimer(e.now().o.ShutdownGrace)
	defer t.Stop()
	select {
	case <-e.dispatched:
	case <-t.C:
	case <-ctx.Done():
		<-sooner(e.dispatched, e.o.ShutdownWait)
	}
}

// sooner is closed when c is, or after d.
func sooner(c <-chan struct{}, d time.Duration) <-chan struct{} {
	out := make(chan struct{})
	go func() {
		defer close(out)
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-c:
		case <-t.C:
		}
	}()
	return out
}

// endGoroutines ends held writes, the heartbeat and all other goroutines of the
// engine, and waits for them for a bounded time.
func (e *Engine) endGoroutines() {
	e.notices.wait(noticeWait)
	e.live.mu.Lock()
	e.live.closed = true
	e.live.mu.Unlock()
	close(e.quit)
	e.live.wait(context.Background(), lateAnswer)
	e.stopBG()
	ended := make(chan struct{})
	go func() { e.goes.Wait(); close(ended) }()
	<-sooner(ended, e.o.ShutdownWait)
	e.store.Watch(nil)
	e.ring.close()
	e.mu.Lock()
	e.state = stopped
	e.mu.Unlock()
}

func summarise(before, after Counters) Summary {
	ends := func(c Counters) int64 {
		return c.Succeeded + c.Failed + c.Retrying + c.Deferred + c.Blocked - c.Unknown + c.Cancelled
	}
	return Summary{
		Ended:       ends(after) - ends(before),
		Interrupted: after.Interrupted - before.Interrupted,
		Unknown:     after.Unknown - before.Unknown,
		Lost:        after.Lost - before.Lost,
		Unsettled:   after.Unavailable - before.Unavailable,
	}
}
