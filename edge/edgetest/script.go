package edgetest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"fencepost/edge"
)

// Step is one call of a scripted handler.
type Step func(ctx context.Context, c *edge.Claim) edge.Result

// Script is a handler that a test plays. Each call takes the next step of the
// event's own script, else of the common one; the last step of a script
// repeats. Without any step it succeeds. It may be used from many goroutines.
type Script struct {
	mu      sync.Mutex
	common  []Step
	own     map[string][]Step
	calls   []edge.Claim
	read    int // calls that Next has returned
	active  map[edge.Target]int
	most    map[edge.Target]int
	history *History
	called  chan struct{} // closed and made anew by each call
}

var _ edge.Handler = (*Script)(nil)

// NewScript returns a handler that takes the steps one after the other.
func NewScript(steps ...Step) *Script {
	return &Script{
		common: steps, own: map[string][]Step{},
		active: map[edge.Target]int{}, most: map[edge.Target]int{},
		called: make(chan struct{}),
	}
}

// For gives the event with this id a script of its own.
func (s *Script) For(eventID string, steps ...Step) *Script {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own[eventID] = steps
	return s
}

// Tell makes the script report each call to a history.
func (s *Script) Tell(h *History) *Script {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history = h
	return s
}

// Handle plays the next step.
func (s *Script) Handle(ctx context.Context, c *edge.Claim) edge.Result {
	step := s.begin(c)
	defer s.end(c)
	return step(ctx, c)
}

func (s *Script) begin(c *edge.Claim) Step {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, *c)
	s.active[c.Target]++
	s.most[c.Target] = max(s.most[c.Target], s.active[c.Target])
	if s.history != nil {
		s.history.Began(c)
	}
	close(s.called)
	s.called = make(chan struct{})
	if own, ok := s.own[c.Event.ID]; ok {
		var step Step
		step, s.own[c.Event.ID] = next(own)
		return step
	}
	var step Step
	step, s.common = next(s.common)
	return step
}

func next(steps []Step) (Step, []Step) {
	switch len(steps) {
	case 0:
		return Succeed(), nil
	case 1:
		return steps[0], steps
	}
	return steps[0], steps[1:]
}

func (s *Script) end(c *edge.Claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active[c.Target]--
}

// Calls returns all calls so far in the order in which they began.
func (s *Script) Calls() []edge.Claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]edge.Claim(nil), s.calls...)
}

// Most is the largest number of calls that one target had at once.
func (s *Script) Most(t edge.Target) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most[t]
}

// Next waits for the next call that Next has not returned yet.
func (s *Script) Next(ctx context.Context) (edge.Claim, error) {
	for {
		s.mu.Lock()
		if s.read < len(s.calls) {
			c := s.calls[s.read]
			s.read++
			s.mu.Unlock()
			return c, nil
		}
		n, called := len(s.calls), s.called
		s.mu.Unlock()
		if err := wait(ctx, called, fmt.Sprintf("after %d calls of the handler", n)); err != nil {
			return edge.Claim{}, err
		}
	}
}

// Latch is closed until it is released, once and for all.
type Latch struct {
	once sync.Once
	open chan struct{}
}

// NewLatch returns a closed latch.
func NewLatch() *Latch { return &Latch{open: make(chan struct{})} }

// Release opens the latch.
func (l *Latch) Release() { l.once.Do(func() { close(l.open) }) }

// Released is closed when the latch is open.
func (l *Latch) Released() <-chan struct{} { return l.open }

// Answer is a step with a fixed result.
func Answer(r edge.Result) Step {
	return func(context.Context, *edge.Claim) edge.Result { return r }
}

// Succeed is a step that succeeds, with follow-up events if any.
func Succeed(followUps ...edge.Event) Step { return Answer(edge.Done(followUps...)) }

// Retry is a step that asks to be tried again.
func Retry(code string) Step { return Answer(edge.TryAgain(code, "as the script says")) }

// Fail is a step that gives up.
func Fail(code string) Step { return Answer(edge.GiveUp(code, "as the script says")) }

// Postpone is a step that defers by delay.
func Postpone(code string, delay time.Duration) Step { return Answer(edge.Defer(code, delay)) }

// Doubt is a step of unknown outcome.
func Doubt(code string) Step { return Answer(edge.Unknown(code, "as the script says")) }

// Misconfigure is a step that reports a fault of the configuration.
func Misconfigure(code string) Step { return Answer(edge.Misconfigured(code, "as the script says")) }

// Panic is a step that panics with v.
func Panic(v any) Step {
	return func(context.Context, *edge.Claim) edge.Result { panic(v) }
}

// Times repeats a step n times, for use as NewScript(append(Times(2, a), b)...).
func Times(n int, step Step) []Step {
	steps := make([]Step, n)
	for i := range steps {
		steps[i] = step
	}
	return steps
}

// Block is a step that waits for the latch and then does step. When its context
// ends first it answers with an unknown outcome.
func Block(l *Latch, step Step) Step {
	return func(ctx context.Context, c *edge.Claim) edge.Result {
		select {
		case <-l.Released():
			return step(ctx, c)
		case <-ctx.Done():
			return edge.Unknown("script_cancelled", context.Cause(ctx).Error())
		}
	}
}

// Ignore is a step that waits for the latch whatever happens to its context,
// and then does step.
func Ignore(l *Latch, step Step) Step {
	return func(ctx context.Context, c *edge.Claim) edge.Result {
		<-l.Released()
		return step(ctx, c)
	}
}
