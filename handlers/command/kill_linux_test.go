package command_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/handlers/command"
)

func TestDX2_BackgroundProcessIsNotLeft(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"in the group":          `sleep 600 & echo $! > "$1"`,
		"environment cleared":   `env -i sleep 600 & echo $! > "$1"`,
		"own session":           `setsid sleep 600 & echo $! > "$1"`,
		"session, twice forked": `setsid sh -c 'sleep 600 & echo $! > "$1"; exec sleep 601' sh "$1" & while ! test -s "$1"; do :; done`,
		"ignores TERM":          `(trap '' TERM; exec sleep 600) & echo $! > "$1"`,
	} {
		file := filepath.Join(t.TempDir(), "pid")
		begin := time.Now()
		r := shell(t, script, file).Handle(within(t, hang), claim(""))
		require.Equal(t, edge.OutcomeSucceeded, r.Outcome, name+": "+r.Detail)
		require.Less(t, time.Since(begin), 10*time.Second, name)
		requireGone(t, lines(t, file, 1)...)
		require.NotContains(t, r.Detail, "[truncated]", name)
	}
}

func TestR66_GrandchildHoldingThePipeDoesNotHang(t *testing.T) {
	t.Parallel()
	// Its environment is cleared, so it is not found; but it must not be waited for.
	file := filepath.Join(t.TempDir(), "pid")
	script := `env -i setsid sh -c 'echo $$ > "$0"; exec sleep 600' "$1" & while ! test -s "$1"; do :; done; echo said`
	begin := time.Now()
	r := shell(t, script, file).Handle(within(t, hang), claim(""))
	require.Less(t, time.Since(begin), 10*time.Second)
	require.Equal(t, edge.OutcomeSucceeded, r.Outcome, r.Detail)
	require.Equal(t, "exit status 0\nsaid\n\n[truncated]", r.Detail)
	p, err := os.FindProcess(lines(t, file, 1)[0])
	require.NoError(t, err)
	require.NoError(t, p.Kill())
}

func TestR72_DataIsNeverInTheArguments(t *testing.T) {
	t.Parallel()
	r := shell(t, `tr '\0' ' ' < /proc/$$/cmdline`).Handle(within(t, hang), claim("canary"))
	require.Equal(t, edge.OutcomeSucceeded, r.Outcome)
	require.Contains(t, r.Detail, "cmdline")
	require.NotContains(t, r.Detail, "canary")
}

// The writing of the input ends, though no EPIPE ever comes.
func TestR69_InputHeldByAnother(t *testing.T) {
	t.Parallel()
	r := shell(t, "env -i setsid sleep 5 & exit 0").Handle(within(t, hang), claim(strings.Repeat("x", 1<<20)))
	require.Equal(t, edge.OutcomeSucceeded, r.Outcome, r.Detail)
}

func TestR67_TimeoutKillsTheWholeGroup(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"plain":         `echo $$ >> "$1"; sleep 600 & echo $! >> "$1"; wait`,
		"ignores TERM":  `trap '' TERM; echo $$ >> "$1"; sleep 600 & echo $! >> "$1"; wait; wait; sleep 600`,
		"own session":   `echo $$ >> "$1"; setsid sleep 600 & echo $! >> "$1"; wait`,
		"exits on TERM": `trap 'exit 0' TERM; echo $$ >> "$1"; sleep 600 & echo $! >> "$1"; wait`,
	} {
		file := filepath.Join(t.TempDir(), "pids")
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan edge.Result, 1)
		h := shell(t, script, file)
		go func() { done <- h.Handle(ctx, claim("")) }()
		pids := lines(t, file, 2)
		begin := time.Now()
		cancel(errors.New("lease lost"))
		r := <-done
		require.Less(t, time.Since(begin), 5*time.Second, name) // P24 says 1 s, on a machine that is not busy
		require.Equal(t, edge.OutcomeIndeterminate, r.Outcome, name)
		require.Equal(t, "command_interrupted", r.Code, name)
		require.Contains(t, r.Detail, "lease lost", name)
		requireGone(t, pids...)
	}
}

func TestTimeoutIsUnknown(t *testing.T) {
	t.Parallel()
	r := shell(t, "echo begun; sleep 600").Handle(within(t, 2*time.Second), claim(""))
	require.Equal(t, edge.OutcomeIndeterminate, r.Outcome)
	require.Equal(t, "command_timeout", r.Code)
	require.Contains(t, r.Detail, "begun")

	h := newHandler(t, command.Config{Argv: []string{"sleep", "600"}, Timeout: time.Second})
	r = h.Handle(t.Context(), claim(""))
	require.Equal(t, "command_timeout", r.Code)
}

