//go:build faults

package crash_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// within a shell that limits itself first, and then is the program.
func limited(what string) []string { return []string{"sh", "-c", what + ` && exec "$@"`, "sh"} }

// rightAndWhole ends a load that was limited, and compares all ledgers.
func (l *load) rightAndWhole() *evidence {
	l.t.Helper()
	l.finish()
	l.settleAll()
	l.n.clean()
	ev := l.evidence()
	require.Empty(l.t, ev.judge())
	require.Empty(l.t, l.n.panicked())
	return ev
}

// TestP23_Descriptors gives the node 64 descriptors and holds more connections
// than that open. It refuses what it cannot serve, loses nothing, and is itself
// again when they are closed.
func TestP23_Descriptors(t *testing.T) {
	t.Parallel()
	l := newLoad(t)
	l.hooks = true
	l.n.under = limited("ulimit -n 64")
	l.n.start()
	l.produce()
	l.acksFrom(0, 50)
	var held []net.Conn
	defer func() {
		for _, c := range held {
			_ = c.Close()
		}
	}()
	most, hits := 0, 0
	for round := range 5 {
		for range 60 {
			if c, err := net.DialTimeout("tcp", *l.n.addr.Load(), 5*time.Second); err == nil {
				held = append(held, c)
			}
		}
		await(t, l.n, "the node has no descriptor left", func() bool {
			n := l.n.descriptors()
			most = max(most, n)
			return n >= 60 || strings.Contains(l.n.tail(), "too many open files")
		})
		hits++
		for _, c := range held {
			_ = c.Close()
		}
		held = nil
		await(t, l.n, fmt.Sprint("it takes events again after round ", round), l.n.ready)
		l.acksFrom(l.acks.Load(), 20)
	}
	ev := l.rightAndWhole()
	l.n.stop()
	t.Logf("descriptors: 64 allowed, %d in use at most; run out %d times by 60 connections, each time working again unaided; %d events acknowledged, 0 lost", most, hits, len(ev.acked))
	require.Equal(t, 5, hits)
}

// descriptors counts the open descriptors of the latest process.
func (n *node) descriptors() int {
	n.t.Helper()
	names, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", n.p.cmd.Process.Pid))
	require.NoError(n.t, err)
	return len(names)
}

// cgroup makes a group of a controller of version 1, or returns "" where that is
// not permitted.
func cgroup(t *testing.T, controller string, set map[string]string) string {
	t.Helper()
	dir := filepath.Join("/sys/fs/cgroup", controller, fmt.Sprint("fencepost-", os.Getpid(), "-", t.Name()))
	if os.Mkdir(dir, 0o755) != nil {
		return ""
	}
	t.Cleanup(func() {
		for range 500 { // its processes are gone a moment after they were waited for
			if os.Remove(dir) == nil {
				return
			}
			wait(10 * time.Millisecond)
		}
	})
	for name, value := range set {
		if os.WriteFile(filepath.Join(dir, name), []byte(value), 0o644) != nil {
			return ""
		}
	}
	return dir
}

// figure reads one number: of a file that has only it, or of a line "key number".
func figure(t *testing.T, path, key string) int {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for line := range bytes.Lines(text) {
		f := strings.Fields(string(line))
		if key == "" || len(f) > 1 && strings.TrimSuffix(f[0], ":") == key {
			n, err := strconv.Atoi(f[min(len(f)-1, 1)*min(len(key), 1)])
			require.NoError(t, err)
			return n
		}
	}
	t.Fatalf("%s has no %s", path, key)
	return 0
}

