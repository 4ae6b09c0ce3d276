//go:build faults

package crash_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// mistake is a way in which a system call on the database's files may fail.
type mistake struct {
	call, error string
}

var mistakes = []mistake{
	{"pwrite64", "EIO"}, {"pwrite64", "ENOSPC"}, {"pwrite64", "EDQUOT"}, {"pwrite64", "EROFS"},
	{"pread64", "EIO"}, {"ftruncate", "EIO"}, {"ftruncate", "ENOSPC"},
	{"fcntl", "ENOLCK"}, {"fcntl", "EIO"}, {"open", "EIO"}, {"open", "EMFILE"}, {"open", "EACCES"},
	{"mmap", "ENOMEM"}, {"newfstatat", "EIO"}, {"fstat", "EIO"}, {"unlinkat", "EIO"},
}

// TestP5_ErrorSweep makes one system call on a file of the database fail, each
// time another one: while the node starts, while it works and while it stops. It
// may go on, refuse, or end as its storage failed; it does not panic, and every
// event that it acknowledged is there afterwards.
func TestP5_ErrorSweep(t *testing.T) {
	t.Parallel()
	points := number(t, "FENCEPOST_ERRORS", 34)
	rng := seeded(t)
	r := newReceiver(t, always(http.StatusNoContent))
	n := newNode(t, r.webhook(hook, "retry_schedule_s = [1]", "max_losses = 1000")+route(hook, "hook.*"))
	n.start()
	n.stop()
	x := newTracer(t, n)
	db, wal := n.database()
	files := []string{db, wal, db + "-shm"}
	most := map[string]int{} // calls of each kind in a run without faults
	x.with("pwrite64,pread64,ftruncate,fcntl,open,mmap,newfstatat,fstat,unlinkat", files)
	clean, _ := n.lifeOfPosts("none")
	require.NotEmpty(t, clean)
	calls, _ := x.read(t)
	for _, c := range calls {
		most[c.name]++
	}
	acked := clean
	hits, missed, ends := map[mistake]int{}, 0, map[int]int{}
	for i := range points {
		m := mistakes[i%len(mistakes)]
		if most[m.call] == 0 {
			continue // said below
		}
		// Threads count apart: early calls are the likelier to come to pass.
		at := 1 + int(float64(most[m.call])*math.Pow(rng.Float64(), 4))
		x.with(m.call, files, fmt.Sprintf("%s:error=%s:when=%d", m.call, m.error, at))
		began := time.Now()
		part, code := n.lifeOfPosts(fmt.Sprint("e", i))
		calls, _ := x.read(t)
		t.Logf("%v at %d: exit code %d after %s, %d acknowledged, %d came to pass", m, at, code, time.Since(began).Round(time.Millisecond), len(part), len(fired(calls)))
		require.Empty(t, n.panicked(), "%v", m)
		require.Contains(t, []int{0, exitStorage, 2}, code, "%v\n%s", m, n.tail())
		ends[code]++
		if len(fired(calls)) == 0 {
			missed++ // the calls of a thread were fewer this time
		} else {
			hits[m]++
		}
		acked = append(acked, part...)
		x.with("", nil)
		n.start()
		require.Empty(t, n.lost(part), "%v", m)
		if i%8 == 7 {
			n.clean()
		}
		n.stop()
	}
	n.start()
	require.Empty(t, n.lost(acked))
	n.drain()
	n.clean()
	n.stop()
	fires := 0
	for _, k := range hits {
		fires += k
	}
	t.Logf("error sweep: %d points, %d faults made %v, %d did not come to pass, calls of a run without faults %v, exit codes %v, %d events acknowledged, 0 lost",
		points, fires, hits, missed, most, ends, len(acked))
	require.GreaterOrEqual(t, fires, points/4, "too few faults came to pass")
	for _, must := range []string{"pwrite64", "pread64", "open", "fcntl"} {
		k := 0
		for m, h := range hits {
			if m.call == must {
				k += h
			}
		}
		require.Positive(t, k, "no %s was made to fail", must)
	}
}

// lifeOfPosts starts a process, posts to it from two producers whatever happens,
// asks it to stop and waits until it is gone. It returns what was acknowledged
// and the exit code.
func (n *node) lifeOfPosts(name string) (acked []sent, code int) {
	n.t.Helper()
	acked, alive := n.startAndPost(name)
	if alive {
		n.signal(syscall.SIGTERM)
		n.gone()
	}
	return acked, n.p.cmd.ProcessState.ExitCode()
}

// startAndPost starts a process and posts to it from two producers, each until
// something is not acknowledged. alive is false when the process ended first.
func (n *node) startAndPost(name string) (acked []sent, alive bool) {
	n.t.Helper()
	p := n.spawn()
	guard := time.NewTimer(hangGuard)
	defer guard.Stop()
	select {
	case <-p.done:
		return nil, false
	case addr := <-p.addr:
		n.addr.Store(&addr)
	case <-guard.C:
		n.t.Fatalf("%s neither starts nor ends\n%s", p.life, n.tail())
	}
	token := n.token()
	ctx, cancel := context.WithTimeout(context.Background(), hangGuard)
	defer cancel()
	var mu sync.Mutex
	var goes sync.WaitGroup
	for producer := range 2 {
		goes.Go(func() {
			for k := range 12 {
				e := sent{source: "/life", id: fmt.Sprint(name, "-", producer, "-", k), kind: "hook.x", subject: fmt.Sprint("t", k%5), body: "{}"}
				if status, err := post(ctx, n.http, *n.addr.Load(), token, &e); err != nil || status/100 != 2 {
					return // what comes after a fault is not what is looked for, and may take long
				}
				mu.Lock()
				acked = append(acked, e)
				mu.Unlock()
			}
		})
	}
	goes.Wait()
	return acked, true
}
