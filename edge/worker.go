package edge

import (
	"context"
	"errors"
	"time"
)

// One claim is a line of small steps:
//
//	inspect -> start -> begin -> execute -> conclude -> settle
//
// Each step that ends the line early gives the delivery back. The handler is
// called in execute and nowhere else, at most once for a claim; what the store
// has to be asked again is only ever the storing.

const (
	storeTimeout = 30 * time.Second       // one call of the store
	holdFirst    = 20 * time.Millisecond  // first pause of a write that is held
	holdMost     = 2 * time.Second        // longest one
	lateAnswer   = 100 * time.Millisecond // how long Stop waits for held writes
)

// newRun makes the run of a claim. mono is a time just before the claim.
func (e *Engine) newRun(c Claimed, mono time.Duration, round *tally) *run {
	r := &run{c: &c, h: e.handlerOf(&c), token: c.Token, target: c.Target, round: round, began: mono, started: c.Started}
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	e.enter(r, mono)
	if e.isStopping() { // the stop may have begun before r was live
		r.cancel(ErrShutdown)
	}
	e.count(r, func(c *Counters) { c.Claimed++ })
	return r
}

// claimedAt is the monotonic time at which a claim was made that Dispatch
// delivered: the end of its lease tells.
func (e *Engine) claimedAt(c *Claimed) time.Duration {
	age := time.Duration(e.clock.NowMS()-c.ExpiresMS)*time.Millisecond + e.o.Lease
	return e.clock.Mono() - min(max(age, 0), e.o.Lease)
}

// work runs r to its end.
func (e *Engine) work(r *run) {
	returned := false
	defer func() {
		if !returned { // the handler ended the goroutine (runtime.Goexit)
			go e.abandoned(r)
		}
	}()
	e.perform(r)
	returned = true
	e.leave(r)
}

func (e *Engine) perform(r *run) {
	if r.h == nil {
		e.giveBack(r, OutcomeDeferred, CodeHandlerMissing, "this process has no such handler")
		return
	}
	if e.offline(r.h) {
		e.giveBack(r, OutcomeDeferred, CodeUplinkDown, "claimed just before the uplink was found down; nothing was attempted")
		return
	}
	if !r.started && (!e.inspect(r) || !e.start(r)) {
		return
	}
	if !e.live.begin(r) {
		e.giveBack(r, OutcomeInterrupted, causeCode(context.Cause(r.ctx)), "ended before its handler was called")
		return
	}
	res, cause := e.execute(r)
	e.live.settles(r)
	s := e.conclude(r, res, cause)
	tell := e.weigh(r, &s, res.Blame, cause)
	e.settle(r, s)
	if tell != nil {
		tell()
	}
}

// abandoned ends a run whose goroutine its handler ended.
func (e *Engine) abandoned(r *run) {
	defer e.leave(r)
	const text = "the handler ended its goroutine instead of returning"
	if !r.started {
		e.giveBack(r, OutcomeRetry, CodeInspectionFailed, text)
		return
	}
	e.live.settles(r)
	e.settle(r, e.conclude(r, Unknown(CodeHandlerPanicked, text), nil))
}

// leave ends r: its context, its trust and its place among the live.
func (e *Engine) leave(r *run) {
	e.live.remove(r)
	r.cancel(nil)
	e.releaseHandler(r.h)
	if r.left != nil {
		r.left()
	}
}

// inspect asks the handler whether it could work. It reports whether to go on.
func (e *Engine) inspect(r *run) bool {
	if r.h.inspector == nil {
		return true
	}
	ins := e.callInspect(r)
	if r.ctx.Err() != nil {
		e.giveBack(r, OutcomeInterrupted, causeCode(context.Cause(r.ctx)), "ended before its handler was called")
		return false
	}
	if ins.Code == "" {
		ins.Code = string(ins.Outcome)
	}
	switch ins.Outcome {
	case "":
		return true
	case OutcomeRetry, OutcomeDeferred, OutcomeBlocked:
		if ValidCode(ins.Code) {
			e.release(r, e.settlement(r, Result{Outcome: ins.Outcome, Code: ins.Code, Detail: ins.Detail, Delay: ins.Delay}))
			return false
		}
	}
	e.release(r, e.settlement(r, TryAgain(CodeInspectionFailed, malformed("inspection", ins.Outcome, ins.Code))))
	return false
}

