//go:build !unix

package command

import (
	"os"
	"syscall"
)

const (
	defaultDir      = ""
	needsExecuteBit = false

	waitsWithoutReaping = false
)

var programSuffixes = []string{"", ".exe"}

func baseEnvironment() []string {
	env := []string{"PATH=" + os.Getenv("PATH")}
	for _, name := range []string{"SYSTEMROOT", "TEMP"} {
		if v := os.Getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	return env
}

func groupLeader() *syscall.SysProcAttr { return nil }

func awaitExit(*os.Process) {}

func hasExited(*os.Process) bool { return false }

func terminateGroup(p *os.Process) { _ = p.Kill() }

func killGroup(p *os.Process) { _ = p.Kill() }

func closeInheritedOnExec() error { return nil }
