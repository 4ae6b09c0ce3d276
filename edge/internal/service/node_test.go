package service_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// site is a directory with a configuration, and the node that serves it.
type site struct {
	t      *testing.T
	dir    string
	config string
	env    []string             // of the node; the default is a short one
	as     *syscall.SysProcAttr // nil: as the test
	extra  []*os.File           // further descriptors of the node
	wrap   []string             // what runs the node, in front of its command
	umask  string               // of the node
	log    *buffer              // what the node wrote to standard error
	cmd    *exec.Cmd
	done   chan struct{}
}

// newSite makes a short private directory: the path of a socket is limited. head
// are further lines of [node] and [http] together with their headers.
func newSite(t *testing.T, rest string) *site {
	t.Helper()
	dir, err := os.MkdirTemp("", "fp")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &site{t: t, dir: dir, config: filepath.Join(dir, "fencepost.toml"), env: []string{"PATH=" + os.Getenv("PATH"), "HOME=/"}, log: &buffer{}, umask: "022"}
	s.write(rest)
	return s
}

// write writes the configuration; {HTTP} in rest stands before what belongs to
// the section [http].
func (s *site) write(rest string) {
	s.t.Helper()
	node, after, _ := strings.Cut(rest, "{HTTP}")
	text := fmt.Sprintf("[node]\ndata = %q\nallow_root_commands = true\nlog_level = \"debug\"\nshutdown_grace_s = 1\n%s\n[http]\nlisten = \"127.0.0.1:0\"\n%s\n", s.path("d.db"), node, after)
	require.NoError(s.t, os.WriteFile(s.config, []byte(text), 0o600))
}

func (s *site) path(name string) string { return filepath.Join(s.dir, name) }

// command is the program with arguments, with the environment of the site.
func (s *site) command(args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), hangGuard)
	s.t.Cleanup(cancel)
	c := exec.CommandContext(ctx, binary, append(args, "--config", s.config)...)
	c.Env, c.Dir = s.env, "/"
	return c
}

// run runs a command to its end and returns its exit code and what it wrote.
func (s *site) run(args ...string) (code int, out string) {
	c := s.command(args...)
	b, err := c.CombinedOutput()
	if _, exited := err.(*exec.ExitError); err != nil && !exited { //nolint:errorlint // as os/exec returns it
		s.t.Fatal(err)
	}
	return c.ProcessState.ExitCode(), string(b)
}

// ok runs a command that must succeed.
func (s *site) ok(args ...string) string {
	s.t.Helper()
	code, out := s.run(args...)
	require.Zero(s.t, code, "%v: %s", args, out)
	return out
}

// start starts the node and waits until it is ready.
func (s *site) start() {
	s.t.Helper()
	s.spawn()
	over := func() bool {
		select {
		case <-s.done:
			return true
		default:
			return false
		}
	}
	await(s.t, "the node is ready", func() bool { return over() || s.address() != "" })
	await(s.t, "it answers", func() bool {
		if over() {
			return true
		}
		code, _ := s.run("status")
		return code == 0
	})
	require.False(s.t, over(), "the node ended: %s", s.log)
}

func (s *site) spawn() {
	s.t.Helper()
	args := append([]string{"-c", `umask "$0"; exec "$@"`, s.umask}, append(s.wrap, binary, "serve", "--config", s.config)...)
	s.cmd = exec.Command("/bin/sh", args...)
	s.cmd.Env, s.cmd.Dir, s.cmd.SysProcAttr, s.cmd.ExtraFiles = s.env, "/", s.as, s.extra
	s.cmd.Stderr = s.log
	require.NoError(s.t, s.cmd.Start())
	cmd, done := s.cmd, make(chan struct{})
	s.done = done
	go func() {
		_ = cmd.Wait() // how it ended is in its state
		close(done)
	}()
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
	})
}

// stop ends the node in good order.
func (s *site) stop() {
	s.t.Helper()
	require.NoError(s.t, s.cmd.Process.Signal(syscall.SIGTERM))
	<-s.done
	require.Zero(s.t, s.cmd.ProcessState.ExitCode(), "%s\n%s", s.cmd.ProcessState, s.log)
}

// address is where the node listens, as its log says.
func (s *site) address() string {
	_, after, found := strings.Cut(s.log.String(), "listen=127.")
	if !found {
		return ""
	}
	address, _, ended := strings.Cut(after, " ")
	if !ended {
		return ""
	}
	return "127." + address
}

// token is the node's access token.
func (s *site) token() string {
	b, err := os.ReadFile(s.path("d.db.token"))
	require.NoError(s.t, err)
	return strings.TrimSpace(string(b))
}

// give makes a user the owner of the directory and all that is in it.
func (s *site) give(uid int) {
	s.t.Helper()
	require.NoError(s.t, filepath.WalkDir(s.dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, uid, uid)
	}))
}

// buffer takes what a process writes.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write takes some more.
func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String is all so far.
func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func program(name, does string, more ...string) string {
	args := ""
	for _, a := range append([]string{asProgram}, strings.Fields(does)...) {
		args += fmt.Sprintf(", %q", a)
	}
	return fmt.Sprintf("[[handler]]\nname = %q\nkind = \"command\"\nargv = [%q%s]\n%s\n", name, self, args, strings.Join(more, "\n"))
}

func route(handler, pattern string) string {
	return fmt.Sprintf("[[route]]\nname = \"to-%s\"\ntype = %q\nhandler = %q\n", handler, pattern, handler)
}