// callInspect calls the inspector under its deadline. Panics and silence until
// the deadline become a retry.
func (e *Engine) callInspect(r *run) (ins Inspection) {
	limit := min(e.o.InspectTimeout, r.h.spec.Timeout)
	ctx, cancel := context.WithTimeoutCause(r.ctx, limit, ErrTimeout)
	defer cancel()
	defer e.watch(r, ctx)()
	defer func() {
		if p := recover(); p != nil {
			e.log.Error("inspection panicked", append(r.logAttrs(), panicAttrs(p)...)...)
			ins = Inspection{Outcome: OutcomeRetry, Code: CodeInspectionFailed, Detail: panicText(p)}
		}
	}()
	ins = r.h.inspector.Inspect(ctx, &r.c.Claim)
	if ins.Outcome == "" && errors.Is(context.Cause(ctx), ErrTimeout) {
		ins = Inspection{Outcome: OutcomeRetry, Code: CodeInspectionFailed, Detail: "the inspection took longer than " + limit.String()}
	}
	return ins
}

// start crosses the start barrier. It reports whether the handler may be called.
func (e *Engine) start(r *run) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), storeTimeout)
	defer cancel()
	state, err := e.store.Start(ctx, r.c.Fence, r.token)
	switch {
	case err == nil && state == Succeeded:
		e.count(r, func(c *Counters) { c.Consumed++ })
		return false
	case err == nil:
		r.started = true
		return true
	case errors.Is(err, ErrLeaseLost):
		e.log.Warn("lease lost before the start", r.logAttrs()...)
		e.count(r, func(c *Counters) { c.Lost++ })
		return false
	case errors.Is(err, ErrConflict):
		e.giveBack(r, OutcomeInterrupted, CodeStartRefused, "")
		return false
	}
	// Whether the start was committed is not known; that the handler has not
	// been called is.
	e.storeFault("start", err)
	e.giveBack(r, OutcomeInterrupted, CodeStartRefused, "the store did not answer the start")
	return false
}

// execute calls the handler. cause tells why its context was done when it
// returned, nil when it was not.
func (e *Engine) execute(r *run) (res Result, cause error) {
	ctx, cancel := context.WithTimeoutCause(r.ctx, r.h.spec.Timeout, ErrTimeout)
	defer cancel()
	defer e.watch(r, ctx)()
	defer func() {
		if ctx.Err() != nil {
			cause = context.Cause(ctx)
		}
		if p := recover(); p != nil {
			e.log.Error("handler panicked", append(r.logAttrs(), panicAttrs(p)...)...)
			res = Unknown(CodeHandlerPanicked, panicText(p))
		}
	}()
	e.count(r, func(c *Counters) { c.Started++ })
	return r.h.spec.Handler.Handle(ctx, &r.c.Claim), nil
}

// giveBack returns a delivery whose handler was not called.
func (e *Engine) giveBack(r *run, o Outcome, code, detail string) {
	r.gaveBack = o == OutcomeInterrupted
	s := Settlement{Execution: r.c.Fence, Token: r.token, Outcome: o, Code: code, Detail: detail, DelayMS: MinDeferMS}
	if o == OutcomeRetry {
		s = e.settlement(r, TryAgain(code, detail))
	}
	if !r.started {
		e.release(r, s)
		return
	}
	// The start is stored, but nothing began: deferred says so for every effect.
	s.Outcome = OutcomeDeferred
	e.live.settles(r)
	e.settle(r, s)
}

// release ends r before its start.
func (e *Engine) release(r *run, s Settlement) {
	to, err := e.hold(r, "release", func(ctx context.Context) (Settled, error) { return e.store.Release(ctx, s) })
	if errors.Is(err, ErrConflict) && s.Outcome == OutcomeInterrupted && !r.started {
		// A start whose answer did not arrive was committed after all.
		r.started = true
		e.giveBack(r, OutcomeInterrupted, s.Code, s.Detail)
		return
	}
	e.ended(r, s, to, err)
}

