package edge

import (
	"context"
	"time"
)

// doubt is what the upkeep goroutine remembers of the clock.
type doubt struct {
	sinceMS int64       // reading at which the doubt was noticed; 0 = none
	steps   []clockStep // steps whose stored times are not mended yet
}

type clockStep struct {
	ms      int64
	sinceMS int64 // of a step out of a doubted clock; 0 = it was trusted
}

// maxSteps bounds the steps that wait while the store is unavailable; further
// ones are added to the last.
const maxSteps = 16

// judgeClock doubts a clock that reads earlier than a time known to have passed.
func (e *Engine) judgeClock() {
	if e.clock.NowMS() < e.o.EarliestMS && !e.clock.Doubted() {
		e.clock.Doubt()
		e.log.Warn("the clock reads too early: nothing expires, is given up by time or is pruned until it is right",
			"now_ms", e.clock.NowMS(), "earliest_ms", e.o.EarliestMS)
	}
}

// lookBehind finds a clock that was set back while no process ran: the store
// doubts it, or the newest delivery was accepted in its future. Waiting work is
// then mended as after a step. It is called before the upkeep goroutine begins.
func (e *Engine) lookBehind(ctx context.Context) {
	back := int64(0)
	if e.clock.Doubted() && e.clock.NowMS() >= e.o.EarliestMS {
		back = 1
	}
	ds, err := e.store.Deliveries(ctx, DeliveryFilter{Limit: 1})
	if err != nil {
		e.storeFault("read the newest delivery", err)
	}
	if len(ds) > 0 {
		if d := ds[0].AcceptedMS - e.clock.NowMS(); d > StepThreshold.Milliseconds() {
			back = d
		}
	}
	if back > 0 {
		e.log.Warn("the clock is behind what is stored: it was set back", "back_ms", back)
		e.doubt.push(clockStep{ms: -back})
	}
}

// checkClock looks for a step of the wall clock, mends stored times after one,
// and ends the doubt when the clock is synchronised.
func (e *Engine) checkClock(ctx context.Context) {
	e.judgeClock()
	since := e.doubtSince()
	if step := e.clock.Check(); step != 0 {
		e.log.Warn("the wall clock stepped", "step_ms", step.Milliseconds(), "doubted", e.clock.Doubted())
		e.doubt.push(clockStep{ms: step.Milliseconds(), sinceMS: since})
		e.doubt.sinceMS = 0
		e.judgeClock()
		e.doubtSince()
	}
	e.mendSteps(ctx)
	if e.clock.Doubted() && e.clock.NowMS() >= e.o.EarliestMS && e.o.ClockSynced != nil && e.o.ClockSynced() {
		e.ConfirmClock()
	}
}

// doubtSince is the reading since which the clock is doubted, 0 when it is not.
func (e *Engine) doubtSince() int64 {
	switch {
	case !e.clock.Doubted():
		e.doubt.sinceMS = 0
	case e.doubt.sinceMS == 0:
		e.doubt.sinceMS = max(e.clock.NowMS(), 1)
	}
	return e.doubt.sinceMS
}

// ConfirmClock says that the clock is right: what stood still because it was
// doubted goes on.
func (e *Engine) ConfirmClock() {
	e.clock.Confirm()
	e.log.Info("clock confirmed", "now_ms", e.clock.NowMS())
	e.expireAt(e.clock.NowMS())
}

func (d *doubt) push(s clockStep) {
	if n := len(d.steps); n >= maxSteps {
		d.steps[n-1].ms += s.ms
		return
	}
	d.steps = append(d.steps, s)
}

// mendSteps tells the store of the steps, in bounded batches. What fails is
// tried again at the next look at the clock.
func (e *Engine) mendSteps(ctx context.Context) {
	for len(e.doubt.steps) > 0 {
		s := e.doubt.steps[0]
		for more := true; more; {
			swept, err := e.store.ClockStepped(ctx, s.ms, e.maxDelayMS(), s.sinceMS, upkeepStep)
			if err != nil {
				e.storeFault("mend times after a clock step", err)
				return
			}
			more = swept.More && ctx.Err() == nil
		}
		if s.ms < 0 {
			e.orphansStepped()
		}
		e.doubt.steps = e.doubt.steps[1:]
		e.expireAt(e.clock.NowMS())
	}
}

// maxDelayMS is the longest retry delay of all handlers, jitter included.
func (e *Engine) maxDelayMS() int64 {
	var longest time.Duration
	handlers := e.now().handlers
	if len(handlers) == 0 {
		longest = defaultRetryMax
	}
	for _, h := range handlers {
		longest = max(longest, h.spec.Retry.limit())
	}
	return (longest + longest/jitterShare + time.Millisecond).Milliseconds()
}
