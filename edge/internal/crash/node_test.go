package crash_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"fencepost/edge"
	"fencepost/edge/api"

	"github.com/stretchr/testify/require"
)

// node is a node of the real program: a configuration and, one after another,
// the processes that serve it. What a process sends outside carries its life, so
// that a receiver can tell the processes apart.
type node struct {
	t      *testing.T
	dir    string
	config string // path
	socket string
	share  bool
	under  []string // a program and its arguments that run the node's processes; nil = none
	env    []string // of the processes, beside what they inherit
	built  string   // the program in another build; "" = as it is
	name   string   // of its lives
	http   *http.Client

	lives int
	addr  atomic.Pointer[string] // of the latest process that told it
	p     *process               // the latest process; nil before the first

	mu  sync.Mutex
	log []entry
}

// entry is one line of the log.
type entry struct {
	Msg      string `json:"msg"`
	Listen   string `json:"listen"`
	Summary  string `json:"summary"`
	InFlight int    `json:"in_flight"`
	NotBegun int    `json:"not_started"`
	life     string
	raw      string
}

// process is one life of a node.
type process struct {
	life  string
	cmd   *exec.Cmd
	began time.Time
	addr  chan string   // its address, once
	done  chan struct{} // closed when it has been waited for
}

// newNode writes a configuration of the given handlers and routes into a new
// directory. lines are further lines of the table [node].
func newNode(t *testing.T, rest string, lines ...string) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "fp-") // short: the path of a socket is limited
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return nodeIn(t, dir, "n", false, rest, lines...)
}

// nodeIn makes one of several nodes that share the database in dir.
func nodeIn(t *testing.T, dir, name string, share bool, rest string, lines ...string) *node {
	t.Helper()
	n := &node{
		t: t, dir: dir, name: name, share: share,
		config: filepath.Join(dir, name+".toml"),
		socket: filepath.Join(dir, name+".sock"),
		http:   &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: 30 * time.Second},
	}
	n.configure(rest, lines...)
	t.Cleanup(func() {
		n.kill()
		n.http.CloseIdleConnections()
	})
	return n
}

func (n *node) configure(rest string, lines ...string) {
	text := fmt.Sprintf("[node]\ndata = %q\nallow_root_commands = true\nlog_format = \"json\"\n%s\n[http]\nlisten = \"127.0.0.1:0\"\nsocket = %q\n%s",
		filepath.Join(n.dir, "d.db"), strings.Join(lines, "\n"), n.socket, rest)
	require.NoError(n.t, os.WriteFile(n.config, []byte(text), 0o600))
}

// spawn starts a process and does not wait for anything.
func (n *node) spawn() *process {
	n.t.Helper()
	n.lives++
	p := &process{
		life: fmt.Sprintf("%s-life-%06d", n.name, n.lives),
		addr: make(chan string, 1),
		done: make(chan struct{}),
	}
	args := []string{"serve", "--config", n.config}
	if n.share {
		args = append(args, "--share")
	}
	line := append(append([]string(nil), n.under...), append([]string{n.program()}, args...)...)
	p.cmd = exec.Command(line[0], line[1:]...)
	p.cmd.Env = append(os.Environ(), lifeVariable+"="+p.life)
	p.cmd.Env = append(p.cmd.Env, n.env...)
	p.cmd.Stderr = &lines{each: func(line string) { n.note(p, line) }}
	p.cmd.WaitDelay = 5 * time.Second
	p.began = time.Now()
	require.NoError(n.t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait() // how it ended is in its state
		close(p.done)
	}()
	n.p = p
	return p
}

func (n *node) program() string {
	if n.built != "" {
		return n.built
	}
	return binary
}

// start starts a process and waits until it is ready. It returns how long that
// took.
func (n *node) start() time.Duration {
	n.t.Helper()
	p := n.spawn()
	return n.awaitReady(p)
}

func (n *node) awaitReady(p *process) time.Duration {
	n.t.Helper()
	guard := time.NewTimer(hangGuard)
	defer guard.Stop()
	select {
	case addr := <-p.addr:
		n.addr.Store(&addr)
	case <-p.done:
		n.t.Fatalf("%s ended before it was ready: %s\n%s", p.life, p.cmd.ProcessState, n.tail())
	case <-guard.C:
		n.t.Fatalf("%s does not start\n%s", p.life, n.tail())
	}
	await(n.t, n, p.life+" is ready", n.ready)
	return time.Since(p.began)
}

// ready asks GET /readyz.
func (n *node) ready() bool {
	resp, err := n.http.Get("http://" + *n.addr.Load() + "/readyz")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode == http.StatusOK
}

// kill ends the latest process with SIGKILL and waits until it is gone.
func (n *node) kill() {
	if n.p == nil {
		return
	}
	n.signal(syscall.SIGKILL)
	<-n.p.done
}

// stop ends the latest process with SIGTERM and waits until it is gone. It
// returns how long that took.
func (n *node) stop() time.Duration {
	n.t.Helper()
	began := time.Now()
	n.signal(syscall.SIGTERM)
	n.gone()
	require.Zero(n.t, n.p.cmd.ProcessState.ExitCode(), "%s\n%s", n.p.cmd.ProcessState, n.tail())
	return time.Since(began)
}

func (n *node) gone() {
	n.t.Helper()
	guard := time.NewTimer(hangGuard)
	defer guard.Stop()
	select {
	case <-n.p.done:
	case <-guard.C:
		n.t.Fatalf("%s does not end\n%s", n.p.life, n.tail())
	}
}

func (n *node) signal(s syscall.Signal) {
	if err := n.p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		n.t.Errorf("send %s to %s: %v", s, n.p.life, err)
	}
}