// settle stores the end of r.
func (e *Engine) settle(r *run, s Settlement) {
	to, err := e.hold(r, "settle", func(ctx context.Context) (Settled, error) { return e.store.Settle(ctx, s) })
	e.ended(r, s, to, err)
	if err == nil {
		e.expireWith(s.FollowUps)
		e.logUnplaced(s.FollowUps, to.FollowUps)
	}
}

// hold makes a write that ends r until the store has given a definite answer or
// the engine is gone. r stays live and renewed meanwhile, so that its lease
// stands; shutdown, cancelling and the handler's timeout do not cut it.
func (e *Engine) hold(r *run, op string, write func(ctx context.Context) (Settled, error)) (Settled, error) {
	for pause := holdFirst; ; pause = min(2*pause, holdMost) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), storeTimeout)
		to, err := write(ctx)
		cancel()
		if err == nil || definite(err) {
			return to, err
		}
		if pause == holdFirst {
			e.log.Warn("result is held until the store takes it", append(r.logAttrs(), "op", op, "err", err)...)
			e.live.holds(r)
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-e.quit:
			t.Stop()
			return to, err
		}
	}
}

// definite reports whether err is an answer that repeating does not change.
func definite(err error) bool {
	for _, d := range [...]error{ErrLeaseLost, ErrConflict, ErrNotFound, ErrInvalid, ErrClosed, ErrStorage} {
		if errors.Is(err, d) {
			return true
		}
	}
	return false
}

// ended logs and counts the end of r.
func (e *Engine) ended(r *run, s Settlement, to Settled, err error) {
	e.tellEnded(r, s, to, err)
	switch {
	case err == nil:
		e.countEnd(r, s, to)
		e.logEnd(r, s, to)
		if to.State == Pending && r.c.DeadlineMS > 0 {
			e.expireAt(r.c.DeadlineMS)
		}
	case errors.Is(err, ErrLeaseLost):
		e.log.Warn("lease lost: the result was not taken", append(r.logAttrs(), "outcome", s.Outcome, "code", s.Code)...)
		e.count(r, func(c *Counters) { c.Lost++ })
	default:
		e.log.Error("result could not be stored", append(r.logAttrs(), "outcome", s.Outcome, "code", s.Code, "err", err)...)
		e.count(r, func(c *Counters) { c.Unavailable++ })
		e.orphan()
		if terminal(err) {
			e.storeFault("settle", err)
		}
	}
}

func (e *Engine) logEnd(r *run, s Settlement, to Settled) {
	attrs := append(r.logAttrs(), "state", to.State, "code", to.Code,
		"duration_ms", (e.clock.Mono() - r.began).Milliseconds())
	e.logEpisode(r, s, to, attrs)
	switch {
	case to.State == Blocked:
		e.log.Error("delivery blocked: a person must act", attrs...)
	case to.State == Failed:
		e.log.Warn("delivery failed for good", attrs...)
	default:
		e.log.Debug("execution ended", attrs...)
	}
}

// logEpisode says once that a handler has begun to fail, and once that it works
// again; the attempts between are at level debug.
func (e *Engine) logEpisode(r *run, s Settlement, to Settled, attrs []any) {
	if r.h == nil {
		return
	}
	switch {
	case to.State == Succeeded:
		if r.h.failing.Load() && r.h.failing.Swap(false) {
			e.log.Info("handler works again", attrs...)
		}
	case to.State == Pending && (s.Outcome == OutcomeRetry || s.Outcome == OutcomeIndeterminate):
		if !r.h.failing.Swap(true) {
			e.log.Warn("handler has begun to fail; deliveries are tried again", attrs...)
		}
	}
}

// logAttrs name r in the log.
func (r *run) logAttrs() []any {
	if r.c == nil {
		return []any{"target", r.target.String()}
	}
	return []any{
		"delivery", r.c.DeliveryID, "event", r.c.EventID, "target", r.target.String(),
		"handler", r.target.Handler, "attempt", r.c.Attempt, "fence", int64(r.c.Fence), "trace", traceAttr{&r.c.Claim},
	}
}
