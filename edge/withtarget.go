package edge

import (
	"context"
	"errors"
	"fmt"
)

// WithTarget runs fn under the lease of a target, so that no delivery of that
// target runs meanwhile, in this process or another. It is for other code that
// advances the same thing as the target's handler, and works while the target
// is stalled. fence is greater than that of every execution before; pass it to
// whatever fn writes to.
//
// The lease is renewed while fn runs. fn's ctx is done with a cause when the
// lease is lost ([ErrLeaseLost]) or the engine stops ([ErrShutdown]); fn must
// then return. The error is fn's, joined with ErrLeaseLost when the lease was
// gone before fn's end could be stored. [ErrBusy]: the target is at work.
func (e *Engine) WithTarget(ctx context.Context, t Target, fn func(ctx context.Context, fence ExecutionID) error) (err error) {
	if !ValidHandlerName(t.Handler) {
		return fmt.Errorf("%w: target %q: %q is not a handler's name", ErrInvalid, t, t.Handler)
	}
	if err := validKey(t.Key); err != nil {
		return err
	}
	if e.isStopping() {
		return fmt.Errorf("%w: the engine stops", ErrClosed)
	}
	before := e.clock.Mono()
	lease, err := e.store.Acquire(ctx, t)
	if err != nil {
		return fmt.Errorf("acquire target %s: %w", t, err)
	}
	r := &run{token: lease.Token, target: t, phase: working, began: before}
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	e.enter(r, before)
	defer e.leave(r)
	if e.isStopping() { // it began to stop before r was live
		r.cancel(ErrShutdown)
	}
	end, code := OutcomeFailed, CodeReleasedWithError
	defer func() { // also when fn panics: the panic goes on
		e.live.settles(r)
		err = errors.Join(err, e.relinquish(r, lease, end, code))
	}()
	if err = fn(r.ctx, lease.Execution); err == nil {
		end, code = OutcomeSucceeded, "ok"
	}
	return err
}

func (e *Engine) relinquish(r *run, l Lease, o Outcome, code string) error {
	_, err := e.hold(r, "relinquish", func(ctx context.Context) (Settled, error) {
		return Settled{}, e.store.Relinquish(ctx, l.Execution, l.Token, o, code)
	})
	if err == nil {
		return nil
	}
	if !errors.Is(err, ErrLeaseLost) {
		e.orphan()
	}
	return fmt.Errorf("give back target %s: %w", l.Target, err)
}

func (e *Engine) isStopping() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state >= stopping
}
