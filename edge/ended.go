package edge

import "errors"

// OutcomeUnstored is what Options.Ended is told of an execution whose end the
// store could not take. It is never stored.
const OutcomeUnstored Outcome = "unstored"

// tellEnded tells Options.Ended how r ended. A delivery that was called off
// counts as cancelled, whatever its handler answered.
func (e *Engine) tellEnded(r *run, s Settlement, to Settled, err error) {
	tell := e.o.Ended
	if tell == nil || r.c == nil {
		return
	}
	outcome := s.Outcome
	switch {
	case errors.Is(err, ErrLeaseLost):
		outcome = OutcomeLost
	case err != nil:
		outcome = OutcomeUnstored
	case to.State == Cancelled:
		outcome = OutcomeCancelled
	}
	tell(r.target.Handler, outcome, e.clock.Mono()-r.began)
}
