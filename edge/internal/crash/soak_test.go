//go:build soak

package crash_test

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sample is what a process held at a moment.
type sample struct {
	hours       float64 // since the first one
	residentKiB int
	threads     int
	descriptors int
}

// TestP21_Soak lets a node work at about 100 events a second and looks at its
// memory, goroutines and descriptors all the time. The slope of the resident
// memory is that of least squares over the second part of the run, its bound the
// one-sided 95 % bound under errors that do not depend on each other, which is
// kind to a process: samples are taken far apart for it.
func TestP21_Soak(t *testing.T) {
	const promised = 0.5 // MiB an hour
	length := time.Duration(number(t, "FENCEPOST_SOAK_S", 300)) * time.Second
	fresh := newLoad(t)
	fresh.soaked(100)
	usual := fresh.n.goroutines()
	l := newLoad(t)
	all, acks := l.soak(length)
	l.rightAtTheEnd()
	left := l.n.goroutines()

	warm := all[len(all)/3:]
	early, late := warm[:len(warm)/5], warm[len(warm)*4/5:]
	slope, bound := trend(warm)
	resident := column(warm, residentOf)
	t.Logf("soak: %s, %d events (%.0f a second), %d samples after the warm-up; resident %d to %d KiB (promised at most %d), slope %.2f MiB/h, 95 %% upper bound %.2f MiB/h (promised %.1f); goroutines at rest %d, of a fresh node %d (promised +-5); descriptors in the first and the last fifth, median %d and %d (promised +-5), threads %d and %d",
		length, acks, float64(acks)/length.Seconds(), len(warm), resident[0], resident[len(resident)-1], 128<<10, slope, bound, promised,
		left, usual, median(column(early, descriptorsOf)), median(column(late, descriptorsOf)), median(column(early, threadsOf)), median(column(late, threadsOf)))
	require.GreaterOrEqual(t, len(warm), 50, "too few samples")
	require.Positive(t, acks)
	require.Less(t, resident[len(resident)-1], 128<<10)
	require.InDelta(t, usual, left, 5, "goroutines")
	require.InDelta(t, median(column(early, descriptorsOf)), median(column(late, descriptorsOf)), 5, "descriptors")
	if length >= time.Hour {
		require.LessOrEqual(t, bound, promised)
	}
}

// soaked lets the node work until so many events were acknowledged, and judges.
func (l *load) soaked(events int64) {
	l.hooks = true
	l.n.env = append(l.n.env, "GOTRACEBACK=all")
	l.n.start()
	l.produce()
	l.acksFrom(0, events)
	l.rightAtTheEnd()
}

func (l *load) rightAtTheEnd() {
	l.t.Helper()
	l.finish()
	l.settleAll()
	l.n.clean()
	require.Empty(l.t, l.evidence().judge())
	l.n.http.CloseIdleConnections()
}

// soak lets the node work for a time, and samples it.
func (l *load) soak(length time.Duration) (all []sample, acks int64) {
	l.t.Helper()
	l.hooks, l.pace = true, 40*time.Millisecond
	l.n.env = append(l.n.env, "GOTRACEBACK=all")
	l.n.start()
	l.produce()
	began := time.Now()
	tick := time.NewTicker(max(length/240, time.Second))
	defer tick.Stop()
	for time.Since(began) < length {
		<-tick.C
		s := l.n.sample()
		s.hours = time.Since(began).Hours()
		all = append(all, s)
	}
	return all, l.acks.Load()
}

// TestControl_ALeakHasASlope shows that the bound sees a leak of 5 MiB an hour in
// noise, and calls flat what is flat.
func TestControl_ALeakHasASlope(t *testing.T) {
	t.Parallel()
	leak, flat := make([]sample, 160), make([]sample, 160)
	for i := range leak {
		hours := float64(i) / 80 // two hours
		noise := 600 * math.Sin(float64(i)*2.39996)
		flat[i] = sample{hours: hours, residentKiB: 40_000 + int(noise)}
		leak[i] = sample{hours: hours, residentKiB: 40_000 + int(noise+5*1024*hours)}
	}
	slope, bound := trend(leak)
	require.InDelta(t, 5, slope, 0.3)
	require.Greater(t, bound, 0.5)
	_, bound = trend(flat)
	require.Less(t, bound, 0.5)
}

var goroutineLine = regexp.MustCompile(`^goroutine \d+ `)

func (n *node) sample() (s sample) {
	n.t.Helper()
	proc := fmt.Sprintf("/proc/%d/", n.p.cmd.Process.Pid)
	text, err := os.ReadFile(proc + "status")
	require.NoError(n.t, err)
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		switch f[0] {
		case "VmRSS:":
			s.residentKiB, err = strconv.Atoi(f[1])
		case "Threads:":
			s.threads, err = strconv.Atoi(f[1])
		}
		require.NoError(n.t, err)
	}
	names, err := os.ReadDir(proc + "fd")
	require.NoError(n.t, err)
	s.descriptors = len(names)
	return s
}

// goroutines ends the latest process by SIGQUIT, at which Go's runtime writes
// down each goroutine, and counts them. Those that serve an open connection are
// left out: how many idle ones are kept differs, and descriptors bound them.
func (n *node) goroutines() int {
	n.t.Helper()
	n.signal(syscall.SIGQUIT)
	n.gone()
	n.mu.Lock()
	defer n.mu.Unlock()
	all, connections, counted := 0, 0, false
	for _, e := range n.log {
		switch {
		case e.life != n.p.life:
		case goroutineLine.MatchString(e.raw):
			all, counted = all+1, false
		case !counted && (strings.HasPrefix(e.raw, "net/http.(*persistConn)") || strings.HasPrefix(e.raw, "net/http.(*conn)")):
			connections, counted = connections+1, true
		}
	}
	require.Positive(n.t, all, "the runtime wrote nothing down")
	n.t.Logf("%d goroutines, %d of them of connections", all, connections)
	return all - connections
}

// trend is the slope of the resident memory and the upper end of its 95 %
// confidence, MiB an hour.
func trend(all []sample) (slope, bound float64) {
	n := float64(len(all))
	var x, y float64
	for _, s := range all {
		x, y = x+s.hours/n, y+float64(s.residentKiB)/1024/n
	}
	var xx, xy, rest float64
	for _, s := range all {
		dx := s.hours - x
		xx, xy = xx+dx*dx, xy+dx*(float64(s.residentKiB)/1024-y)
	}
	slope = xy / xx
	for _, s := range all {
		e := float64(s.residentKiB)/1024 - y - slope*(s.hours-x)
		rest += e * e
	}
	const quantile = 1.68 // of Student's distribution, 95 % one-sided, from 40 degrees of freedom on
	return slope, slope + quantile*math.Sqrt(rest/(n-2)/xx)
}

// column is one figure of all samples, sorted.
func column(all []sample, of func(sample) int) (v []int) {
	for _, s := range all {
		v = append(v, of(s))
	}
	slices.Sort(v)
	return v
}

func residentOf(s sample) int    { return s.residentKiB }
func threadsOf(s sample) int     { return s.threads }
func descriptorsOf(s sample) int { return s.descriptors }

func median(sorted []int) int { return sorted[len(sorted)/2] }
