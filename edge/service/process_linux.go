package service

import (
	"fmt"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"
)

// KeepToItself closes the memory of this process to others of its own user, such
// as the programs that command handlers run: they cannot read its environment,
// which may hold secrets, nor attach to it, and no core is dumped. Programs that
// are started get none of this. Root can still look. It also makes a crash of the
// Go runtime end by signal: its exit status would be 2, which says "mend the
// configuration", and after which a service manager does not start again.
func KeepToItself() error {
	debug.SetTraceback("crash")
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("close the memory of the process to others: %w", err)
	}
	var core unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &core); err != nil {
		return fmt.Errorf("read the limit of core dumps: %w", err)
	}
	core.Cur = 0
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &core); err != nil {
		return fmt.Errorf("forbid core dumps: %w", err)
	}
	return nil
}

// monotonicUsec is the time of the clock that the service manager compares with.
func monotonicUsec() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0
	}
	return t.Nano() / int64(time.Microsecond)
}
