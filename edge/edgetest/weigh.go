package edgetest

import "fencepost/edge"

// verdict is where the end of an execution leads.
type verdict struct {
	to               edge.State
	code             string
	dueMS            int64
	attempts, losses int
	unknown          bool
}

// Rules of time, restated.
const leastDeferMS = 1000

// weigh restates where a settlement or release leads.
func (t *tx) weigh(d *delivery, s edge.Settlement, started bool) verdict {
	x := t.executions[s.Execution]
	v := verdict{code: s.Code, attempts: d.Attempts, losses: d.Losses}
	mayRepeat := !started || x.Effect == edge.Idempotent || x.Effect == edge.Transactional
	outcome := s.Outcome
	if outcome == edge.OutcomeIndeterminate && mayRepeat {
		outcome = edge.OutcomeRetry
	}
	switch outcome {
	case edge.OutcomeSucceeded:
		v.to = edge.Succeeded
	case edge.OutcomeFailed:
		v.to = edge.Failed
		v.attempts++
	case edge.OutcomeBlocked:
		v.to = edge.Blocked
	case edge.OutcomeRetry:
		v.attempts++
		delay := max(s.DelayMS, 1)
		if t.spent(d, s, v.attempts, delay) && d.CancelMS == 0 {
			v.to = edge.Failed
			break
		}
		t.back(d, &v, delay)
	case edge.OutcomeDeferred:
		t.back(d, &v, max(s.DelayMS, leastDeferMS))
	case edge.OutcomeInterrupted:
		switch {
		case !mayRepeat:
			v.to, v.code, v.unknown = edge.Blocked, edge.CodeOutcomeUnknown, true
		case started:
			t.back(d, &v, leastDeferMS)
		default:
			t.back(d, &v, max(s.DelayMS, leastDeferMS))
		}
	case edge.OutcomeIndeterminate:
		v.to, v.code, v.unknown = edge.Blocked, edge.CodeOutcomeUnknown, true
	}
	return v
}

// spent says whether the retry budget allows no further attempt after delay.
func (t *tx) spent(d *delivery, s edge.Settlement, attempts int, delayMS int64) bool {
	if s.MaxAttempts > 0 && attempts >= s.MaxAttempts {
		return true
	}
	if s.GiveUpAfterMS <= 0 || d.FirstStartMS == 0 || t.clock.Doubted() {
		return false
	}
	return t.nowMS+delayMS > d.FirstStartMS+s.GiveUpAfterMS
}

// back leads to pending again, or to cancelled when that was asked for.
func (t *tx) back(d *delivery, v *verdict, delayMS int64) {
	if d.CancelMS != 0 {
		v.to, v.code = edge.Cancelled, edge.CodeCancelled
		return
	}
	v.to, v.dueMS = edge.Pending, t.nowMS+delayMS
}
