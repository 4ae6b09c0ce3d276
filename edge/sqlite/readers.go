package sqlite

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"fencepost/edge"
)

// errReadCut is why a read was ended by the writer.
var errReadCut = fmt.Errorf("%w: the read was ended because it held the log of the database up: ask for less at once, and check a backup rather than a busy database", edge.ErrUnavailable)

// readers knows the reads of this process that may hold a snapshot. A snapshot
// keeps the log from being taken over into the database, so the writer must be
// able to keep new reads waiting for a moment, and to end those that last.
type readers struct {
	left func() // called when the last read has ended

	mu     sync.Mutex
	active map[*reading]struct{}
	gate   chan struct{} // closed when reads may begin again; nil = they may now
	cuts   int64
}

// reading is one read under way.
type reading struct{ cancel context.CancelCauseFunc }

// enter waits until reads may begin. The context that it returns ends when the
// read is cut; leave must be called when the read has ended.
func (r *readers) enter(ctx context.Context) (_ context.Context, leave func(), err error) {
	for {
		r.mu.Lock()
		gate := r.gate
		if gate == nil {
			break
		}
		r.mu.Unlock()
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
	defer r.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	x := &reading{cancel}
	if r.active == nil {
		r.active = map[*reading]struct{}{}
	}
	r.active[x] = struct{}{}
	return ctx, func() { r.leave(x) }, nil
}

func (r *readers) leave(x *reading) {
	x.cancel(nil)
	r.mu.Lock()
	delete(r.active, x)
	last := len(r.active) == 0 && r.gate != nil
	r.mu.Unlock()
	if last {
		r.left()
	}
}

// hold keeps new reads waiting until release.
func (r *readers) hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gate == nil {
		r.gate = make(chan struct{})
	}
}

// release lets reads begin again.
func (r *readers) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gate != nil {
		close(r.gate)
		r.gate = nil
	}
}

// cut ends all reads under way and returns how many.
func (r *readers) cut() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.active)
	for x := range r.active {
		x.cancel(errReadCut)
		delete(r.active, x)
	}
	r.cuts += int64(n)
	return n
}

func (r *readers) counted() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cuts
}

// cutError is err, or that the read was cut when that is why it failed.
func cutError(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errReadCut) {
		return errReadCut
	}
	return err
}
