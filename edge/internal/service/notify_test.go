package service_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// manager is the service manager's side of sd_notify(3).
type manager struct {
	t    *testing.T
	conn *net.UnixConn
}

func newManager(t *testing.T, address string) *manager {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &manager{t, conn}
}

// next is the next message, false when none comes within most.
func (m *manager) next(most time.Duration) (string, bool) {
	require.NoError(m.t, m.conn.SetReadDeadline(time.Now().Add(most)))
	b := make([]byte, 4096)
	n, err := m.conn.Read(b)
	return string(b[:n]), err == nil
}

// until reads messages until one has the line want.
func (m *manager) until(want string) string {
	m.t.Helper()
	for {
		msg, ok := m.next(hangGuard)
		require.True(m.t, ok, "no %s", want)
		if strings.Contains("\n"+msg+"\n", "\n"+want+"\n") {
			return msg
		}
	}
}

// The manager is told of start, life and end, at a path and in the abstract name
// space, and no program gets its variables (see TestT11_R81).
func TestNotify_FromStartToEnd(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]func(s *site) string{
		"path":     func(s *site) string { return s.path("notify") },
		"abstract": func(s *site) string { return "@fencepost-" + filepath.Base(s.dir) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, "")
			m := newManager(t, address(s))
			s.env = append(s.env, "NOTIFY_SOCKET="+address(s), "WATCHDOG_USEC=3000000")
			s.spawn()
			require.Contains(t, m.until("READY=1"), "STATUS=delivering")
			require.Contains(t, s.ok("status", "--json"), `"ready": true`, "ready is not said too early")
			for range 3 {
				m.until("WATCHDOG=1")
			}
			require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
			require.Contains(t, m.until("STOPPING=1"), "EXTEND_TIMEOUT_USEC=31000000")
			<-s.done
			require.Zero(t, s.cmd.ProcessState.ExitCode(), s.log)
		})
	}
}

// R84: the disk is well and the process too, but the writer hangs. Signs of life
// stop, health turns, and the node can still be told to stop.
func TestR84_NoSignOfLifeWhileTheWriterHangs(t *testing.T) {
	t.Parallel()
	s := newSite(t, "{HTTP}[[handler]]\nname = \"note\"\nkind = \"log\"\n"+route("note", "*"))
	m := newManager(t, s.path("notify"))
	const watchdog = 900 * time.Millisecond
	s.env = append(s.env, "NOTIFY_SOCKET="+s.path("notify"), fmt.Sprintf("WATCHDOG_USEC=%d", watchdog.Microseconds()))
	s.start()
	m.until("WATCHDOG=1")
	require.Equal(t, http.StatusOK, s.health())

	unlock := lockWriter(t, s.path("d.db-shm"))
	await(t, "health turns", func() bool { return s.health() == http.StatusServiceUnavailable })
	await(t, "the log says why there is no sign of life", func() bool { return strings.Contains(s.log.String(), "no sign of life for the service manager") })
	for msg, ok := m.next(time.Millisecond); ok; msg, ok = m.next(time.Millisecond) {
		_ = msg // sent before the lock was taken
	}
	for range 3 {
		_, ok := m.next(watchdog)
		require.False(t, ok, "a sign of life while the writer hangs")
	}
	unlock()
	m.until("WATCHDOG=1")
	await(t, "health is back", func() bool { return s.health() == http.StatusOK })

	defer lockWriter(t, s.path("d.db-shm"))()
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	m.until("STOPPING=1")
	guard := time.NewTimer(hangGuard)
	defer guard.Stop()
	select {
	case <-s.done:
	case <-guard.C:
		t.Fatal("SIGTERM has no effect while the writer hangs")
	}
}

func (s *site) health() int {
	resp, err := http.Get("http://" + s.address() + "/healthz")
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// lockWriter takes the lock of SQLite that one writer at a time holds: a byte of
// the shared memory file (sqlite.org/walformat.html, WAL_WRITE_LOCK).
func lockWriter(t *testing.T, shm string) (unlock func()) {
	t.Helper()
	f, err := os.OpenFile(shm, os.O_RDWR, 0)
	require.NoError(t, err)
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: 120, Len: 1}
	require.NoError(t, unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLKW, &lock))
	return func() { _ = f.Close() }
}

// A reader of the journal sees priority and message, and the time once.
func TestJournal_LinesCarryPriorityAndNoTime(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	out, err := os.Create(s.path("log"))
	require.NoError(t, err)
	defer out.Close()
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(int(out.Fd()), &st))
	require.NoError(t, os.Chmod(s.config, 0o622))
	run := func(stream string) []string {
		require.NoError(t, out.Truncate(0))
		c := s.command("serve")
		c.Env = append(c.Env, "JOURNAL_STREAM="+stream)
		c.Stderr = out
		require.NoError(t, c.Start())
		await(t, "it is ready", func() bool { code, _ := s.run("status"); return code == 0 })
		require.NoError(t, c.Process.Signal(syscall.SIGTERM))
		require.NoError(t, c.Wait())
		b, err := os.ReadFile(s.path("log"))
		require.NoError(t, err)
		return strings.Split(strings.TrimRight(strings.TrimLeft(string(b), "\x00"), "\n"), "\n")
	}
	lines := run(strconv.FormatUint(uint64(st.Dev), 10) + ":" + strconv.FormatUint(st.Ino, 10))
	require.Greater(t, len(lines), 3)
	for _, line := range lines {
		require.Regexp(t, `^<[3467]>msg=`, line)
		require.NotContains(t, line, "time=")
		require.NotContains(t, line, "level=")
	}
	require.Regexp(t, `(?m)^<6>msg="node started"`, strings.Join(lines, "\n"))
	require.Regexp(t, `(?m)^<4>msg="the configuration can be written by others`, strings.Join(lines, "\n"))
	for _, line := range run("1:1") { // the variable is of another stream
		require.Regexp(t, `^time=.* level=`, line)
	}
}
