package command

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// AdoptOrphans makes this process the parent of every process that its programs
// leave behind, also of one that cleared its environment and left its session.
// Such an orphan is killed as soon as none of the programs that may have started
// it is running any more.
//
// It is for a process that starts no others than the programs of its handlers:
// from now on every further child of this process is taken for an orphan. When
// this process is killed its orphans go to init, and those that cleared their
// environment are not found any more. Linux only; elsewhere it does nothing.
func AdoptOrphans() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("adopt what programs leave behind: %w", err)
	}
	programs.mu.Lock()
	defer programs.mu.Unlock()
	programs.adopting = true
	return nil
}

// programs are the programs of all handlers that are running.
var programs = register{started: map[int]uint64{}}

// register holds when each program was started, by its number. A program is
// started and noted under the lock for reading, and children are judged under the
// lock for writing, so that none is judged between the two.
type register struct {
	mu       sync.RWMutex
	adopting bool

	noting  sync.Mutex // of started, among those who hold mu for reading
	started map[int]uint64
}

// start starts a program and notes it.
func (r *register) start(begin func() (pid int, since uint64, err error)) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	pid, since, err := begin()
	if err != nil {
		return err
	}
	r.noting.Lock()
	defer r.noting.Unlock()
	r.started[pid] = since
	return nil
}

// ended forgets a program that was reaped. Its number may be another's by now.
func (r *register) ended(pid int, since uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.started[pid] == since {
		delete(r.started, pid)
	}
}

// judge kills a process when it is an orphan of ours that no running program can
// have started, and reaps it when it is dead. told is false when it is none, and
// when that cannot be told by its parent.
func (r *register) judge(pid int, s stat) (f finding, told bool) {
	if s.parent != os.Getpid() {
		return unmarked, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.started[pid]; !r.adopting || known {
		return unmarked, false
	}
	if s.gone() {
		_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		return ended, true
	}
	for _, since := range r.started {
		if since <= s.started { // it may belong to this one: its environment tells, if it kept it
			return unmarked, false
		}
	}
	// Its number stays its own: we are its parent and have not reaped it.
	if err := unix.Kill(pid, unix.SIGKILL); errors.Is(err, unix.EPERM) {
		return unmarked, true
	}
	return marked, true
}
