package edge

import (
	"sync"
	"time"
)

// Clock is the store's and the engine's source of "now". It is the wall clock
// at opening plus the monotonic time since, so a step of the wall clock does
// not show until [Clock.Check] finds it. All methods may be called from many
// goroutines.
type Clock struct {
	read func() time.Time

	mu      sync.Mutex
	anchor  time.Time     // wall at the last anchoring, with its monotonic reading
	wallMS  int64         // milliseconds UTC of anchor
	doubted bool          // see Doubted
	manual  bool          // NowMS is set by hand
	nowMS   int64         // for manual
	mono    time.Duration // for manual
}

// Steps of the wall clock.
const (
	// StepThreshold is the least difference between wall clock and monotonic
	// time that counts as a step.
	StepThreshold = 5 * time.Second
	// StepDoubt is the step forward beyond which the clock is doubted.
	StepDoubt = 3 * time.Hour
)

// NewClock returns a clock that reads the time by read; nil means time.Now.
func NewClock(read func() time.Time) *Clock {
	if read == nil {
		read = time.Now
	}
	t := read()
	return &Clock{read: read, anchor: t, wallMS: t.UnixMilli()}
}

// ManualClock returns a clock that stands at ms until it is moved: for tests.
func ManualClock(ms int64) *Clock { return &Clock{manual: true, nowMS: ms} }

// NowMS is the time in milliseconds UTC.
func (c *Clock) NowMS() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.manual {
		return c.nowMS
	}
	return c.wallMS + c.read().Sub(c.anchor).Milliseconds()
}

// Mono is time since the clock was made that no step changes: for deadlines
// inside this process.
func (c *Clock) Mono() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.manual {
		return c.mono
	}
	return c.monoLocked()
}

func (c *Clock) monoLocked() time.Duration { return c.mono + c.read().Sub(c.anchor) }

// Advance moves a manual clock by d, as time passes.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nowMS += d.Milliseconds()
	c.mono += d
}

// Step moves a manual clock's wall reading by d while no time passes.
func (c *Clock) Step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nowMS += d.Milliseconds()
}

// Doubted reports whether the wall clock is not to be trusted: it read earlier
// than a time known to have passed, or it stepped forward by more than
// [StepDoubt]. While it is, nothing expires, is given up by time or is pruned.
func (c *Clock) Doubted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.doubted
}

// Doubt marks the clock as not to be trusted.
func (c *Clock) Doubt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.doubted = true
}

// Confirm marks the clock as trusted again: it was synchronised, or an operator
// says that it is right.
func (c *Clock) Confirm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.doubted = false
}

// Check compares the wall clock with the monotonic one. When they differ by more
// than [StepThreshold] it anchors the clock anew and returns the step; a step
// forward of more than [StepDoubt] makes it doubted. It returns 0 otherwise.
func (c *Clock) Check() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.manual {
		return 0
	}
	t := c.read()
	passed := t.Sub(c.anchor)
	step := time.Duration(t.UnixMilli()-c.wallMS)*time.Millisecond - passed
	if step.Abs() <= StepThreshold {
		return 0
	}
	c.mono += passed
	c.anchor, c.wallMS = t, t.UnixMilli()
	if step > StepDoubt {
		c.doubted = true
	}
	return step
}
