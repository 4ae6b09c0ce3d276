package edge

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// ErrGap: a subscriber was too slow, or asked for changes that are no longer
// kept. It must read the state again; the changes after the gap follow.
var ErrGap = errors.New("gap: changes were missed, read again")

// ringSize is how many committed changes are kept for subscribers.
const ringSize = 1024

// ring keeps the latest committed changes. Publishing is a copy under a mutex
// and a signal that never waits, whatever subscribers do.
type ring struct {
	mu      sync.Mutex
	changes []Change
	n       uint64 // how many were published; the i-th is at (i-1) % len
	subs    map[*Subscription]struct{}
	closed  bool
}

func newRing(size int) *ring {
	return &ring{changes: make([]Change, size), subs: map[*Subscription]struct{}{}}
}

// publish is what the store calls after each commit.
func (g *ring) publish(cs []Change) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range cs {
		g.changes[g.n%uint64(len(g.changes))] = c
		g.n++
	}
	for s := range g.subs {
		s.wake()
	}
}

func (g *ring) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for s := range g.subs {
		s.wake()
	}
}

// Subscription is one reader of committed changes. Its methods are for one
// goroutine at a time, except Close.
type Subscription struct {
	g    *ring
	bell chan struct{} // one place: there may be news
	next uint64        // how many changes lie behind it, in the ring's count
	gap  bool
}

// Subscribe returns a subscription to the changes after the one with sequence
// fromSeq; 0 means from now on. Sequences belong to one opening of the store:
// after a restart a reader starts again with 0. A sequence that is no longer, or
// not yet, known begins with [ErrGap]. Close the subscription after use.
func (e *Engine) Subscribe(fromSeq uint64) *Subscription {
	g := e.ring
	g.mu.Lock()
	defer g.mu.Unlock()
	s := &Subscription{g: g, bell: make(chan struct{}, 1), next: g.n}
	if fromSeq != 0 {
		s.seek(fromSeq)
	}
	g.subs[s] = struct{}{}
	return s
}

// ClosedSubscription returns one that says so at once: for what has no changes.
func ClosedSubscription() *Subscription {
	g := newRing(1)
	g.closed = true
	s := &Subscription{g: g, bell: make(chan struct{}, 1)}
	g.subs[s] = struct{}{}
	return s
}

// seek places s behind the change with sequence seq, or marks a gap.
func (s *Subscription) seek(seq uint64) {
	g := s.g
	kept := min(g.n, uint64(len(g.changes)))
	if kept == 0 {
		s.gap = true
		return
	}
	last := g.changes[(g.n-1)%uint64(len(g.changes))].Seq
	if seq > last || last-seq > kept {
		s.gap = true
		return
	}
	s.next = g.n - (last - seq)
}

func (s *Subscription) wake() {
	select {
	case s.bell <- struct{}{}:
	default:
	}
}

// Next returns the next change, and waits for it until ctx is done (its cause is
// returned). [ErrGap]: changes were missed; read the state again and call Next,
// which goes on with what is committed from now on. [ErrClosed]: the engine has
// stopped, or Close was called, and no more will come.
func (s *Subscription) Next(ctx context.Context) (Change, error) {
	for {
		if c, ok, err := s.poll(); ok || err != nil {
			return c, err
		}
		select {
		case <-s.bell:
		case <-ctx.Done():
			return Change{}, context.Cause(ctx)
		}
	}
}

func (s *Subscription) poll() (Change, bool, error) {
	g := s.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if s.gap || g.n-s.next > uint64(len(g.changes)) {
		s.gap, s.next = false, g.n
		return Change{}, false, ErrGap
	}
	_, open := g.subs[s]
	switch {
	case !open:
		return Change{}, false, fmt.Errorf("%w: the subscription was closed", ErrClosed)
	case s.next < g.n:
		c := g.changes[s.next%uint64(len(g.changes))]
		s.next++
		return c, true, nil
	case g.closed:
		return Change{}, false, fmt.Errorf("%w: the engine has stopped", ErrClosed)
	}
	return Change{}, false, nil
}

// Close ends the subscription. It may be called more than once and from any
// goroutine.
func (s *Subscription) Close() {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	delete(s.g.subs, s)
	s.wake()
}
