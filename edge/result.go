package edge

import (
	"errors"
	"fmt"
	"time"
)

// maxDefer caps how far a handler can put a delivery off, or pause its gate.
const maxDefer = 24 * time.Hour

// conclude turns what a handler returned into the settlement of its execution.
// cause is why its context was done, nil when it was not.
func (e *Engine) conclude(r *run, res Result, cause error) Settlement {
	res = checkResult(res, cause)
	var subs []Submission
	if len(res.FollowUps) > 0 {
		var err error
		if subs, err = e.followUps(r, res.FollowUps); err != nil {
			res = GiveUp(CodeFollowUpRefused, scrub(err.Error(), maxTextBytes))
		}
	}
	s := e.settlement(r, res)
	s.FollowUps = subs
	if errors.Is(cause, ErrShutdown) {
		s.Outcome = cutByShutdown(r.c.Effect, s.Outcome, s.Code)
	}
	return s
}

// checkResult makes a malformed result one of unknown outcome: the handler ran,
// and nothing says what it did.
func checkResult(res Result, cause error) Result {
	if res.Outcome == "" && cause != nil {
		return Unknown(causeCode(cause), "the handler returned no result after its context was done")
	}
	if res.Code == "" {
		res.Code = string(res.Outcome)
	}
	switch res.Outcome {
	case OutcomeSucceeded:
	case OutcomeRetry, OutcomeFailed, OutcomeDeferred, OutcomeIndeterminate, OutcomeBlocked:
		if len(res.FollowUps) > 0 {
			return Unknown(CodeInvalidResult, fmt.Sprintf("the handler returned follow-up events with outcome %s; only succeeded may carry them", res.Outcome))
		}
	default:
		return Unknown(CodeInvalidResult, malformed("result", res.Outcome, res.Code))
	}
	if !ValidCode(res.Code) {
		return Unknown(CodeInvalidResult, malformed("result", res.Outcome, res.Code))
	}
	return res
}

func malformed(what string, o Outcome, code string) string {
	return scrub(fmt.Sprintf("the handler returned a malformed %s: outcome %q, code %q", what, o, code), maxTextBytes)
}

// cutByShutdown is the outcome of work that ended because of shutdown: cut, not
// charged. A once handler's retry or deferred is its word that the effect did
// not begin, and stays as deferred.
func cutByShutdown(effect Effect, o Outcome, code string) Outcome {
	repeatable := effect == Idempotent || effect == Transactional
	switch o {
	case OutcomeRetry, OutcomeDeferred:
		if !repeatable {
			return OutcomeDeferred
		}
		return OutcomeInterrupted
	case OutcomeIndeterminate:
		if code == CodeHandlerPanicked {
			return o
		}
		return OutcomeInterrupted
	}
	return o
}

// settlement is res with the handler's retry budget and delay.
func (e *Engine) settlement(r *run, res Result) Settlement {
	s := Settlement{
		Execution: r.c.Fence, Token: r.token,
		Outcome: res.Outcome, Code: res.Code, Detail: validDetail(res.Detail),
	}
	policy := r.h.spec.Retry
	maxAttempts, giveUp := policy.Budget()
	s.MaxAttempts, s.GiveUpAfterMS = maxAttempts, giveUp.Milliseconds()
	switch res.Outcome {
	case OutcomeRetry, OutcomeIndeterminate:
		s.DelayMS = ceilMS(policy.Delay(r.c.Attempt, max(res.Delay, 0), e.o.Jitter))
	case OutcomeDeferred:
		s.DelayMS = max(ceilMS(min(max(res.Delay, 0), maxDefer)), MinDeferMS)
	}
	if res.Pause > 0 {
		s.PauseMS, s.GateCode = ceilMS(min(res.Pause, maxDefer)), CodePausedByEndpoint
	}
	if res.GateOff {
		s.GateOff, s.GateCode = true, res.Code
	}
	return s
}

// followUps validates and routes the follow-up events of r. They all are good,
// or none is taken.
func (e *Engine) followUps(r *run, evs []Event) ([]Submission, error) {
	if len(evs) > MaxFollowUps {
		return nil, fmt.Errorf("%w: %d follow-up events, the limit is %d", ErrInvalid, len(evs), MaxFollowUps)
	}
	depth := r.c.Event.Depth + 1
	if depth > MaxFollowUpDepth {
		return nil, fmt.Errorf("%w: the chain of follow-up events is longer than %d", ErrInvalid, MaxFollowUpDepth)
	}
	subs := make([]Submission, 0, len(evs))
	size := 0
	for i, ev := range evs {
		ev.N, ev.AcceptedMS, ev.Depth = 0, 0, depth
		if ev.Trace.Parent == "" {
			ev.Trace = r.c.Trace()
		}
		sub, err := e.offered(ev)
		if err != nil {
			return nil, fmt.Errorf("follow-up event %d: %w", i+1, err)
		}
		if size += len(ev.Data); size > MaxBatchBytes {
			return nil, fmt.Errorf("%w: follow-up events: more than %d bytes", ErrInvalid, MaxBatchBytes)
		}
		subs = append(subs, sub)
	}
	return subs, nil
}

// ceilMS is d in milliseconds, rounded up: a delay is never cut short.
func ceilMS(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
