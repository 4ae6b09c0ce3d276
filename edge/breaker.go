package edge

import (
	"fmt"
	"time"
)

// Breaker says when a handler whose other side fails rests. The zero value: never.
//
// When Failures executions in a row have failed, or most of the last ones have,
// an [Episode] begins: the gate pauses, first for 5 s, then twice as long each
// time, at most 5 minutes; between the pauses one delivery at a time is tried. One
// that succeeds opens the handler again, for one, two, four deliveries at a time
// and so on. A failure is a result of retry or of unknown outcome, if its
// [Blame] does not say otherwise.
type Breaker struct {
	Failures int // in a row; 0 = never
	// GateOffAfter is how long an episode may last before the gate goes off,
	// until an operator opens it; 0 = for ever.
	GateOffAfter time.Duration
}

// Pauses of a breaker, and what it takes for most.
const (
	breakerFirst = 5 * time.Second
	breakerMost  = 5 * time.Minute
	breakerMuch  = 0.75 // share of failures that opens it
	breakerFew   = 0.5  // share below which an episode ends
	maxFailures  = 1000
)

func (b Breaker) validate() error {
	switch {
	case b.Failures < 0 || b.Failures > maxFailures:
		return fmt.Errorf("Breaker.Failures: %d, must be 0 to %d", b.Failures, maxFailures)
	case b.GateOffAfter < 0:
		return fmt.Errorf("Breaker.GateOffAfter: %s, must not be negative", b.GateOffAfter)
	case b.GateOffAfter > 0 && b.Failures == 0:
		return fmt.Errorf("Breaker.GateOffAfter: %s, but Failures is 0: nothing would tell that it fails", b.GateOffAfter)
	}
	return nil
}

// Blame says what a result that is no success tells of the handler's other side.
type Blame string

// Values of Blame.
const (
	// BlameEndpoint: it failed.
	BlameEndpoint Blame = ""
	// BlameConnection: it was not reached, or the connection broke. The cause
	// may be our own uplink.
	BlameConnection Blame = "connection"
	// BlameNone: it works, and asked for patience.
	BlameNone Blame = "none"
)

// endpoint is what the engine remembers of a handler's other side. It outlives
// reloads; its fields belong to endpoints.mu.
type endpoint struct {
	streak int     // failures in a row
	share  float64 // of failures among the last ones
	weight float64 // how much share is to be trusted, towards 1

	open    bool          // resting, or trying one at a time
	until   time.Duration // on Clock.Mono: end of the rest
	rests   int           // since the episode began
	episode Episode
	// revision is that of the handler's configuration when results of it were
	// weighed last.
	revision string
	gone     bool // its gate was put off, and that was told

	ramp int // deliveries at once while it starts slowly; 0 = all that are allowed
}

// verdict is what follows from one result.
type verdict struct {
	rest      time.Duration // the gate pauses
	gateOff   bool          // the gate goes off
	began     bool          // the episode began
	recovered Episode       // that ended
	limit     bool          // how many may run at once has changed
}

// failed notes a failure. nowMS is the wall clock, mono the other.
func (p *endpoint) failed(b Breaker, nowMS int64, mono time.Duration, code string) (v verdict) {
	p.streak++
	switch {
	case p.open && mono < p.until:
		return v // it was under way when the rest began
	case !p.open:
		p.learn(b, 1)
		if p.streak < b.Failures && !(p.share >= breakerMuch && p.weight > breakerMuch) {
			return v
		}
		p.open = true
	}
	v.rest = min(breakerFirst<<min(p.rests, 10), breakerMost)
	p.rests++
	p.until = mono + v.rest
	v.limit = p.ramp != 1
	p.ramp = 1
	if p.episode.BeganMS == 0 {
		v.began = true
		p.episode = Episode{BeganMS: nowMS, SinceMS: nowMS, Failures: p.streak, Code: code}
	}
	if b.GateOffAfter > 0 && nowMS-p.episode.SinceMS >= b.GateOffAfter.Milliseconds() {
		v.gateOff = true
	}
	return v
}

// succeeded notes a success. all is how many deliveries may run at once at most.
func (p *endpoint) succeeded(b Breaker, all int) (v verdict) {
	p.streak, p.open, p.gone = 0, false, false
	p.learn(b, 0)
	v.limit = p.widen(all)
	if p.episode.BeganMS != 0 && p.share < breakerFew {
		v.recovered = p.episode
		p.episode, p.rests, p.share, p.weight = Episode{}, 0, 0, 0
	}
	return v
}

// widen lets twice as many run at once while it starts slowly.
func (p *endpoint) widen(all int) bool {
	if p.ramp == 0 {
		return false
	}
	if p.ramp *= 2; p.ramp >= all {
		p.ramp = 0
	}
	return true
}

// learn moves the share of failures towards what, over some results.
func (p *endpoint) learn(b Breaker, what float64) {
	if b.Failures == 0 {
		return
	}
	step := 1 / float64(2*b.Failures)
	p.share += (what - p.share) * step
	p.weight += (1 - p.weight) * step
}

// reopen forgets what failed: an operator opened the gate, or the configuration
// is another. The episode goes on until something succeeds.
func (p *endpoint) reopen(nowMS int64) {
	p.streak, p.share, p.weight = 0, 0, 0
	p.open, p.until, p.rests, p.gone = false, 0, 0, false
	if p.episode.BeganMS != 0 {
		p.episode.SinceMS, p.ramp = nowMS, 1
	}
}
