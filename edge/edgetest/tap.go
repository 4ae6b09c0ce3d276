package edgetest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"fencepost/edge"
)

// Tap is a store between an engine and its store that keeps all committed
// changes, so that a test can wait for one and judge them all at the end with
// [Tap.History]. Give it to the engine in the store's place.
type Tap struct {
	edge.Store

	mu      sync.Mutex
	fn      func([]edge.Change)
	seen    []edge.Change
	changed chan struct{} // closed and made anew by each commit
}

// NewTap returns a tap on s. It takes the one place that s has for a watcher.
func NewTap(s edge.Store) *Tap {
	t := &Tap{Store: s, changed: make(chan struct{})}
	s.Watch(t.record)
	return t
}

// Watch registers fn behind the tap.
func (t *Tap) Watch(fn func([]edge.Change)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fn = fn
}

func (t *Tap) record(cs []edge.Change) {
	t.mu.Lock()
	t.seen = append(t.seen, cs...)
	close(t.changed)
	t.changed = make(chan struct{})
	fn := t.fn
	t.mu.Unlock()
	if fn != nil {
		fn(cs)
	}
}

// Changes returns all changes so far, in commit order.
func (t *Tap) Changes() []edge.Change {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.seen)
}

// AwaitState waits until the delivery has been in one of the states since the
// tap was made, or is in one now, and returns the delivery as it is then.
func (t *Tap) AwaitState(ctx context.Context, id edge.DeliveryID, states ...edge.State) (edge.Delivery, error) {
	was := func(seen []edge.Change) bool {
		return slices.ContainsFunc(seen, func(c edge.Change) bool {
			return c.Delivery == id && slices.Contains(states, c.State)
		})
	}
	for {
		seen, changed := t.look()
		d, err := t.Delivery(ctx, id)
		if err != nil || slices.Contains(states, d.State) || was(seen) {
			return d, err
		}
		if err := wait(ctx, changed, fmt.Sprintf("delivery %d is %s (%s), waiting for %v", id, d.State, d.Code, states)); err != nil {
			return d, err
		}
	}
}

// AwaitCount waits until n deliveries have been in a state since the tap was
// made.
func (t *Tap) AwaitCount(ctx context.Context, state edge.State, n int) error {
	for {
		seen, changed := t.look()
		ids := map[edge.DeliveryID]bool{}
		for _, c := range seen {
			if c.State == state {
				ids[c.Delivery] = true
			}
		}
		if len(ids) >= n {
			return nil
		}
		if err := wait(ctx, changed, fmt.Sprintf("%d of %d deliveries have been %s", len(ids), n, state)); err != nil {
			return err
		}
	}
}

// Await waits until ok says so of the changes so far.
func (t *Tap) Await(ctx context.Context, ok func([]edge.Change) bool) error {
	for {
		seen, changed := t.look()
		if ok(seen) {
			return nil
		}
		if err := wait(ctx, changed, fmt.Sprintf("after %d changes", len(seen))); err != nil {
			return err
		}
	}
}

func (t *Tap) look() ([]edge.Change, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.seen[:len(t.seen):len(t.seen)], t.changed
}

func wait(ctx context.Context, changed <-chan struct{}, what string) error {
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
	}
}

// History is a judge of all that the tap has seen.
func (t *Tap) History() *History {
	h := NewHistory()
	h.Record(t.Changes())
	return h
}

// WaitState waits, without sleeping, until a delivery is in one of the states.
// It takes the store's place for a watcher meanwhile: with an engine on the
// store use a [Tap].
func WaitState(ctx context.Context, s edge.Store, id edge.DeliveryID, states ...edge.State) (edge.Delivery, error) {
	tap := NewTap(s)
	defer s.Watch(nil)
	return tap.AwaitState(ctx, id, states...)
}