func TestForeignSignalIsUnknown(t *testing.T) {
	t.Parallel()
	for _, signal := range []string{"KILL", "SEGV", "TERM"} {
		r := shell(t, "kill -"+signal+" $$; sleep 600").Handle(within(t, hang), claim(""))
		require.Equal(t, edge.OutcomeIndeterminate, r.Outcome)
		require.Equal(t, "killed_by_signal", r.Code)
		require.Contains(t, r.Detail, "signal: ")
	}
}

// The kernel's parent-death signal comes when the starting thread ends. Here
// threads end all the time while a program runs.
func TestProgramOutlivesOtherThreads(t *testing.T) {
	t.Parallel()
	gate := filepath.Join(t.TempDir(), "gate")
	done := make(chan edge.Result, 4)
	for range cap(done) {
		h := shell(t, `while ! test -e "$1"; do sleep 0.01; done`, gate)
		go func() { done <- h.Handle(within(t, hang), claim("")) }()
	}
	for range 50 {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
				_ = os.Getpid()
			})
		}
		wg.Wait()
	}
	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	for range cap(done) {
		r := <-done
		require.Equal(t, edge.OutcomeSucceeded, r.Outcome, r.Detail)
	}
}

func TestKilledNodeLeavesNothing(t *testing.T) {
	t.Parallel()
	owner := edge.NewName()
	file := filepath.Join(t.TempDir(), "pids")
	node, _ := startNode(t, owner, `echo $$ >> `+file+`; sleep 600 & echo $! >> `+file+`; setsid sleep 600 & echo $! >> `+file+`; wait`)
	pids := lines(t, file, 3)
	other := exec.CommandContext(within(t, hang), "sleep", "600")
	other.Env = []string{"FENCEPOST_OWNER=" + owner + "x", "OTHER=FENCEPOST_OWNER=" + owner}
	require.NoError(t, other.Start())

	require.NoError(t, node.Process.Kill())
	require.Error(t, node.Wait())
	requireGone(t, pids[0]) // by the kernel
	require.True(t, alive(pids[1]) && alive(pids[2]), "without KillOwner they would work on")

	killed, err := command.KillOwner(within(t, hang), owner)
	require.NoError(t, err)
	require.GreaterOrEqual(t, killed, 2)
	require.False(t, alive(pids[1]) || alive(pids[2]), "gone when KillOwner returns")

	killed, err = command.KillOwner(within(t, hang), owner)
	require.NoError(t, err)
	require.Zero(t, killed)
	require.True(t, alive(other.Process.Pid), "another owner's is left alone")
	require.NoError(t, other.Process.Kill())
	require.Error(t, other.Wait())
}

func TestKillOwnerMeetsForks(t *testing.T) {
	t.Parallel()
	owner := edge.NewName()
	file := filepath.Join(t.TempDir(), "pids")
	// Each process starts the next and ends: a look at all processes can miss it.
	script := filepath.Join(t.TempDir(), "hop")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\necho $$ >> "+file+"\nsetsid $0 &\n"), 0o700))
	cmd := exec.CommandContext(within(t, hang), script)
	cmd.Env = []string{"FENCEPOST_OWNER=" + owner, "PATH=" + command.DefaultPath}
	require.NoError(t, cmd.Run())
	lines(t, file, 5)
	killed, err := command.KillOwner(within(t, hang), owner)
	require.NoError(t, err)
	require.Positive(t, killed)
	before, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Never(t, func() bool {
		after, err := os.ReadFile(file)
		return err != nil || len(after) != len(before)
	}, 200*time.Millisecond, 20*time.Millisecond, "nothing of the owner works on")
}

func TestKillOwnerRefusesAnEmptyOwner(t *testing.T) {
	t.Parallel()
	_, err := command.KillOwner(t.Context(), "")
	require.Error(t, err)
}

// Also the descriptors that the node has inherited itself.
func TestNoDescriptorIsInherited(t *testing.T) {
	t.Parallel()
	f, err := os.Open(os.DevNull)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	node, out := startNode(t, edge.NewName(), `ls -l /proc/self/fd`, f, f)
	require.NoError(t, node.Wait())
	var got []string
	for line := range strings.Lines(out.String()) {
		if name, to, ok := strings.Cut(strings.TrimSpace(line), " -> "); ok && !strings.HasPrefix(to, "/proc/") {
			got = append(got, name[strings.LastIndexByte(name, ' ')+1:])
		}
	}
	require.Equal(t, []string{"0", "1", "2"}, got, out.String())
}
