//go:build unix

package command

import (
	"os"
	"syscall"
)

const (
	defaultDir      = "/"
	needsExecuteBit = true
)

var programSuffixes = []string{""}

func baseEnvironment() []string {
	return []string{"PATH=" + DefaultPath, "HOME=" + envOr("HOME", "/"), "LANG=" + envOr("LANG", "C.UTF-8")}
}

// An error of these means that the group is gone, which is what is wanted.

func terminateGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGTERM) }

func killGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
