package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"fencepost/edge"
	"fencepost/edge/api"
	"fencepost/edge/cli"

	"github.com/stretchr/testify/require"
)

// asProgram makes this test binary behave as fencepost itself.
const asProgram = "FENCEPOST_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(cli.Main(ctx, os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}

// site is a directory with a configuration, and the processes that use it.
type site struct {
	dir string
}

// newSite makes a short private directory: the path of a socket is limited.
func newSite(t *testing.T, config string) *site {
	t.Helper()
	dir, err := os.MkdirTemp("", "fp")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &site{dir}
	s.configure(t, config)
	return s
}

func (s *site) configure(t *testing.T, config string) {
	t.Helper()
	head := fmt.Sprintf("[node]\ndata = %q\nallow_root_commands = true\nshutdown_grace_s = 5\n[http]\nlisten = \"127.0.0.1:0\"\n", s.path("db"))
	require.NoError(t, os.WriteFile(s.path("fencepost.toml"), []byte(head+config), 0o600))
}

func (s *site) path(name string) string { return filepath.Join(s.dir, name) }

// result is what a command left behind.
type result struct {
	code     int
	out, err string
}

// run runs a command in this process.
func (s *site) run(t *testing.T, args ...string) result {
	t.Helper()
	return s.runWith(t, strings.NewReader(""), args...)
}

func (s *site) runWith(t *testing.T, in io.Reader, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	code := cli.Main(t.Context(), append(args, "--config", s.path("fencepost.toml")), cli.Streams{In: in, Out: &out, Err: &errs})
	return result{code, out.String(), errs.String()}
}

// runRaw runs a command with these arguments alone.
func (s *site) runRaw(t *testing.T, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	code := cli.Main(t.Context(), args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	return result{code, out.String(), errs.String()}
}

// ok runs a command that must succeed and returns its output.
func (s *site) ok(t *testing.T, args ...string) string {
	t.Helper()
	r := s.run(t, args...)
	require.Zero(t, r.code, "%v: %s", args, r.err)
	require.Empty(t, r.err)
	return r.out
}

func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	require.NoError(t, dec.Decode(&v), text)
	return v
}

// process is a node in a process of its own.
type process struct {
	cmd *exec.Cmd
	log *lockedBuffer
}

// start runs serve as a process and waits until it is ready.
func (s *site) start(t *testing.T) *process {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	p := &process{cmd: exec.Command(exe, "serve", "--config", s.path("fencepost.toml")), log: &lockedBuffer{}}
	p.cmd.Env = append(os.Environ(), asProgram+"=1")
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	require.Eventually(t, func() bool {
		c, err := api.Dial(t.Context(), s.path("db.sock"))
		if err != nil {
			return false
		}
		defer c.Close()
		return c.Ready(t.Context()) == nil
	}, 30*time.Second, 5*time.Millisecond, "the node is not ready: %s", p.log)
	return p
}

// stop ends a node as an operator does and returns its exit code.
func (p *process) stop(t *testing.T) int {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	_ = p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode()
}

// kill ends a node as a power cut does.
func (p *process) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Kill())
	_ = p.cmd.Wait()
}

// await waits until a delivery is in a state, and returns it.
func (s *site) await(t *testing.T, id string, want edge.State) api.DeliveryDetail {
	t.Helper()
	var d api.DeliveryDetail
	require.Eventually(t, func() bool {
		d = decode[api.DeliveryDetail](t, s.ok(t, "delivery", id, "--json"))
		return d.Delivery.State == want
	}, 30*time.Second, 5*time.Millisecond, "delivery %s is not %s", id, want)
	return d
}

// lockedBuffer takes the output of a process.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
