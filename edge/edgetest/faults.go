package edgetest

import (
	"sync"
	"time"

	"fencepost/edge"
)

// faults are the faults that a test planned for one opening.
type faults struct {
	mu     sync.Mutex
	before map[string]int
	after  map[string]int
	delay  map[string]time.Duration
}

func newFaults() *faults {
	return &faults{before: map[string]int{}, after: map[string]int{}, delay: map[string]time.Duration{}}
}

// next says what goes wrong with this call of method.
func (f *faults) next(method string) (before, after error, delay time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delay = f.delay[method]
	if f.before[method] > 0 {
		f.before[method]--
		before = edge.ErrUnavailable
	} else if f.after[method] > 0 {
		f.after[method]--
		after = edge.ErrUnavailable
	}
	return before, after, delay
}

// FailNext makes the next n calls of a method of [edge.Store], such as
// "Settle", fail with ErrUnavailable before anything is written. Each round of
// Dispatch counts as a call of "Dispatch".
func (m *Model) FailNext(method string, n int) {
	m.fault.mu.Lock()
	defer m.fault.mu.Unlock()
	m.fault.before[method] = n
}

// FailAfterNext makes the next n calls of a writing method fail with
// ErrUnavailable after their commit: the caller does not learn that it
// happened.
func (m *Model) FailAfterNext(method string, n int) {
	m.fault.mu.Lock()
	defer m.fault.mu.Unlock()
	m.fault.after[method] = n
}

// DelayCommits makes each commit of a writing method take d; 0 ends it. The
// other commits of all openings wait meanwhile.
func (m *Model) DelayCommits(method string, d time.Duration) {
	m.fault.mu.Lock()
	defer m.fault.mu.Unlock()
	m.fault.delay[method] = d
}

// Break makes this opening fail for good: every call returns ErrStorage and
// Failed is closed.
func (m *Model) Break() {
	m.lock <- struct{}{}
	defer func() { <-m.lock }()
	if !m.broken() {
		close(m.failed)
		m.rouse()
	}
}
