package command

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

const waitsWithoutReaping = true

func groupLeader() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitExit waits until the program has ended and leaves it to be reaped, so
// that its number stays its own.
func awaitExit(p *os.Process) {
	for {
		err := unix.Waitid(unix.P_PID, p.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// hasExited looks whether the program has ended, without reaping it.
func hasExited(p *os.Process) bool {
	state, ok := readStat(strconv.Itoa(p.Pid))
	return !ok || state.gone()
}

// closeInheritedOnExec marks every descriptor above standard error as closed on
// exec. Those that Go opened are so already; those that came from the process
// that started this one are not.
func closeInheritedOnExec() error {
	const dir = "/proc/self/fd"
	names, err := filepath.Glob(dir + "/*")
	if err != nil {
		return err
	}
	for _, name := range names {
		if fd, err := strconv.Atoi(filepath.Base(name)); err == nil && fd > 2 {
			unix.CloseOnExec(fd) // of one that is closed by now it is without effect
		}
	}
	return nil
}
