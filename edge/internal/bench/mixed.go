package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"fencepost/edge"
	"fencepost/edge/sqlite"
)

// result of one round.
type result struct {
	rate      float64 // deliveries a second
	cpu       float64 // microseconds a delivery
	perCommit float64 // deliveries a commit
}

// round runs n events through a contestant, closed loop: each producer waits for
// its commit.
func round(ctx context.Context, c contestant, n int64, of int, deliver bool) (result, error) {
	start, cpu, commits := time.Now(), cpuTime(), c.commits()
	if err := produce(ctx, c, n, of); err != nil {
		return result{}, err
	}
	if deliver {
		if err := c.wait(ctx, n); err != nil {
			return result{}, err
		}
	}
	took := time.Since(start)
	return result{
		rate:      float64(n) / took.Seconds(),
		cpu:       float64((cpuTime() - cpu).Microseconds()) / float64(n),
		perCommit: float64(n) / float64(max(c.commits()-commits, 1)),
	}, nil
}

func produce(ctx context.Context, c contestant, n int64, of int) error {
	return produceFrom(ctx, c, 0, n, of)
}

// produceFrom accepts the events first+1 to first+n.
func produceFrom(ctx context.Context, c contestant, first, n int64, of int) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, producers)
	for p := range producers {
		wg.Go(func() {
			for i := next.Add(1); i <= n && errs[p] == nil; i = next.Add(1) {
				errs[p] = c.accept(ctx, first+i, of)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// duel alternates the two contestants and returns the medians of their rounds.
func (b *bench) duel(ctx context.Context, d sqlite.Durability, n, naiveN int64, deliver bool) (ours, naive result, err error) {
	var os, ns []result
	for range b.Rounds {
		o, err := openOurs(ctx, b.file(), d, nil)
		if err != nil {
			return ours, naive, err
		}
		r, err := b.watched(d, o, func() (result, error) { return round(ctx, o, n, targets, deliver) })
		if err = errors.Join(err, o.close()); err != nil {
			return ours, naive, fmt.Errorf("ours: %w", err)
		}
		os = append(os, r)
		nv, err := openNaive(ctx, b.file(), d)
		if err != nil {
			return ours, naive, err
		}
		r, err = b.watched(d, nv, func() (result, error) { return round(ctx, nv, naiveN, targets, deliver) })
		if err = errors.Join(err, nv.close()); err != nil {
			return ours, naive, fmt.Errorf("naive: %w", err)
		}
		ns = append(ns, r)
	}
	return medianOf(os), medianOf(ns), nil
}

// watched asserts that the commits of a round at full durability reached the
// disk as flushes.
func (b *bench) watched(d sqlite.Durability, c contestant, run func() (result, error)) (result, error) {
	runtime.GC()
	before, known := flushes(b.dir)
	commits := c.commits()
	r, err := run()
	after, _ := flushes(b.dir)
	if err == nil && known && d == sqlite.DurabilityFull && after-before < (c.commits()-commits)/2 {
		return r, errNoSync
	}
	return r, err
}

func medianOf(rs []result) result {
	pick := func(f func(result) float64) float64 {
		xs := make([]float64, len(rs))
		for i, r := range rs {
			xs[i] = f(r)
		}
		return median(xs)
	}
	return result{
		rate:      pick(func(r result) float64 { return r.rate }),
		cpu:       pick(func(r result) float64 { return r.cpu }),
		perCommit: pick(func(r result) float64 { return r.perCommit }),
	}
}

// naiveShare keeps the slow contestant's rounds from taking the whole time.
const naiveShare = 8

func (b *bench) mixedAll(ctx context.Context) error {
	n := int64(b.N)
	full, naiveFull, err := b.duel(ctx, sqlite.DurabilityFull, n, max(n/naiveShare, 500), true)
	if err != nil {
		return err
	}
	b.r.add("full: deliveries", full.rate, "/s")
	b.r.add("full: naive", naiveFull.rate, "/s")
	b.r.atLeast("full: over naive", full.rate/naiveFull.rate, 8, "x")
	b.r.atMost("full: CPU per delivery (aim: 80)", full.cpu, 140, "us")
	b.r.add("full: CPU per delivery, naive", naiveFull.cpu, "us")
	b.r.add("full: deliveries per commit", full.perCommit, "")
	normal, naiveNormal, err := b.duel(ctx, sqlite.DurabilityNormal, n, max(n/naiveShare, 500), true)
	if err != nil {
		return err
	}
	b.r.add("normal: deliveries", normal.rate, "/s")
	b.r.add("normal: naive", naiveNormal.rate, "/s")
	b.r.atLeast("normal: over naive", normal.rate/naiveNormal.rate, 4, "x")
	b.r.add("normal: CPU per delivery", normal.cpu, "us")
	return nil
}

// accepts measures until the last event is stored; delivering goes on beside it.
func (b *bench) accepts(ctx context.Context) error {
	n := int64(b.N)
	ours, naive, err := b.duel(ctx, sqlite.DurabilityFull, n, max(n/naiveShare, 500), false)
	if err != nil {
		return err
	}
	b.r.add("accepts", ours.rate, "/s")
	b.r.add("accepts, naive", naive.rate, "/s")
	b.r.atLeast("accepts over naive", ours.rate/naive.rate, 5, "x")
	return nil
}

// oneTarget drains a strict line. Beside it stands what the disk can sync.
func (b *bench) oneTarget(ctx context.Context) error {
	warm, n := int64(max(b.N, 2000)), int64(max(b.N/naiveShare, 500))
	o, err := openOurs(ctx, b.file(), sqlite.DurabilityFull, nil)
	if err != nil {
		return err
	}
	if err := b.warmUp(ctx, o, warm); err != nil {
		return errors.Join(err, o.close())
	}
	if _, err := o.store.SetGate(ctx, "noop", edge.GateOff, "bench", 0); err != nil {
		return errors.Join(err, o.close())
	}
	if err := produceFrom(ctx, o, warm, n, 1); err != nil {
		return errors.Join(err, o.close())
	}
	commits, start := o.commits(), time.Now()
	_, err = o.store.SetGate(ctx, "noop", edge.GateOn, "", 0)
	err = errors.Join(err, o.wait(ctx, warm+n))
	took, used := time.Since(start), o.commits()-commits
	if err = errors.Join(err, o.close()); err != nil {
		return err
	}
	b.r.add("one strict target: deliveries", float64(n)/took.Seconds(), "/s")
	b.r.atLeast("one strict target: deliveries per commit", float64(n)/float64(used), 0.5, "")
	b.r.atLeast("one strict target: deliveries per sync the disk can do (aim: 0.5)", float64(n)/took.Seconds()*b.sync.p50.Seconds(), 0.2, "")
	return nil
}

// warmUp brings a database to where a running one is: its log has its size and is
// written over. It delivers that many events.
func (b *bench) warmUp(ctx context.Context, o *ours, n int64) error {
	return errors.Join(produce(ctx, o, n, targets), o.wait(ctx, n))
}

// pickUp measures from the call to the handler on an engine with nothing to do.
func (b *bench) pickUp(ctx context.Context) error {
	const samples = 200
	began, warm := make(chan time.Time, 1), make(chan struct{})
	n := int64(max(b.N, 2000))
	o, err := openOurs(ctx, b.file(), sqlite.DurabilityFull, func(*edge.Claim) { began <- time.Now() })
	if err != nil {
		return err
	}
	go func() {
		for range n {
			<-began
		}
		close(warm)
	}()
	if err := b.warmUp(ctx, o, n); err != nil {
		return errors.Join(err, o.close())
	}
	<-warm
	var took []time.Duration
	for i := n + 1; i <= n+samples; i++ {
		start := time.Now()
		if err := o.accept(ctx, i, targets); err != nil {
			return errors.Join(err, o.close())
		}
		took = append(took, (<-began).Sub(start))
		if err := o.wait(ctx, i); err != nil {
			return errors.Join(err, o.close())
		}
	}
	if err := o.close(); err != nil {
		return err
	}
	q := quantilesOf(slices.Clone(took))
	b.r.atMost("pick-up p50: 5 x the disk's fdatasync p50 (aim: 2 x)", ms(q.p50), 5*ms(b.sync.p50), "ms")
	b.r.atMost("pick-up p99: the disk's p99 + 3 ms", ms(q.p99), ms(b.sync.p99)+3, "ms")
	return nil
}

// size measures what a delivery costs on disk beyond its payload.
func (b *bench) size(ctx context.Context) error {
	path, n := b.file(), int64(b.N)
	o, err := openOurs(ctx, path, sqlite.DurabilityFull, nil)
	if err != nil {
		return err
	}
	_, err = round(ctx, o, n, int(max(n/2, 1)), true) // two deliveries a target
	if err = errors.Join(err, o.close()); err != nil {
		return err
	}
	b.r.atMost("bytes per delivery beyond the payload (aim: 200)", float64(fileBytes(path))/float64(n)-payload, 400, "B")
	return nil
}
