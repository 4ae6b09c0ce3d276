package edge

import "sync"

// Counters count executions by what became of them. Every claimed execution ends
// in exactly one of Succeeded, Consumed, Failed, Retrying, Deferred, Blocked,
// Cancelled, Interrupted, Lost and Unavailable.
type Counters struct {
	Recovered   int64 // leases of dead or silent owners that were settled
	Claimed     int64 // executions claimed
	Started     int64 // of those, handlers called
	Succeeded   int64 // effect done
	Consumed    int64 // effect was done before, so nothing was started
	Failed      int64 // given up
	Retrying    int64 // charged, tried again later
	Deferred    int64 // not charged, tried again later
	Blocked     int64 // waits for evidence, configuration or a person
	Unknown     int64 // of Blocked, begun work whose outcome is unknown
	Cancelled   int64 // called off
	Interrupted int64 // cut by shutdown or a refused start, tried again later
	Lost        int64 // the lease was gone before the end could be stored
	Unavailable int64 // the store could not take the end
}

// tally is a set of counters for many goroutines.
type tally struct {
	mu sync.Mutex
	c  Counters
}

func (t *tally) add(f func(c *Counters)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f(&t.c)
}

func (t *tally) get() Counters {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.c
}

// count counts something about r in the engine's totals and in its round.
func (e *Engine) count(r *run, f func(c *Counters)) {
	e.totals.add(f)
	if r.round != nil {
		r.round.add(f)
	}
}

// countEnd counts the state that the end of r led to.
func (e *Engine) countEnd(r *run, s Settlement, to Settled) {
	e.count(r, func(c *Counters) {
		switch to.State {
		case Succeeded:
			c.Succeeded++
		case Failed:
			c.Failed++
		case Cancelled:
			c.Cancelled++
		case Blocked:
			c.Blocked++
			if to.Code == CodeOutcomeUnknown || to.Code == CodeLostAfterStart {
				c.Unknown++
			}
		default:
			countPending(c, s.Outcome, r.gaveBack)
		}
	})
}

// countPending counts a delivery that is tried again later.
func countPending(c *Counters, o Outcome, gaveBack bool) {
	switch {
	case o == OutcomeInterrupted, gaveBack:
		c.Interrupted++
	case o == OutcomeDeferred:
		c.Deferred++
	default:
		c.Retrying++
	}
}