// TestP23_SlowProcessor gives the node a tenth of a processor: by a quota of the
// kernel, or where that is not permitted by stopping it nine tenths of the time.
func TestP23_SlowProcessor(t *testing.T) {
	t.Parallel()
	l := newLoad(t)
	l.hooks = true
	dir := cgroup(t, "cpu", map[string]string{"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "10000"})
	how, fired := "a quota of the kernel", 0
	stop := func() {}
	if dir != "" {
		l.n.under = limited("echo $$ > " + dir + "/cgroup.procs")
	}
	l.n.start()
	if dir == "" {
		how = "SIGSTOP nine tenths of the time"
		stop = l.n.stutter(&fired)
	}
	l.produce()
	l.acksFrom(0, 200)
	stop()
	l.finish()
	began := time.Now()
	ev := l.rightAndWhole()
	if dir != "" {
		fired = figure(t, filepath.Join(dir, "cpu.stat"), "nr_throttled")
	}
	l.n.stop()
	t.Logf("a tenth of a processor, by %s: held back %d times; %d events acknowledged and delivered, the last %s after the producers ended", how, fired, len(ev.acked), time.Since(began).Round(time.Millisecond))
	require.Positive(t, fired, "the processor was never short")
}

// stutter stops the latest process for 90 of each 100 ms until the returned
// function is called. It may hold the lock of the file meanwhile: it is alone.
func (n *node) stutter(fired *int) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var goes sync.WaitGroup
	goes.Go(func() {
		for ctx.Err() == nil {
			n.signal(syscall.SIGSTOP)
			*fired++
			within(ctx.Done(), 90*time.Millisecond)
			n.signal(syscall.SIGCONT)
			within(ctx.Done(), 10*time.Millisecond)
		}
	})
	return func() { cancel(); goes.Wait() }
}

// TestP23_SlowDisk makes each sync take 50 ms longer.
func TestP23_SlowDisk(t *testing.T) {
	t.Parallel()
	l := newLoad(t)
	x := newTracer(t, l.n)
	x.with("fsync,fdatasync", nil, "fsync,fdatasync:delay_enter=50000")
	l.n.start()
	l.produce()
	began := time.Now()
	l.acksFrom(0, 100)
	rate := float64(l.acks.Load()) / time.Since(began).Seconds()
	ev := l.rightAndWhole()
	l.n.stop()
	calls, _ := x.read(t)
	t.Logf("50 ms more for each sync: %d syncs delayed; %d events acknowledged, %.0f a second by %d producers", len(calls), len(ev.acked), rate, producers)
	require.NotEmpty(t, calls)
	require.LessOrEqual(t, rate, producers/0.05, "an acknowledgement did not wait for its sync")
}

// TestP20_Memory lets the node work in 96 MiB: by a limit of the kernel, or where
// that is not permitted its resident memory is only measured.
func TestP20_Memory(t *testing.T) {
	t.Parallel()
	const limit = 96 << 20
	l := newLoad(t)
	l.hooks = true
	dir := cgroup(t, "memory", map[string]string{"memory.limit_in_bytes": fmt.Sprint(limit)})
	how := "only measured: a group of the kernel is not permitted here"
	if dir != "" {
		how = "by a limit of the kernel"
		l.n.under = limited("echo $$ > " + dir + "/cgroup.procs")
	}
	l.n.start()
	l.produce()
	began := time.Now()
	l.acksFrom(0, int64(number(t, "FENCEPOST_MEMORY_EVENTS", 2000)))
	rate := float64(l.acks.Load()) / time.Since(began).Seconds()
	ev := l.rightAndWhole()
	peak := figure(t, fmt.Sprintf("/proc/%d/status", l.n.p.cmd.Process.Pid), "VmHWM")
	used, failed := 0, 0
	if dir != "" {
		used, failed = figure(t, dir+"/memory.max_usage_in_bytes", "")>>10, figure(t, dir+"/memory.failcnt", "")
	}
	l.n.stop()
	t.Logf("96 MiB, %s: %d events at %.0f a second; resident at most %d KiB (promised %d KiB at 100 a second), the group with its page cache %d KiB, held at the limit %d times",
		how, len(ev.acked), rate, peak, 128<<10, used, failed)
	require.Less(t, peak, 128<<10)
}

// TestP5_ShortWrites lets no file grow beyond a size: the write that reaches it is
// short, the next one fails. The node takes nothing then, and lives; what was
// acknowledged is there afterwards.
func TestP5_ShortWrites(t *testing.T) {
	t.Parallel()
	points := number(t, "FENCEPOST_SHORT", 6)
	rng := seeded(t)
	n := newNode(t, "")
	x := newTracer(t, n)
	db, wal := n.database()
	short, failed, refused := 0, 0, 0
	var acked []sent
	for k := range points {
		kib := 200 + rng.IntN(600) + 100*k
		x.with("pwrite64", []string{db, wal})
		n.under = append(limited(fmt.Sprint("ulimit -f ", 2*kib)), n.under...) // in units of 512 bytes
		n.start()
		status := 0
		for i := 0; i < 2000 && status/100 != 5; i++ {
			e := sent{source: "/short", id: fmt.Sprint(k, "-", i), kind: "hook.x", subject: "t", body: strings.Repeat(" ", rng.IntN(4000)) + "{}"}
			var err error
			status, err = post(t.Context(), n.http, *n.addr.Load(), n.token(), &e)
			require.NoError(t, err)
			if status/100 == 2 {
				acked = append(acked, e)
			}
		}
		if status/100 == 5 {
			refused++
		}
		n.kill()
		require.Empty(t, n.panicked())
		calls, _ := x.read(t)
		for _, c := range calls {
			switch {
			case c.failed:
				failed++
			case c.short():
				short++
			}
		}
		x.with("", nil)
		n.start()
		require.Empty(t, n.lost(acked))
		n.clean()
		n.stop()
	}
	t.Logf("short writes: %d sizes, %d writes cut, %d failed, events refused at %d; %d events acknowledged, 0 lost", points, short, failed, refused, len(acked))
	require.Positive(t, short, "no write was cut")
	require.Positive(t, failed)
	require.NotEmpty(t, acked)
}
