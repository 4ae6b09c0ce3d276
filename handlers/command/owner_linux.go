package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// scanPause is the time between two looks at the processes.
	scanPause = 2 * time.Millisecond
	// One look that finds nothing is enough when it was a clear one; when
	// not, one looks again, at most so often: on a busy host processes end
	// in the middle of every look.
	maxUnclearLooks  = 60
	maxChangingLooks = 100
)

// maxEnvironBytes bounds the reading of one process's environment; the kernel's
// own limit for arguments and environment together is 6 MiB at most.
const maxEnvironBytes = 8 << 20

// KillOwner kills every process of this user whose environment names owner, and
// waits until none is left, also none that was forked meanwhile. It returns how
// many it killed. This process is never killed. The engine calls it before it
// voids the leases of a dead owner: from then on no program of that owner works
// any more. It needs /proc; where it is not mounted, that is an error. An error
// means that something may be left.
//
// A program that cleared its own environment, or changed the user it runs as,
// is not found.
//
// On systems other than Linux it does nothing and returns 0.
func KillOwner(ctx context.Context, owner string) (killed int, err error) {
	if owner == "" || strings.ContainsRune(owner, 0) {
		return 0, errors.New("kill the programs of an owner: the owner is empty or has a NUL byte")
	}
	killed, err = killMarked(ctx, []string{ownerVariable + "=" + owner}, 0)
	if err != nil {
		return killed, fmt.Errorf("kill the programs of owner %s: %w", owner, err)
	}
	return killed, nil
}

// killMarked kills every process whose environment has all of marks and that
// was started at since or later, and looks again until a look finds none.
func killMarked(ctx context.Context, marks []string, since uint64) (killed int, err error) {
	h := hunt{marks: marks, since: since, killed: map[string]bool{}, ended: map[string]bool{}}
	for looks := 1; ; looks++ {
		l, err := h.look()
		switch {
		case err != nil:
			return len(h.killed), err
		case l.found > 0:
			looks = 0
		case l.changing == 0 && (l.ended == 0 || looks >= maxUnclearLooks), looks >= maxChangingLooks:
			return len(h.killed), nil
		}
		select {
		case <-ctx.Done():
			return len(h.killed), fmt.Errorf("%d still there: %w", l.found, context.Cause(ctx))
		case <-time.After(scanPause):
		}
	}
}

// hunt remembers processes by number and start time.
type hunt struct {
	marks  []string
	since  uint64 // start time, in the kernel's ticks since boot
	killed map[string]bool
	ended  map[string]bool // seen as ended and not reaped
}

// look is what one look at all processes found. It is a clear one when only
// found can be more than 0: a process that ends during the look may have started
// another one first, which is not on the list.
type look struct {
	found    int // marked and not gone
	changing int // between two programs: the environment is not there yet
	ended    int // since the list was made, for all one knows
}

func (h *hunt) look() (look, error) {
	var l look
	pids, err := listProcesses()
	if err != nil {
		return l, err
	}
	self := strconv.Itoa(os.Getpid())
	for _, pid := range pids {
		if pid == self {
			continue
		}
		switch h.inspect(pid) {
		case marked:
			l.found++
		case changing:
			l.changing++
		case ended:
			l.ended++
		}
	}
	return l, nil
}

type finding int

const (
	unmarked finding = iota
	marked
	changing
	ended
)

