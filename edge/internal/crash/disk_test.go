//go:build faults

package crash_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"fencepost/edge"
	"fencepost/edge/api"

	"github.com/stretchr/testify/require"
)

// Sizes of the small disks that the tests fill. The node wants more than the
// low-water mark, and has its reserve of 8 MiB on them.
const (
	diskBytes = 96 << 20
	lowWater  = 16 << 20
)

// smallDisk mounts a file system of its own, of a kind, and unmounts it at the
// end.
func smallDisk(t *testing.T, kind string) (dir string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "fp-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	switch kind {
	case "tmpfs":
		err = syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", diskBytes))
	case "ext4":
		image := filepath.Join(t.TempDir(), "image")
		require.NoError(t, os.WriteFile(image, nil, 0o600))
		require.NoError(t, os.Truncate(image, diskBytes))
		for _, line := range [][]string{{"mkfs.ext4", "-q", "-F", "-m", "0", image}, {"mount", "-o", "loop", image, dir}} {
			if out, e := exec.Command(line[0], line[1:]...).CombinedOutput(); e != nil {
				err = errors.Join(err, fmt.Errorf("%v: %w: %s", line, e, out))
			}
		}
	}
	require.NoError(t, err, "this machine cannot mount %s: run the test as root, with e2fsprogs and loop devices for ext4", kind)
	t.Cleanup(func() {
		await := time.NewTicker(50 * time.Millisecond)
		defer await.Stop()
		for range 100 {
			if err = syscall.Unmount(dir, 0); err == nil {
				return
			}
			<-await.C
		}
		t.Errorf("unmount %s: %v", dir, err)
	})
	require.NoError(t, os.Chmod(dir, 0o700))
	return dir
}

// fill takes all room that is left on the disk of dir.
func fill(t *testing.T, dir string) (took int64) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, "filler"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	require.NoError(t, err)
	defer f.Close()
	for size := 1 << 20; size >= 512; {
		n, err := f.Write(make([]byte, size))
		took += int64(n)
		if err != nil {
			require.ErrorIs(t, err, syscall.ENOSPC)
			size /= 2
		}
	}
	_ = f.Sync()
	return took
}

func unfill(t *testing.T, dir string) {
	t.Helper()
	require.NoError(t, os.Remove(filepath.Join(dir, "filler")))
}

func newDiskLoad(t *testing.T, kind string) (*load, string) {
	t.Helper()
	dir := smallDisk(t, kind)
	rest := fmt.Sprintf("[storage]\nlow_water_bytes = %d\n", lowWater)
	return newLoadOn(t, "steady", func(handlers string) *node { return nodeIn(t, dir, "n", false, rest+handlers) }), dir
}

// refused waits until an event is answered with 507.
func (l *load) refused() {
	l.t.Helper()
	token, k := l.n.token(), 0
	await(l.t, l.n, "an event is answered with 507", func() bool {
		k++
		e := sent{source: "/probe", id: fmt.Sprint(l.n.lives, "-", time.Now().UnixNano(), "-", k), kind: "nobody.wants", body: "{}"}
		status, err := post(l.ctx, l.n.http, l.target(), token, &e)
		require.NoError(l.t, err, "the node lives")
		return status == http.StatusInsufficientStorage
	})
}

func (l *load) storage() api.Storage {
	l.t.Helper()
	return ask(l.n, func(ctx context.Context, c *api.Client) (api.Status, error) { return c.Status(ctx) }).Storage
}

// TestP4_DiskFull fills the disk of a node at work and makes room again: nothing
// that was acknowledged is lost, nothing is done twice, and work goes on within 10
// seconds without a restart.
func TestP4_DiskFull(t *testing.T) {
	for _, kind := range []string{"tmpfs", "ext4"} {
		t.Run(kind, func(t *testing.T) {
			l, dir := newDiskLoad(t, kind)
			rounds := number(t, "FENCEPOST_ROUNDS", 3)
			l.n.start()
			l.produce()
			var slowest time.Duration
			for range rounds {
				l.acksFrom(l.acks.Load(), 50)
				await(t, l.n, "there is a reserve", func() bool { return l.storage().ReserveBytes > 0 })
				took := fill(t, dir)
				require.Positive(t, took)
				l.refused()
				await(t, l.n, "the status says so", func() bool { return l.storage().State == edge.StorageLow })
				await(t, l.n, "the reserve is spent", func() bool { return l.storage().SpentReserve })
				require.False(t, l.n.ready())
				before := l.acks.Load()
				unfill(t, dir)
				began := time.Now()
				l.acksFrom(before, 1)
				await(t, l.n, "the node is ready", l.n.ready)
				slowest = max(slowest, time.Since(began))
			}
			l.finish()
			decided := l.settleAll()
			l.n.clean()
			ev := l.evidence()
			require.Empty(t, ev.judge())
			require.Equal(t, 1, l.n.lives, "no restart")
			full := len(l.n.logged("the disk is full: the reserve is given up, and only ends of what is under way are stored"))
			l.n.stop()
			t.Logf("%s: the disk was filled %d times, %d commits found no room first; %d events acknowledged, 0 lost, %d decided by a person; slowest return to work %s (promise: 10s)",
				kind, rounds, full, len(ev.acked), decided, slowest.Round(time.Millisecond))
			require.Equal(t, rounds, full, "the fault fired in each round")
			require.Less(t, slowest, 10*time.Second)
		})
	}
}

