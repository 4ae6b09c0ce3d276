package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// disk measures what one sync costs, into allocated blocks as in a log that is
// written over, and refuses a file system that does not sync.
func (b *bench) disk(ctx context.Context) error {
	const (
		blocks = 400
		size   = 4096
	)
	f, err := os.CreateTemp(b.dir, "sync-*")
	if err != nil {
		return err
	}
	defer f.Close()
	buf := make([]byte, size)
	for range blocks {
		if _, err := f.Write(buf); err != nil {
			return err
		}
	}
	if err := f.Sync(); err != nil {
		return err
	}
	var took []time.Duration
	before, known := flushes(b.dir)
	for i := range blocks {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		buf[0] = byte(i)
		t := time.Now()
		if _, err := f.WriteAt(buf, int64(i)*size); err != nil {
			return err
		}
		if err := datasync(f); err != nil {
			return err
		}
		took = append(took, time.Since(t))
	}
	b.sync = quantilesOf(took)
	b.r.add("fdatasync, p50", ms(b.sync.p50), "ms")
	b.r.add("fdatasync, p99", ms(b.sync.p99), "ms")
	if after, _ := flushes(b.dir); known && after-before < blocks/2 {
		return fmt.Errorf("%d syncs reached the disk as %d flushes: choose a --dir on a file system that syncs", blocks, after-before)
	}
	return nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// errNoSync says that a measurement meant nothing.
var errNoSync = errors.New("no flush reached the disk while commits were made: the figures would mean nothing")

// fileBytes is the size of a database with its log.
func fileBytes(path string) int64 {
	var n int64
	names, _ := filepath.Glob(path + "*")
	for _, name := range names {
		if fi, err := os.Stat(name); err == nil {
			n += fi.Size()
		}
	}
	return n
}
