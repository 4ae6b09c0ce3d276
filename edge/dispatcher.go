package edge

import (
	"context"
	"time"
)

// Pauses of a dispatcher whose store is unavailable.
const (
	dispatchFirst = 100 * time.Millisecond
	dispatchMost  = 5 * time.Second
)

// dispatch keeps the store claiming until ctx is done. The store wakes up by
// commit and by due time; an idle dispatcher does nothing.
func (e *Engine) dispatch(ctx context.Context) {
	defer close(e.dispatched)
	pause := dispatchFirst
	for {
		began := e.clock.Mono()
		err := e.store.Dispatch(ctx, e.deliver)
		if ctx.Err() != nil || err == nil {
			return
		}
		e.storeFault("dispatch", err)
		if terminal(err) {
			return
		}
		if e.clock.Mono()-began > dispatchMost {
			pause = dispatchFirst
		}
		if !sleep(ctx, pause) {
			return
		}
		pause = min(2*pause, dispatchMost)
	}
}

// deliver starts one goroutine for each claim. The store bounds how many there
// are by the limits of Register.
func (e *Engine) deliver(claims []Claimed) {
	for i := range claims {
		r := e.newRun(claims[i], e.claimedAt(&claims[i]), nil)
		go e.work(r)
	}
}

// sleep reports false when ctx was done before d was over.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