// TestP4_DiskStaysFull has something take all room as soon as there is some, the
// reserve too, and then kills the node: what was acknowledged is there at the next
// start, and nothing is done twice.
func TestP4_DiskStaysFull(t *testing.T) {
	for _, kind := range []string{"tmpfs", "ext4"} {
		t.Run(kind, func(t *testing.T) {
			l, dir := newDiskLoad(t, kind)
			l.n.start()
			l.produce()
			l.acksFrom(l.acks.Load(), 100)
			await(t, l.n, "there is a reserve", func() bool { return l.storage().ReserveBytes > 0 })
			var took int64
			for range 100 {
				took += fill(t, dir)
				within(l.n.p.done, 30*time.Millisecond)
			}
			l.refused()
			require.True(t, l.storage().SpentReserve)
			require.Greater(t, took, int64(diskBytes/2))
			held := ask(l.n, func(ctx context.Context, c *api.Client) (api.Status, error) { return c.Status(ctx) }).Held
			l.n.kill()
			unfill(t, dir)
			l.n.start()
			l.finish()
			decided := l.settleAll()
			l.n.clean()
			ev := l.evidence()
			require.Empty(t, ev.judge())
			l.n.stop()
			t.Logf("%s: %d results were held when the node was killed; %d events acknowledged, 0 lost; %d decided by a person", kind, held, len(ev.acked), decided)
		})
	}
}

// TestP6_TheFileSystemGoes takes the file system from under a node: one that the
// kernel makes read-only after an error, while the node works, and one that is
// unmounted, while it is idle. The process says so and ends, nothing is made
// elsewhere, and what was acknowledged is there when the disk is back.
func TestP6_TheFileSystemGoes(t *testing.T) {
	for name, c := range map[string]struct {
		idle    bool
		harm    func(t *testing.T, dir string)
		back    func(t *testing.T, dir string)
		says    string
		promise time.Duration
	}{
		"read-only at work":  {false, makeReadOnly, remount, "", 2 * time.Second},
		"unmounted and idle": {true, detach, reattach, "", 6 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			l, dir := newDiskLoad(t, "ext4")
			l.n.start()
			l.produce()
			l.acksFrom(l.acks.Load(), 100)
			if c.idle {
				l.finish()
				l.settleAll()
				await(t, l.n, "the log is quiet", l.n.ready)
			}
			syscall.Sync() // the configuration is the test's own, and nobody synced it
			began := time.Now()
			c.harm(t, dir)
			l.n.gone()
			took := time.Since(began)
			require.Equal(t, exitStorage, l.n.p.cmd.ProcessState.ExitCode(), l.n.tail())
			require.Contains(t, l.n.tail(), "storage fault")
			require.Contains(t, l.n.tail(), c.says)
			c.back(t, dir)
			l.n.start()
			l.finish()
			decided := l.settleAll()
			ev := l.evidence()
			require.Empty(t, ev.judge())
			l.n.stop()
			t.Logf("%s: ended %s after it (promise: %s); %d events acknowledged, 0 lost, %d decided by a person", name, took.Round(time.Millisecond), c.promise, len(ev.acked), decided)
			require.Less(t, took, c.promise)
		})
	}
}

// device is what is mounted at dir.
func device(t *testing.T, dir string) string {
	t.Helper()
	out, err := exec.Command("findmnt", "-n", "-o", "SOURCE", dir).Output()
	require.NoError(t, err, "findmnt %s", dir)
	return strings.TrimSpace(string(out))
}

// makeReadOnly has ext4 find an error, after which it is read-only.
func makeReadOnly(t *testing.T, dir string) {
	t.Helper()
	run(t, "mount", "-o", "remount,errors=remount-ro", dir)
	trigger := filepath.Join("/sys/fs/ext4", filepath.Base(device(t, dir)), "trigger_fs_error")
	require.NoError(t, os.WriteFile(trigger, []byte("a test"), 0), "this kernel cannot be told to find an error")
}

func remount(t *testing.T, dir string) {
	t.Helper()
	image, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(device(t, dir)), "loop/backing_file"))
	require.NoError(t, err)
	from := strings.TrimSpace(string(image))
	run(t, "umount", dir)
	if out, err := exec.Command("fsck.ext4", "-y", from).CombinedOutput(); err != nil {
		var code *exec.ExitError
		require.ErrorAs(t, err, &code, "%s", out)
		require.Equal(t, 1, code.ExitCode(), "%s", out) // errors were corrected
	}
	run(t, "mount", "-o", "loop", from, dir)
}

// detach takes the file system away from its place. It stays mounted elsewhere.
func detach(t *testing.T, dir string) {
	t.Helper()
	aside := dir + ".aside"
	require.NoError(t, os.Mkdir(aside, 0o700))
	t.Cleanup(func() { _ = os.Remove(aside) })
	require.NoError(t, syscall.Mount(dir, aside, "", syscall.MS_BIND, ""))
	t.Cleanup(func() { _ = syscall.Unmount(aside, syscall.MNT_DETACH) })
	require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH))
}

func reattach(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left, "nothing was made where the disk had been")
	require.NoError(t, syscall.Mount(dir+".aside", dir, "", syscall.MS_BIND, ""))
	require.NoError(t, syscall.Unmount(dir+".aside", syscall.MNT_DETACH))
}

func run(t *testing.T, line ...string) {
	t.Helper()
	out, err := exec.Command(line[0], line[1:]...).CombinedOutput()
	require.NoError(t, err, "%v: %s", line, out)
}
