package api

import (
	"context"
	"sync"
	"time"
)

// DefaultProbeTimeout is how long a health check waits for the store.
const DefaultProbeTimeout = 2 * time.Second

// prober asks the store whether it answers. Callers share the one probe that is
// under way, so that neither a hung store nor many callers pile up work.
type prober struct {
	probe   func(context.Context) error
	timeout time.Duration

	mu      sync.Mutex
	current *probing
}

type probing struct {
	done chan struct{}
	err  error // valid when done is closed
}

// check returns what the probe says, or context.DeadlineExceeded when it does
// not say anything in time.
func (p *prober) check(ctx context.Context) error {
	run := p.join()
	timer := time.NewTimer(p.timeout)
	defer timer.Stop()
	select {
	case <-run.done:
		return run.err
	case <-timer.C:
		return context.DeadlineExceeded
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *prober) join() *probing {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != nil {
		return p.current
	}
	run := &probing{done: make(chan struct{})}
	p.current = run
	go p.run(run)
	return run
}

// run does not end with the caller that began it: others may have joined.
func (p *prober) run(run *probing) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), p.timeout, context.DeadlineExceeded)
	defer cancel()
	err := p.probe(ctx)
	p.mu.Lock()
	p.current = nil
	p.mu.Unlock()
	run.err = err
	close(run.done)
}
