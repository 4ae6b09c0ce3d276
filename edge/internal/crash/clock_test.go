//go:build faults

package crash_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fencepost/edge"

	"github.com/stretchr/testify/require"
)

// clockVariable names the file that moves the clock of a program that was built
// by buildStepped: nanoseconds that are added to the wall clock, and "synced" or
// "unsynced", which is what it takes the kernel to say.
const clockVariable = "CRASH_CLOCK"

// shifted is added to package time. The clock is also read where no system call
// can be made, in the sending of timers: so it only holds a number.
const shifted = `package time

import "sync/atomic"

var shift atomic.Int64

// Shift moves the wall clock.
func Shift(by Duration) { shift.Store(int64(by)) }

func shifted(sec int64, nsec int32) (int64, int32) {
	by := shift.Load()
	sec, nsec = sec+by/1_000_000_000, nsec+int32(by%1_000_000_000)
	if nsec < 0 {
		sec, nsec = sec-1, nsec+1_000_000_000
	}
	if nsec >= 1_000_000_000 {
		sec, nsec = sec+1, nsec-1_000_000_000
	}
	return sec, nsec
}
`

// mover stands in place of what asks the kernel whether its clock is
// synchronised, for that differs from machine to machine. It reads the file from
// the start of the program on, every 5 ms; the file is replaced, never written to.
const mover = `package node

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

var says atomic.Bool

func clockSynced() bool { return says.Load() }

func init() {
	move()
	go func() {
		for range time.Tick(5 * time.Millisecond) {
			move()
		}
	}()
}

func move() {
	text, err := os.ReadFile(os.Getenv("` + clockVariable + `"))
	by, say, _ := strings.Cut(string(text), " ")
	ns, fault := strconv.ParseInt(by, 10, 64)
	if err != nil || fault != nil {
		println("the clock cannot be moved:", string(text))
		os.Exit(1)
	}
	says.Store(say == "synced")
	time.Shift(time.Duration(ns))
}
`

// buildStepped builds the program with a clock that a file moves. Nothing of the
// program's source is touched: the compiler is told to read other files in place
// of two, and one more.
func buildStepped(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	root := strings.TrimSpace(output(t, "go", "env", "GOROOT"))
	source := filepath.Join(root, "src", "time", "time.go")
	text, err := os.ReadFile(source)
	require.NoError(t, err)
	const reads = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	require.Equal(t, 1, strings.Count(string(text), reads), "time.Now of this Go reads otherwise: nothing was run")
	changed := strings.Replace(string(text), reads, reads+"\tsec, nsec = shifted(sec, nsec)\n", 1)
	home := strings.TrimSpace(output(t, "go", "list", "-f", "{{.Dir}}", "fencepost/edge/node"))
	replace := map[string]string{}
	for of, with := range map[string]string{
		source: changed, filepath.Join(root, "src", "time", "shifted.go"): shifted,
		filepath.Join(home, "clock_linux.go"): mover,
	} {
		file := filepath.Join(dir, fmt.Sprint(len(replace), ".go"))
		require.NoError(t, os.WriteFile(file, []byte(with), 0o600))
		replace[of] = file
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	file := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(file, overlay, 0o600))
	to := filepath.Join(dir, "fencepost")
	output(t, "go", "build", "-overlay", file, "-o", to, "fencepost")
	return to
}

func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	c := exec.Command(name, args...)
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s %v: %s", name, args, out)
	return string(out)
}

// steppedClock is the file that moves the clock of a node.
type steppedClock struct {
	t    *testing.T
	path string
	by   time.Duration
}

func (c *steppedClock) set(by time.Duration, say string) {
	c.t.Helper()
	c.by = by
	next := c.path + ".next"
	require.NoError(c.t, os.WriteFile(next, fmt.Appendf(nil, "%d %s", by.Nanoseconds(), say), 0o600))
	require.NoError(c.t, os.Rename(next, c.path))
}

const day = 24 * time.Hour

// clockMove is one change of the wall clock, and what it must lead to.
type clockMove struct {
	by      time.Duration
	away    bool // while no process runs
	doubted bool // the clock is to be doubted after it; else it is believed when it moves live
	// hopeless: nobody can vouch for it, since the program was built later.
	hopeless bool
}

// clockMoves bring the clock to where it was.
func clockMoves() []clockMove {
	sinceThen := time.Since(time.Unix(86_400, 0)).Round(time.Second)
	return []clockMove{
		{by: time.Hour}, {by: -time.Hour}, // less than 3 h is believed
		{by: day, doubted: true}, {by: -day},
		{by: time.Hour, away: true}, {by: -time.Hour, away: true},
		{by: day, away: true}, {by: -day, away: true, doubted: true},
		{by: 3652 * day, doubted: true}, {by: -3652 * day},
		{by: -sinceThen, away: true, doubted: true, hopeless: true}, {by: sinceThen, doubted: true},
		{by: -day}, {by: day, doubted: true},
	}
}