// note keeps a line of the log of p.
func (n *node) note(p *process, line string) {
	e := entry{life: p.life, raw: line}
	if json.Unmarshal([]byte(line), &e) == nil && e.Msg == "node started" {
		select {
		case p.addr <- e.Listen:
		default:
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	const most = 20_000
	if len(n.log) > most {
		n.log = append(n.log[:0], n.log[most/2:]...)
	}
	n.log = append(n.log, e)
}

// logged returns the lines of the latest process with a message.
func (n *node) logged(msg string) []entry {
	n.mu.Lock()
	defer n.mu.Unlock()
	var found []entry
	for _, e := range n.log {
		if e.life == n.p.life && e.Msg == msg {
			found = append(found, e)
		}
	}
	return found
}

// tail is the end of the log, for a failure.
func (n *node) tail() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var b strings.Builder
	for _, e := range n.log[max(len(n.log)-30, 0):] {
		fmt.Fprintf(&b, "  %s %s\n", e.life, e.raw)
	}
	return b.String()
}

// lines is a writer that passes on whole lines.
type lines struct {
	each func(string)
	rest []byte
}

func (l *lines) Write(b []byte) (int, error) {
	l.rest = append(l.rest, b...)
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte{'\n'})
		if !ok {
			return len(b), nil
		}
		l.each(string(line))
		l.rest = rest
	}
}

// run runs a command of the command line as a person would.
func (n *node) run(args ...string) (out, fault string, code int) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hangGuard)
	defer cancel()
	c := exec.CommandContext(ctx, binary, append([]string{"--config", n.config}, args...)...)
	var o, e bytes.Buffer
	c.Stdout, c.Stderr = &o, &e
	if err := c.Run(); err != nil {
		var exit *exec.ExitError
		require.ErrorAs(n.t, err, &exit, "%v", args)
	}
	return o.String(), e.String(), c.ProcessState.ExitCode()
}

// ok runs a command that must succeed.
func (n *node) ok(args ...string) string {
	n.t.Helper()
	out, fault, code := n.run(args...)
	require.Zero(n.t, code, "fencepost %s\n%s%s\n%s", strings.Join(args, " "), out, fault, n.tail())
	return out
}

// as runs a command with --json and reads its answer.
func as[T any](n *node, args ...string) T {
	n.t.Helper()
	out := n.ok(append(args, "--json")...)
	var v T
	require.NoError(n.t, json.Unmarshal([]byte(out), &v), "%v: %s", args, out)
	return v
}

// status is what fencepost status prints.
type status struct {
	api.Status
	Counters map[string]int64 `json:"counters"`
}

// ask makes one call over the socket: quicker than a process for each, where one
// waits.
func ask[T any](n *node, call func(context.Context, *api.Client) (T, error)) T {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hangGuard)
	defer cancel()
	client, err := api.Dial(ctx, n.socket)
	require.NoError(n.t, err, "%s", n.tail())
	defer client.Close()
	v, err := call(ctx, client)
	require.NoError(n.t, err, "%s", n.tail())
	return v
}

func (n *node) counters() map[string]int64 {
	n.t.Helper()
	return ask(n, func(ctx context.Context, c *api.Client) (map[string]int64, error) { return c.Counters(ctx) })
}

// open is how many deliveries are not final, by the counters.
func open(counters map[string]int64) int64 {
	var sum int64
	for _, s := range edge.States {
		if !s.Final() {
			sum += counters["state."+string(s)]
		}
	}
	return sum
}

// clean runs a full check of the invariants.
func (n *node) clean() {
	n.t.Helper()
	report := as[api.CheckReport](n, "check", "--full")
	require.Empty(n.t, report.Violations)
}

// deliveries lists all deliveries that a filter selects, page by page.
func (n *node) deliveries(filter ...string) []api.Delivery {
	n.t.Helper()
	var all []api.Delivery
	args := append([]string{"deliveries", "--limit", "1000"}, filter...)
	for before := ""; ; {
		page := as[api.DeliveryPage](n, append(args, "--before", before)...)
		all = append(all, page.Deliveries...)
		if before = page.Next; before == "" {
			return all
		}
	}
}

// delivery reads one delivery with its executions.
func (n *node) delivery(id string) api.DeliveryDetail {
	n.t.Helper()
	return ask(n, func(ctx context.Context, c *api.Client) (api.DeliveryDetail, error) { return c.Delivery(ctx, id) })
}

// awaitState waits until a delivery is in a state, and returns it.
func (n *node) awaitState(id string, want edge.State) api.Delivery {
	n.t.Helper()
	var last api.Delivery
	await(n.t, n, fmt.Sprintf("delivery %s is %s", id, want), func() bool {
		last = n.delivery(id).Delivery
		return last.State == want
	})
	return last
}

// drain waits until every delivery is final.
func (n *node) drain() {
	n.t.Helper()
	end := time.Now().Add(hangGuard * 9 / 10)
	await(n.t, n, "all is delivered", func() bool {
		if open(n.counters()) == 0 {
			return true
		}
		if time.Now().After(end) {
			end = end.Add(time.Hour)
			n.t.Errorf("still open: %s", n.unfinished())
		}
		return false
	})
}

// unfinished lists deliveries that are not final, for a failure.
func (n *node) unfinished() string {
	var b strings.Builder
	for _, s := range edge.States {
		if !s.Final() {
			b.WriteString(n.ok("deliveries", "--limit", "20", "--state", string(s)))
		}
	}
	return b.String()
}

// panicked returns the first line of the latest process that looks like a panic.
func (n *node) panicked() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, e := range n.log {
		if e.life == n.p.life && (strings.HasPrefix(e.raw, "panic:") || strings.HasPrefix(e.raw, "fatal error:") || strings.HasPrefix(e.raw, "goroutine ")) {
			return e.raw
		}
	}
	return ""
}
