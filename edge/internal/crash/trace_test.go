//go:build faults

package crash_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// tracer runs a node's processes under strace, which can make system calls fail.
// The node stays the test's own child: signals and the exit code are its own.
type tracer struct {
	n      *node
	dir    string
	output string // of the latest process
}

func newTracer(t *testing.T, n *node) *tracer {
	t.Helper()
	_, err := exec.LookPath("strace")
	require.NoError(t, err, "these tests need strace: apt-get install strace. Without it nothing of them was run")
	return &tracer{n: n, dir: t.TempDir()}
}

// with makes the next processes run under strace, which writes down the calls
// and applies the rules to them. Of calls only those on files are looked at, if
// any are given. With neither the next processes run by themselves.
func (x *tracer) with(calls string, files []string, rules ...string) {
	x.n.under = nil
	if calls == "" {
		return
	}
	x.output = filepath.Join(x.dir, fmt.Sprint("trace-", x.n.lives+1))
	x.n.under = []string{"strace", "-D", "-f", "-q", "-y", "-ttt", "-o", x.output, "-e", "trace=" + calls}
	if !strings.Contains(strings.Join(rules, " "), "signal=") { // a signal comes to pass only without it
		x.n.under = append(x.n.under, "--seccomp-bpf")
	}
	for _, f := range files {
		x.n.under = append(x.n.under, "-P", f)
	}
	for _, r := range rules {
		x.n.under = append(x.n.under, "-e", "inject="+r)
	}
}

// database are the paths of the node's database and its log.
func (n *node) database() (db, wal string) {
	db = filepath.Join(n.dir, "d.db")
	return db, db + "-wal"
}

// call is one system call that strace saw end.
type call struct {
	thread   string
	at       float64 // seconds
	name     string
	file     string // that its descriptor names; "" without one
	failed   bool
	injected bool
	asked    string // bytes, of a pread64 or pwrite64
	result   string
}

var (
	traceLine  = regexp.MustCompile(`^(\d+) +(\d+\.\d+) (.*)$`)
	traceCall  = regexp.MustCompile(`^(\w+)\((?:(?:AT_FDCWD[^,]*, )?"([^"]*)"|\d+<([^>]*)>)?`)
	traceSize  = regexp.MustCompile(`, (\d+), \d+\) += (\d+)$`) // of a pread64 or pwrite64
	traceAgain = regexp.MustCompile(`^<\.\.\. (\w+) resumed>`)
)

// read waits until the latest process of the node is gone for its tracer too,
// and returns what was written down, and when the process ended.
func (x *tracer) read(t *testing.T) (calls []call, ended float64) {
	t.Helper()
	main := strconv.Itoa(x.n.p.cmd.Process.Pid)
	var text string
	await(t, x.n, "strace has seen the process end", func() bool {
		b, err := os.ReadFile(x.output)
		require.NoError(t, err)
		text = string(b)
		return strings.Contains(text, "+++ exited") || strings.Contains(text, "+++ killed")
	})
	pending := map[string]call{}
	for line := range strings.Lines(text) {
		m := traceLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			continue
		}
		at, err := strconv.ParseFloat(m[2], 64)
		require.NoError(t, err)
		thread, what := m[1], m[3]
		if strings.HasPrefix(what, "+++") && (thread == main || ended == 0) {
			ended = at
			continue
		}
		c, known := call{thread: thread, at: at}, false
		if f := traceCall.FindStringSubmatch(what); f != nil {
			c.name, c.file, known = f[1], f[2]+f[3], true
		} else if traceAgain.MatchString(what) {
			c, known = pending[thread], pending[thread].name != ""
			delete(pending, thread)
		}
		switch {
		case !known:
		case strings.HasSuffix(what, "<unfinished ...>"):
			pending[thread] = c
		default:
			if f := traceSize.FindStringSubmatch(what); f != nil {
				c.asked, c.result = f[1], f[2]
			}
			c.failed, c.injected = strings.Contains(what, " = -1 "), strings.HasSuffix(what, "(INJECTED)")
			calls = append(calls, c)
		}
	}
	return calls, ended
}

// short reports whether a read or write did less than it was asked for.
func (c call) short() bool { return c.asked != c.result }

// fired are the calls that strace made fail.
func fired(calls []call) []call {
	var f []call
	for _, c := range calls {
		if c.injected {
			f = append(f, c)
		}
	}
	return f
}
