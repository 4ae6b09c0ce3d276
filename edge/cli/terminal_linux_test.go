package cli_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"fencepost/edge"
	"fencepost/edge/api"
)

// terminal is a pseudo terminal of some columns, with what appears on it.
type terminal struct {
	master, slave *os.File
	screen        *lockedBuffer
	read          chan struct{} // closed when nothing more will come
}

func newTerminal(t *testing.T, columns uint16) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}))
	x := &terminal{master, slave, &lockedBuffer{}, make(chan struct{})}
	go func() { // ends with the last writer
		defer close(x.read)
		_, _ = io.Copy(x.screen, master)
	}()
	t.Cleanup(func() { _, _ = slave.Close(), master.Close() })
	return x
}

// run runs a command at the terminal; typed is written when asked appears.
func (x *terminal) run(t *testing.T, s *site, asked, typed string, args ...string) (code int, screen string) {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), asProgram+"=1", "COLUMNS=", "FENCEPOST_CONFIG="+s.path("fencepost.toml"))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = x.slave, x.slave, x.slave
	require.NoError(t, cmd.Start())
	if asked != "" {
		require.Eventually(t, func() bool { return strings.Contains(x.screen.String(), asked) }, 30*time.Second, 5*time.Millisecond, "%s", x.screen)
		_, err := x.master.WriteString(typed)
		require.NoError(t, err)
	}
	_ = cmd.Wait() // the code says it
	require.NoError(t, x.slave.Close())
	<-x.read
	return cmd.ProcessState.ExitCode(), strings.ReplaceAll(x.screen.String(), "\r\n", "\n")
}

func TestT7_TerminalGetsTablesThatFitAndNothingElse(t *testing.T) {
	t.Parallel()
	s := newSite(t, "[[handler]]\nname = \"record\"\nkind = \"log\"\n[[route]]\nname = \"all\"\nhandler = \"record\"\n")
	p := s.start(t)
	c, err := api.Dial(t.Context(), s.path("db.sock"))
	require.NoError(t, err)
	defer c.Close()
	rc, err := c.Send(t.Context(), edge.Event{Source: "/s", Type: "t", Subject: strings.Repeat("long\u202e", 40)})
	require.NoError(t, err)
	s.await(t, rc.Deliveries[0].ID, edge.Succeeded)
	for _, args := range [][]string{{"deliveries"}, {"events"}, {"target", "list"}} {
		code, screen := newTerminal(t, 79).run(t, s, "", "", args...)
		require.Zero(t, code, screen)
		require.Contains(t, screen, "…", "%v is shortened", args)
		require.Contains(t, screen, `long\u202`, "%v", args)
		harmless(t, []byte(screen), fmt.Sprint(args))
		for line := range strings.Lines(screen) {
			require.LessOrEqual(t, len([]rune(strings.TrimRight(line, "\n"))), 79, "%v: %s", args, line)
		}
		require.NotContains(t, s.ok(t, args...), "…", "%v: not for a pipe", args)
	}
	require.Zero(t, p.stop(t))
}

func TestBulk_AsksAtATerminal(t *testing.T) {
	t.Parallel()
	s := newSite(t, waitingOnGate)
	p := s.start(t)
	s.ok(t, "handler", "pause", "record")
	for range 3 {
		s.ok(t, "send", "--type", "t", "--subject", "bob")
	}
	code, screen := newTerminal(t, 120).run(t, s, "Type yes", "no\n", "cancel", "--handler", "record")
	require.Equal(t, api.ExitFailed, code, screen)
	require.Contains(t, screen, "3 deliveries will be cancelled (--state pending --handler record)")
	require.Contains(t, screen, "nothing was done")
	require.Zero(t, s.counters(t)["state.cancelled"])
	code, screen = newTerminal(t, 120).run(t, s, "Type yes", "yes\n", "cancel", "--handler", "record")
	require.Zero(t, code, screen)
	require.Contains(t, screen, "3 cancelled, 0 skipped, of 3 that matched")
	require.EqualValues(t, 3, s.counters(t)["state.cancelled"])
	require.Zero(t, p.stop(t))
}

const waitingOnGate = "[[handler]]\nname = \"record\"\nkind = \"log\"\n[[route]]\nname = \"all\"\nhandler = \"record\"\n"

// A person at a terminal sees a bar while a file of events is handed in, and the
// summary when it is gone.
func TestSendBatch_ShowsABarAtATerminal(t *testing.T) {
	t.Parallel()
	s := newSite(t, routes)
	s.start(t)
	file := s.write(t, "many", strings.Repeat("{\"type\":\"t\"}\n", 3000))
	code, screen := newTerminal(t, 79).run(t, s, "", "", "send", "--batch", file)
	require.Zero(t, code, screen)
	require.Contains(t, screen, "[#")
	require.Contains(t, screen, "%  1000 events")
	require.Contains(t, screen, "3000 events handed in: 3000 new")
	require.Less(t, strings.LastIndex(screen, "[#"), strings.LastIndex(screen, "\x1b[K"), "the bar goes away")
	r := s.run(t, "send", "--batch", s.write(t, "more", strings.Repeat("{\"type\":\"u\"}\n", 10_000)))
	require.Zero(t, r.code, r.err)
	require.Equal(t, "10000 events handed in 100%\n", r.err, "a line where there is no terminal")
}
