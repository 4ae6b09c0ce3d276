package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"fencepost/edge"
	"fencepost/edge/sqlite"
)

const (
	producers = 64
	workers   = 64
	targets   = 10_000
	payload   = 300
)

// event is the n-th event of a round, owed to one of so many targets.
func event(n int64, of int) edge.Event {
	return edge.Event{
		ID: fmt.Sprint(n), Source: "/bench", Type: "bench.made", Subject: fmt.Sprint(n % int64(of)),
		Data: make([]byte, payload),
	}
}

type router struct{}

func (router) Route(e *edge.Event) []edge.Routed {
	return []edge.Routed{{Route: "bench", Handler: "noop", Key: e.Subject}}
}

func submission(n int64, of int) edge.Submission {
	e := event(n, of)
	return edge.Submission{Event: e, Routes: router{}.Route(&e)}
}

// contestant takes events and delivers them to a handler that does nothing.
type contestant interface {
	accept(ctx context.Context, n int64, of int) error
	wait(ctx context.Context, n int64) error // until n were delivered
	commits() int64
	close() error
}

// ours is the engine as shipped.
type ours struct {
	store  *sqlite.Store
	engine *edge.Engine
	done   counter
}

func openOurs(ctx context.Context, path string, d sqlite.Durability, handle func(*edge.Claim)) (*ours, error) {
	s, err := sqlite.Open(path, sqlite.Options{Durability: d})
	if err != nil {
		return nil, err
	}
	o := &ours{store: s}
	o.done.init()
	handler := edge.HandlerFunc(func(_ context.Context, c *edge.Claim) edge.Result {
		if handle != nil {
			handle(c)
		}
		o.done.add(1)
		return edge.Done()
	})
	o.engine, err = edge.New(s, edge.Options{
		Workers: workers, Router: router{},
		Handlers: []edge.HandlerSpec{{Name: "noop", Handler: handler, Effect: edge.Idempotent, Concurrency: workers}},
	})
	if err == nil {
		err = o.engine.Start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return o, nil
}

// naive is the same store with a commit for each step.
type naive struct {
	store *sqlite.Store
	work  chan struct{}
	stop  context.CancelFunc
	wg    sync.WaitGroup
	done  counter
	fault atomic.Pointer[error]
}

func openNaive(ctx context.Context, path string, d sqlite.Durability) (*naive, error) {
	s, err := sqlite.Open(path, sqlite.Options{Durability: d, MaxBatch: 1})
	if err != nil {
		return nil, err
	}
	reg := edge.Registration{Name: "noop", Effect: edge.Idempotent, Slots: 1, Limit: workers, Inspect: true}
	if err := s.Register(ctx, []edge.Registration{reg}, workers, time.Minute.Milliseconds()); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	n := &naive{store: s, work: make(chan struct{}, workers)}
	n.done.init()
	ctx, n.stop = context.WithCancel(ctx)
	for range workers {
		n.wg.Go(func() { n.worker(ctx) })
	}
	return n, nil
}

func (n *naive) worker(ctx context.Context) {
	for {
		select {
		case <-n.work:
		case <-ctx.Done():
			return
		}
		for {
			more, err := n.one(ctx)
			if err != nil {
				n.fault.CompareAndSwap(nil, &err)
				n.done.fail(err)
				return
			}
			if !more {
				break
			}
		}
	}
}

func (n *naive) one(ctx context.Context) (bool, error) {
	claims, err := n.store.Claim(ctx, 1)
	if err != nil || len(claims) == 0 {
		if ctx.Err() != nil {
			return false, nil
		}
		return false, err
	}
	c := claims[0]
	ctx = context.WithoutCancel(ctx)
	if _, err := n.store.Start(ctx, c.Fence, c.Token); err != nil {
		return false, err
	}
	_, err = n.store.Settle(ctx, edge.Settlement{Execution: c.Fence, Token: c.Token, Outcome: edge.OutcomeSucceeded, Code: "ok"})
	if err == nil {
		n.done.add(1)
		n.poke()
	}
	return true, err
}

func (n *naive) poke() {
	select {
	case n.work <- struct{}{}:
	default:
	}
}

func (n *naive) accept(ctx context.Context, i int64, of int) error {
	answers, err := n.store.Accept(ctx, []edge.Submission{submission(i, of)})
	if err == nil {
		err = answers[0].Err
	}
	n.poke()
	return err
}

func (n *naive) wait(ctx context.Context, k int64) error { return n.done.wait(ctx, k) }
func (n *naive) commits() int64                          { return n.store.Commits() }

func (n *naive) close() error {
	n.stop()
	n.wg.Wait()
	return n.store.Close()
}

func (o *ours) accept(ctx context.Context, n int64, of int) error {
	a, err := o.engine.Enqueue(ctx, event(n, of))
	if err == nil {
		err = a.Err
	}
	return err
}

// wait returns when k handlers have run and their results are stored.
func (o *ours) wait(ctx context.Context, k int64) error {
	if err := o.done.wait(ctx, k); err != nil {
		return err
	}
	return awaitTotals(ctx, o.engine, k)
}

// awaitTotals waits until k results are stored.
func awaitTotals(ctx context.Context, e *edge.Engine, k int64) error {
	for e.Totals().Succeeded < k {
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (o *ours) commits() int64 { return o.store.Commits() }

func (o *ours) close() error {
	_, err := o.engine.Stop(context.Background())
	return errors.Join(err, o.store.Close())
}

// counter counts up and wakes who waits for a number.
type counter struct {
	mu   sync.Mutex
	cond *sync.Cond
	n    int64
	err  error
}

func (c *counter) init() { c.cond = sync.NewCond(&c.mu) }

func (c *counter) add(n int64) {
	c.mu.Lock()
	c.n += n
	c.mu.Unlock()
	c.cond.Broadcast()
}

func (c *counter) fail(err error) {
	c.mu.Lock()
	c.err = err
	c.mu.Unlock()
	c.cond.Broadcast()
}

func (c *counter) wait(ctx context.Context, n int64) error {
	defer context.AfterFunc(ctx, func() { c.fail(context.Cause(ctx)) })()
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.n < n && c.err == nil {
		c.cond.Wait()
	}
	return c.err
}
