//go:build unix

package command_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/handlers/command"
)

// hang is only a guard against hanging.
const hang = 30 * time.Second

// The test program runs itself as the program under test.
const modeVariable = "COMMAND_TEST_MODE"

func TestMain(m *testing.M) {
	switch mode := os.Getenv(modeVariable); mode {
	case "":
		os.Exit(m.Run())
	case "dump":
		dump()
	case "node":
		node()
	default:
		fmt.Fprintln(os.Stderr, "unknown mode", mode)
		os.Exit(2)
	}
}

// seen is what a program sees.
type seen struct {
	Args, Env []string
	In        []byte
	Dir       string
}

func dump() {
	in, err := io.ReadAll(os.Stdin)
	if err != nil {
		panic(err)
	}
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(seen{os.Args, os.Environ(), in, dir}); err != nil {
		panic(err)
	}
}

// node is a process that runs one command and is then killed from outside. It
// has one inherited descriptor.
func node() {
	h, err := command.New(command.Config{Argv: []string{"sh", "-c", os.Getenv("COMMAND_TEST_SCRIPT")}})
	if err != nil {
		panic(err)
	}
	c := claim("")
	c.Owner = os.Getenv("COMMAND_TEST_OWNER")
	r := h.Handle(context.Background(), c)
	fmt.Println(r.Outcome, r.Code)
	fmt.Println(r.Detail)
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	require.NoError(t, err)
	return path
}

func newHandler(t *testing.T, c command.Config) *command.Handler {
	t.Helper()
	h, err := command.New(c)
	require.NoError(t, err)
	return h
}

func shell(t *testing.T, script string, args ...string) *command.Handler {
	t.Helper()
	return newHandler(t, command.Config{Argv: append([]string{"sh", "-c", script, "sh"}, args...)})
}

func claim(data string) *edge.Claim {
	return &edge.Claim{
		Delivery: 12, DeliveryID: "dlv-node-12", EventID: "evt-node-3", Key: "dlv-node-7", Fence: 40, Attempt: 2,
		Target: edge.Target{Handler: "cmd", Key: "k"}, Route: "all", Owner: edge.NewName(),
		Event: &edge.Event{ID: "1", Source: "/source", Type: "t", Data: []byte(data)},
	}
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// lines waits until the file has n whole lines and returns them as numbers.
func lines(t *testing.T, path string, n int) []int {
	t.Helper()
	var pids []int
	require.Eventually(t, func() bool {
		b, err := os.ReadFile(path)
		if err != nil || strings.Count(string(b), "\n") < n {
			return false
		}
		pids = pids[:0]
		for _, f := range strings.Fields(string(b)) {
			pid, err := strconv.Atoi(f)
			if err != nil {
				return false
			}
			pids = append(pids, pid)
		}
		return true
	}, hang, 5*time.Millisecond)
	return pids
}

// alive reports a process that exists and has not ended.
func alive(pid int) bool {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return false
	}
	rest := string(b[strings.LastIndexByte(string(b), ')')+1:])
	state := strings.Fields(rest)[0]
	return state != "Z" && state != "X"
}

func requireGone(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		require.Eventually(t, func() bool { return !alive(pid) }, 10*time.Second, 5*time.Millisecond, "process %d is left", pid)
	}
}

func startNode(t *testing.T, owner, script string, extra ...*os.File) (*exec.Cmd, *strings.Builder) {
	t.Helper()
	var out strings.Builder
	cmd := exec.CommandContext(within(t, hang), self(t), "-test.run=^$")
	cmd.Env = append(os.Environ(), modeVariable+"=node", "COMMAND_TEST_OWNER="+owner, "COMMAND_TEST_SCRIPT="+script)
	cmd.Stdout, cmd.ExtraFiles = &out, extra
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	return cmd, &out
}
