package crash_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// binary is the path of the program under test.
var binary string

// TestMain builds the program once. The test binary is also the program that
// command handlers run: then it does that and nothing else.
func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		os.Exit(runProgram())
	}
	flag.Parse()
	dir, err := os.MkdirTemp("", "fencepost-crash-")
	if err == nil {
		binary = filepath.Join(dir, "fencepost")
		err = build(binary)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build the program:", err)
		os.Exit(1)
	}
	waitMoreThanWork()
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

func build(to string) error {
	c := exec.Command("go", "build", "-o", to, "fencepost")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// waitMoreThanWork lets more tests run at once than there are cores, unless the
// command line says how many: they mostly wait for other processes.
func waitMoreThanWork() {
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", "6") // the flag exists, and 6 is a number
	}
}

// number is a setting from the environment.
func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	require.NoError(t, err, "%s", name)
	require.Positive(t, n, "%s", name)
	return n
}

// seeded makes the random choices of a test, and says how to make them again.
// Not safe for several goroutines.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := number(t, "FENCEPOST_SEED", int(rand.Uint32()>>1)+1)
	t.Logf("FENCEPOST_SEED=%d", seed)
	return rand.New(rand.NewPCG(uint64(seed), 0))
}

// hangGuard ends a wait for what does not come. It is no promise of speed.
const hangGuard = 90 * time.Second

// await waits until done says so. The node's log is shown when it never does.
func await(t *testing.T, n *node, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	guard := time.NewTimer(hangGuard)
	defer guard.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-guard.C:
			t.Fatalf("this never came: %s\n%s", what, n.tail())
		}
	}
}