// inspect judges one process and kills it if it is marked. The handle is opened
// before the environment is read: if the number changes hands in between, the
// signal goes to the process that is gone, and so to none.
func (h *hunt) inspect(pid string) finding {
	n, err := strconv.Atoi(pid)
	if err != nil {
		return unmarked
	}
	if old, ok := readStat(pid); ok {
		if old.started < h.since {
			return unmarked
		}
		if f, told := programs.judge(n, old); told {
			return h.ofOrphan(f, pid, old)
		}
	}
	handle, err := unix.PidfdOpen(n, 0)
	if errors.Is(err, unix.ESRCH) {
		return ended
	}
	hasHandle := err == nil
	if hasHandle {
		defer func() { _ = unix.Close(handle) }()
	}
	env, err := readEnviron(pid)
	if errors.Is(err, fs.ErrPermission) {
		return unmarked // another user's, which we could not kill either
	}
	stat, ok := readStat(pid)
	if !ok {
		return ended
	}
	id := pid + "." + strconv.FormatUint(stat.started, 10)
	switch {
	case stat.gone() && h.ended[id]:
		return unmarked
	case stat.gone():
		h.ended[id] = true
		return ended
	case len(env) == 0:
		return stat.emptyEnvironment()
	case !hasAll(env, h.marks):
		return unmarked
	}
	if hasHandle {
		_ = unix.PidfdSendSignal(handle, unix.SIGKILL, nil, 0)
	} else { // a kernel older than 5.3
		_ = unix.Kill(n, unix.SIGKILL)
	}
	h.killed[id] = true
	return marked
}

// ofOrphan counts what became of an orphan. One that was reaped just now is looked
// for once more, as its children are orphans from now on.
func (h *hunt) ofOrphan(f finding, pid string, s stat) finding {
	if f == marked {
		h.killed[pid+"."+strconv.FormatUint(s.started, 10)] = true
	}
	return f
}

// startTime is when a process was started, 0 when it is not known.
func startTime(pid int) uint64 {
	s, _ := readStat(strconv.Itoa(pid))
	return s.started
}

func listProcesses() ([]string, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }() // only read from
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(names, func(name string) bool { return name[0] < '1' || name[0] > '9' }), nil
}

func readEnviron(pid string) ([]byte, error) {
	f, err := os.Open("/proc/" + pid + "/environ")
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read from
	b, err := io.ReadAll(io.LimitReader(f, maxEnvironBytes))
	if errors.Is(err, fs.ErrPermission) || len(b) == 0 && err != nil {
		return nil, err
	}
	return b, nil
}

func hasAll(env []byte, marks []string) bool {
	for _, m := range marks {
		if !hasVariable(env, m) {
			return false
		}
	}
	return true
}

func hasVariable(env []byte, v string) bool {
	for entry := range bytes.SplitSeq(env, []byte{0}) {
		if string(entry) == v {
			return true
		}
	}
	return false
}

// stat is what is needed of /proc/<pid>/stat (proc_pid_stat(5)).
type stat struct {
	state   byte
	parent  int
	kernel  bool   // a thread of the kernel
	started uint64 // ticks since boot: with the number it names a process for good
	envEnd  string // address of the end of the environment, 0 when there is none yet
}

func readStat(pid string) (stat, bool) {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return stat{}, false
	}
	// The name stands in parentheses and may have any character.
	i := bytes.LastIndexByte(b, ')')
	fields := strings.Fields(string(b[i+1:]))
	const firstField = 3 // number of fields[0] in the manual
	if i < 0 || len(fields) <= 51-firstField {
		return stat{}, false
	}
	const kernelThread = 0x00200000 // PF_KTHREAD
	flags, err := strconv.ParseUint(fields[9-firstField], 10, 64)
	if err != nil {
		return stat{}, false
	}
	parent, err := strconv.Atoi(fields[4-firstField])
	if err != nil {
		return stat{}, false
	}
	started, err := strconv.ParseUint(fields[22-firstField], 10, 64)
	return stat{
		state:   fields[0][0],
		parent:  parent,
		kernel:  flags&kernelThread != 0,
		started: started,
		envEnd:  fields[51-firstField],
	}, err == nil
}

// gone reports a process that has ended and waits to be reaped.
func (s stat) gone() bool { return s.state == 'Z' || s.state == 'X' || s.state == 'x' }

// emptyEnvironment judges a process whose environment reads as empty: it has
// none, or it is just changing to another program and will have one again.
func (s stat) emptyEnvironment() finding {
	if !s.kernel && s.envEnd == "0" {
		return changing
	}
	return unmarked
}
