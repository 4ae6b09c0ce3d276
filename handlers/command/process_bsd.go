//go:build unix && !linux

package command

import (
	"os"
	"syscall"
)

const waitsWithoutReaping = false

func groupLeader() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func awaitExit(*os.Process) {}

func hasExited(*os.Process) bool { return false }

func closeInheritedOnExec() error { return nil }
