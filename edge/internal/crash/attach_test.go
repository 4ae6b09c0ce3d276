//go:build faults

package crash_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// attached is strace at a process that already runs: what the start needed was left
// alone.
type attached struct {
	cmd    *exec.Cmd
	output string
	done   chan struct{}
}

// attach lets strace apply rules to the node's running process, until detach or the
// end of the test. It may need root.
func (n *node) attach(t *testing.T, calls string, files []string, rules ...string) *attached {
	t.Helper()
	x := newTracer(t, n)
	a := &attached{output: filepath.Join(x.dir, "trace"), done: make(chan struct{})}
	pid := n.p.cmd.Process.Pid
	args := []string{"-f", "-y", "-ttt", "-o", a.output, "-e", "trace=" + calls, "-p", fmt.Sprint(pid)}
	for _, f := range files {
		args = append(args, "-P", f)
	}
	for _, r := range rules {
		args = append(args, "-e", "inject="+r)
	}
	a.cmd = exec.CommandContext(context.Background(), "strace", args...)
	var says strings.Builder
	a.cmd.Stderr = &says
	require.NoError(t, a.cmd.Start())
	go func() {
		_ = a.cmd.Wait()
		close(a.done)
	}()
	t.Cleanup(a.detach)
	await(t, n, "strace has every thread", func() bool {
		select {
		case <-a.done:
			t.Fatalf("strace cannot attach to the node, so nothing was shown: %s", says.String())
		default:
		}
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
		require.NoError(t, err)
		for _, task := range tasks {
			if b, err := os.ReadFile(task); err == nil && strings.Contains(string(b), "TracerPid:\t0\n") {
				return false
			}
		}
		return len(tasks) > 0
	})
	return a
}

// detach lets the process go on by itself.
func (a *attached) detach() {
	_ = a.cmd.Process.Signal(syscall.SIGTERM) // one that has ended does not matter
	select {
	case <-a.done:
	case <-time.After(hangGuard):
		_ = a.cmd.Process.Kill()
		<-a.done
	}
}

// count is how many calls strace wrote down so far that have mark in their line:
// (INJECTED), (DELAYED), or the name of a call.
func (a *attached) count(t *testing.T, mark string) int {
	t.Helper()
	b, err := os.ReadFile(a.output)
	require.NoError(t, err)
	return strings.Count(string(b), mark)
}
