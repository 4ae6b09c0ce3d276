package crash_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Variables of the program that command handlers run.
const (
	programVariable = "CRASH_PROGRAM" // what it does; see runProgram
	ledgerVariable  = "CRASH_LEDGER"  // directory of its ledger
	gateVariable    = "CRASH_GATE"    // file that the program "gate" waits for
)

// line is one line of the program's ledger. There is one file for each target.
type line struct {
	Kind     string `json:"kind"` // start, end; child is the start of a process that left the group
	Life     string `json:"life"`
	Key      string `json:"key"`
	Target   string `json:"target"`
	Delivery string `json:"delivery"`
	Fence    int64  `json:"fence"`
	PID      int    `json:"pid"`
	Born     string `json:"born"` // the kernel's start time: with the pid it names a process
	AtMS     int64  `json:"at_ms"`
	// Alive are processes of earlier executions of the target that this one
	// found alive at its start.
	Alive []string `json:"alive,omitempty"`
}

// program is a command handler's configuration that runs what does.
func program(name, does, ledger string, more ...string) string {
	self, err := os.Executable()
	if err != nil {
		panic(err) // no test can run without
	}
	return fmt.Sprintf("[[handler]]\nname = %q\nkind = \"command\"\nargv = [%q]\nenv = { %s = %q, %s = %q, %s = %q, %s = \"env:%s\" }\n%s\n",
		name, self, programVariable, does, ledgerVariable, ledger, gateVariable, filepath.Join(ledger, "gate"),
		lifeVariable, lifeVariable, strings.Join(more, "\n"))
}

// otherPrograms are what else the test binary can be, by name.
var otherPrograms = map[string]func() int{}

// runProgram is the program of a command handler. It returns the exit code.
func runProgram() int {
	what := os.Getenv(programVariable)
	if other := otherPrograms[what]; other != nil {
		return other()
	}
	if what == "linger" {
		note("child", nil)
		wait(time.Minute)
		return 0
	}
	if what == "show" {
		if err := show(); err != nil {
			fmt.Println("show:", err)
			return 1
		}
		return 0
	}
	note("start", survivors())
	switch what {
	case "work":
		fence, _ := strconv.Atoi(os.Getenv("FENCEPOST_FENCE"))
		if fence%3 == 0 {
			leaveChild()
		}
		wait(time.Duration(fence*7919%60) * time.Millisecond)
	case "steady": // leaves nothing behind
		wait(10 * time.Millisecond)
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		note("ignores", nil)
		wait(time.Minute)
	case "gate":
		for range 60_000 {
			if _, err := os.Stat(os.Getenv(gateVariable)); err == nil {
				break
			}
			wait(time.Millisecond)
		}
	}
	note("end", nil)
	return 0
}

// leaveChild starts a process outside the group that would outlive this one.
func leaveChild() {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), programVariable+"=linger")
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		fmt.Println("leave a child:", err)
		os.Exit(1)
	}
}

func wait(d time.Duration) {
	if d <= 0 {
		return
	}
	<-time.NewTimer(d).C
}

// note appends one line to the ledger and syncs it.
func note(kind string, alive []string) {
	fence, _ := strconv.ParseInt(os.Getenv("FENCEPOST_FENCE"), 10, 64)
	_, born := processStat(os.Getpid())
	text, err := json.Marshal(line{
		Kind: kind, Life: os.Getenv(lifeVariable), Key: os.Getenv("FENCEPOST_KEY"), Target: os.Getenv("FENCEPOST_TARGET"),
		Delivery: os.Getenv("FENCEPOST_DELIVERY"), Fence: fence, PID: os.Getpid(), Born: born, AtMS: time.Now().UnixMilli(), Alive: alive,
	})
	if err == nil {
		err = appendSynced(ledgerFile(), append(text, '\n'))
	}
	if err != nil {
		fmt.Println("ledger:", err)
		os.Exit(1)
	}
}

func ledgerFile() string {
	name := strings.ReplaceAll(os.Getenv("FENCEPOST_TARGET"), ":", "_")
	return filepath.Join(os.Getenv(ledgerVariable), name+".ledger")
}

func appendSynced(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}

// survivors are the processes of earlier executions of the target that are still
// alive.
func survivors() []string {
	before, err := readLedger(ledgerFile())
	if err != nil {
		return []string{"the ledger cannot be read: " + err.Error()}
	}
	var alive []string
	seen := map[int]bool{}
	for _, l := range slices.Backward(before) {
		if seen[l.PID] {
			continue
		}
		seen[l.PID] = true
		if l.alive() {
			alive = append(alive, fmt.Sprintf("%s %d of fence %d", l.Kind, l.PID, l.Fence))
		}
	}
	return alive
}

// alive reports whether the process of a line has not ended.
func (l line) alive() bool {
	state, born := processStat(l.PID)
	return born == l.Born && !strings.Contains("ZXx", state)
}

func anyAlive(ls []line) bool { return slices.ContainsFunc(ls, line.alive) }

// processStat is the state and the start time of a process; "" when it is gone.
func processStat(pid int) (state, born string) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", ""
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // from field 3 of proc_pid_stat(5)
	return fields[0], fields[22-3]
}

// readLedger reads whole lines; a last one that was cut is left out.
func readLedger(path string) ([]line, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []line
	for _, raw := range bytes.SplitAfter(text, []byte{'\n'}) {
		if !bytes.HasSuffix(raw, []byte{'\n'}) {
			break
		}
		var l line
		if err := json.Unmarshal(raw, &l); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", path, raw, err)
		}
		all = append(all, l)
	}
	return all, nil
}

// ledgers reads the ledgers of all targets in dir, each in its order.
func ledgers(t *testing.T, dir string) []line {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.ledger"))
	require.NoError(t, err)
	var all []line
	for _, path := range paths {
		one, err := readLedger(path)
		require.NoError(t, err)
		all = append(all, one...)
	}
	return all
}

// noted is how many lines of a kind the ledgers in dir have.
func noted(t *testing.T, dir, kind string) int {
	t.Helper()
	n := 0
	for _, l := range ledgers(t, dir) {
		if l.Kind == kind {
			n++
		}
	}
	return n
}
