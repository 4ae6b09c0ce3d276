package service_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// binary is the path of the program under test, self of a copy of this test
// binary where other users can run it.
var binary, self string

// stranger is a user who owns nothing, for tests that root runs.
const stranger = 65534

// TestMain builds the program once. The test binary is also the program that
// command handlers run: then it does that and nothing else.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == asProgram {
		os.Exit(runProgram(os.Args[2], os.Args[3:]))
	}
	dir, err := os.MkdirTemp("", "fencepost-service-")
	if err == nil {
		err = os.Chmod(dir, 0o755) // other users run it too
	}
	if err == nil {
		binary = filepath.Join(dir, "fencepost")
		err = build(binary)
	}
	if err == nil {
		self = filepath.Join(dir, "program")
		err = copySelf(self)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build the program:", err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

func build(to string) error {
	c := exec.Command("go", "build", "-o", to, "fencepost")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func copySelf(to string) error {
	path, err := os.Executable()
	if err != nil {
		return err
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o755)
}

// hangGuard ends a wait for what does not come. It is no promise of speed.
const hangGuard = 90 * time.Second

// await waits until done says so.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	require.Eventually(t, done, hangGuard, 5*time.Millisecond, "this never came: %s", what)
}