// TestP15_ClockSteps moves the wall clock of a node under load, live and while it
// is down, and kills it after each move: leases of before are gone soon after the
// restart, everything is delivered, nothing is delivered more often than its
// failures and losses explain, and a clock that is not to be trusted shows.
func TestP15_ClockSteps(t *testing.T) {
	t.Parallel()
	const leaseS = 10
	l := newLoad(t)
	l.n.built = buildStepped(t)
	clock := &steppedClock{t: t, path: filepath.Join(l.n.dir, "clock")}
	clock.set(0, "unsynced")
	l.n.env = append(l.n.env, clockVariable+"="+clock.path)
	l.n.configure(l.rest, fmt.Sprint("lease_s = ", leaseS))
	l.pace = 30 * time.Millisecond
	l.n.start()
	l.produce()
	l.acksFrom(0, 20)
	var slowest time.Duration
	moved, doubts, hits := 0, 0, 0
	for _, m := range clockMoves() {
		l.acksFrom(l.acks.Load(), 20)
		if m.away {
			l.n.kill()
		}
		clock.set(clock.by+m.by, "unsynced")
		if m.away {
			l.n.start()
		} else {
			await(t, l.n, fmt.Sprint("the node finds the step of ", m.by), func() bool { return len(l.n.logged("the wall clock stepped")) > 0 })
		}
		moved++
		if m.doubted {
			await(t, l.n, fmt.Sprint("the doubt after ", m.by), func() bool { return as[status](l.n, "status").Doubted })
		} else if !m.away {
			require.False(t, as[status](l.n, "status").Doubted, "after %s", m.by)
		}
		now := as[status](l.n, "status").Now
		require.InDelta(t, time.Now().Add(clock.by).UnixMilli(), int64(now), 60_000, "the program does not follow the file")
		if m.doubted {
			doubts++
		}
		l.acksFrom(l.acks.Load(), 20)
		l.worksOn(20)
		before := l.leased()
		l.n.kill()
		began := time.Now()
		l.n.start()
		if l.found() > 0 {
			hits++
		}
		await(t, l.n, "what was leased before the kill is free", func() bool { return l.free(before) })
		slowest = max(slowest, time.Since(began))
		l.decide()
		l.worksOn(20)
		if as[status](l.n, "status").Doubted { // also: a later time was seen, and vouched for
			l.n.ok("clock", "confirm")
			require.True(t, m.hopeless || !as[status](l.n, "status").Doubted)
		}
	}
	// A clock that the kernel vouches for needs no person.
	clock.set(clock.by+2*day, "unsynced")
	await(t, l.n, "the doubt", func() bool { return as[status](l.n, "status").Doubted })
	clock.set(clock.by, "synced")
	await(t, l.n, "the kernel's word ends the doubt", func() bool { return !as[status](l.n, "status").Doubted })
	l.finish()
	l.settleAll()
	l.n.clean()
	ev := l.evidence()
	require.Empty(t, ev.judge())
	extra, most := l.surplus(ev)
	t.Logf("clock: %d moves, %d of them doubted, %d kills hit work; %d events acknowledged, %d deliveries final, %d requests beyond the first of a key, %d explained by failures and losses; leases of before gone %s after the restart at most (promised lease + 5s = %s)",
		moved, doubts, hits, len(ev.acked), len(ev.deliveries), extra, most, slowest.Round(time.Millisecond), (leaseS+5)*time.Second)
	require.Equal(t, len(clockMoves()), moved)
	require.Positive(t, hits, "no kill hit work")
	require.LessOrEqual(t, extra, most, "more was sent than failures and losses explain")
	if os.Getenv("FENCEPOST_LONG") != "" {
		require.LessOrEqual(t, slowest, (leaseS+5)*time.Second)
	}
}

// worksOn waits until the receiver has got more requests.
func (l *load) worksOn(more int) {
	l.t.Helper()
	from := l.receiver.count(nil)
	await(l.t, l.n, "deliveries go on", func() bool { return l.receiver.count(nil) >= from+more })
}

// leased are deliveries that an execution holds now.
func (l *load) leased() map[string]int64 {
	l.t.Helper()
	held := map[string]int64{}
	for _, s := range []edge.State{edge.Leased, edge.Running} {
		for _, d := range l.n.deliveries("--state", string(s)) {
			held[d.ID] = d.Fence
		}
	}
	return held
}

// free reports whether none of these executions holds its delivery any more.
func (l *load) free(held map[string]int64) bool {
	now := l.leased()
	for id, fence := range held {
		if now[id] == fence {
			return false
		}
	}
	return true
}

// found is how much work recovery found at the latest start.
func (l *load) found() int {
	l.t.Helper()
	var found []entry
	await(l.t, l.n, "the start says what recovery found", func() bool { found = l.n.logged("recovery"); return len(found) > 0 })
	return found[0].InFlight + found[0].NotBegun
}

// surplus counts the requests beyond the first of each key, and how many of them
// may be: one for each refused request and each lost execution.
func (l *load) surplus(ev *evidence) (extra, most int) {
	seen := map[string]int{}
	for _, a := range ev.arrivals {
		if seen[a.key]++; seen[a.key] > 1 {
			extra++
		}
		if a.status == http.StatusInternalServerError {
			most++
		}
	}
	for _, d := range ev.deliveries {
		if handlerOf(d) == hook {
			most += d.Losses
		}
	}
	return extra, most
}
