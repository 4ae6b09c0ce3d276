package command

import (
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"
)

// process is a started program, the leader of its process group.
type process struct {
	cmd   *exec.Cmd
	since uint64        // when it was started, for finding what it started
	done  chan struct{} // closed when it has ended and its group was killed

	// Set before done is closed.
	state *os.ProcessState
	err   error

	mu     sync.Mutex
	reaped bool // its number may belong to another process now
}

// start starts cmd. The starting and the waiting are done on one goroutine that
// keeps its thread: the kernel kills the program when the thread that started
// it ends, not only when the process does.
func start(cmd *exec.Cmd) (*process, error) {
	cmd.SysProcAttr = groupLeader()
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go p.live(started)
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

func (p *process) live(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := programs.start(func() (pid int, since uint64, err error) {
		if err := p.cmd.Start(); err != nil {
			return 0, 0, err
		}
		p.since = startTime(p.cmd.Process.Pid)
		return p.cmd.Process.Pid, p.since, nil
	})
	started <- err
	if err != nil {
		return
	}
	p.reap()
	programs.ended(p.cmd.Process.Pid, p.since)
	p.state = p.cmd.ProcessState
	close(p.done)
}

// reap waits for the end and kills what is left of the group. Where one can
// wait without reaping, the group is killed while its number is still its own;
// elsewhere right after.
func (p *process) reap() {
	var err error
	if waitsWithoutReaping {
		awaitExit(p.cmd.Process)
	} else {
		err = p.cmd.Wait()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	killGroup(p.cmd.Process)
	if waitsWithoutReaping {
		err = p.cmd.Wait()
	}
	p.err, p.reaped = err, true
}

// terminate asks the group to end. It reports whether the program was still
// running.
func (p *process) terminate() bool { return p.signal(terminateGroup) }

// kill ends the group.
func (p *process) kill() bool { return p.signal(killGroup) }

func (p *process) signal(send func(*os.Process)) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped || hasExited(p.cmd.Process) {
		return false
	}
	send(p.cmd.Process)
	return true
}

func (p *process) endsWithin(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.done:
		return true
	case <-timer.C:
		return false
	}
}
