package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"fencepost/edge"
	"fencepost/edge/sqlite"
)

// fill accepts n events in batches while nothing is delivered.
func fill(ctx context.Context, o *ours, first, n int64, of int) error {
	const batch = 1000
	for i := int64(0); i < n; i += batch {
		var events []edge.Event
		for k := i; k < min(i+batch, n); k++ {
			events = append(events, event(first+k, of))
		}
		answers, err := o.engine.EnqueueBatch(ctx, events)
		if err != nil {
			return err
		}
		if answers[0].Err != nil {
			return answers[0].Err
		}
	}
	return nil
}

// backlogs measures with a small and a large backlog: blocked behind one target,
// finished, pending; and how soon work begins after a start on it.
func (b *bench) backlogs(ctx context.Context) error {
	small, err := b.behindOne(ctx, 1000)
	if err != nil {
		return err
	}
	large, err := b.behindOne(ctx, int64(b.Large))
	if err != nil {
		return err
	}
	b.r.add("throughput with 1,000 rows behind one target", small.rate, "/s")
	b.r.atLeast(fmt.Sprintf("the same with %d, ratio", b.Large), large.rate/small.rate, 0.7, "x")
	if err := b.finished(ctx, small.rate); err != nil {
		return err
	}
	return b.pending(ctx)
}

// behindOne runs a round while many rows wait behind a delivery that is not done.
func (b *bench) behindOne(ctx context.Context, rows int64) (result, error) {
	path := b.file()
	release := make(chan struct{})
	o, err := openOurs(ctx, path, sqlite.DurabilityFull, func(c *edge.Claim) {
		if c.Target.Key == "0" {
			<-release
		}
	})
	if err != nil {
		return result{}, err
	}
	err = fill(ctx, o, 1_000_000_000, rows, 1)
	var r result
	if err == nil {
		r, err = round(ctx, o, int64(b.N), targets, false)
	}
	close(release)
	return r, errors.Join(err, o.close())
}

// finished runs a round on a file with many final rows.
func (b *bench) finished(ctx context.Context, small float64) error {
	o, err := openOurs(ctx, b.file(), sqlite.DurabilityFull, nil)
	if err != nil {
		return err
	}
	err = fill(ctx, o, 1_000_000_000, int64(b.Large), targets)
	var r result
	if err == nil {
		if err = o.wait(ctx, int64(b.Large)); err == nil {
			r, err = round(ctx, o, int64(b.N), targets, false)
		}
	}
	if err = errors.Join(err, o.close()); err == nil {
		b.r.atLeast(fmt.Sprintf("with %d finished rows, ratio", b.Large), r.rate/small, 0.7, "x")
	}
	return err
}

// pending measures memory and start with many rows waiting.
func (b *bench) pending(ctx context.Context) error {
	path := b.file()
	o, err := openOurs(ctx, path, sqlite.DurabilityFull, nil)
	if err != nil {
		return err
	}
	if _, err := o.store.SetGate(ctx, "noop", edge.GateOff, "bench", 0); err != nil {
		return errors.Join(err, o.close())
	}
	if err := errors.Join(fill(ctx, o, 1, int64(b.Large), targets), o.close()); err != nil {
		return err
	}
	mib, err := b.nodeMemory(ctx, path)
	if err != nil {
		return err
	}
	if mib > 0 {
		limit := 48.0
		if b.Large > 1_000_000 {
			limit = 64
		}
		b.r.atMost(fmt.Sprintf("memory of a node with %d pending", b.Large), mib, limit, "MiB")
	}
	first := make(chan time.Time, 1)
	start := time.Now()
	o, err = openOurs(ctx, path, sqlite.DurabilityFull, func(*edge.Claim) {
		select {
		case first <- time.Now():
		default:
		}
	})
	if err != nil {
		return err
	}
	opened := time.Since(start)
	if _, err = o.store.SetGate(ctx, "noop", edge.GateOn, "", 0); err == nil {
		took := (<-first).Sub(start)
		limit := 1.0
		if b.Large > 1_000_000 {
			limit = 2
		}
		b.r.add("open and recovery", opened.Seconds(), "s")
		b.r.atMost(fmt.Sprintf("start to first delivery with %d pending", b.Large), took.Seconds(), limit, "s")
	}
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	_, stopErr := o.engine.Stop(ctx)
	return errors.Join(err, stopErr, o.store.Close())
}

// idle counts wake-ups and CPU of an engine with nothing to do.
func (b *bench) idle(ctx context.Context) error {
	const span = 60 * time.Second
	o, err := openOurs(ctx, b.file(), sqlite.DurabilityFull, nil)
	if err != nil {
		return err
	}
	err = errors.Join(fill(ctx, o, 1, 1000, targets), o.wait(ctx, 1000))
	if err == nil {
		wakeups, cpu := o.store.Wakeups(), cpuTime()
		select {
		case <-time.After(span):
			b.r.atMost("wake-ups of writer and dispatcher in 60 s", float64(o.store.Wakeups()-wakeups), 0, "")
			b.r.atMost("CPU while idle", float64((cpuTime()-cpu).Microseconds())/1000/span.Seconds(), 1, "ms per s")
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	return errors.Join(err, o.close())
}
