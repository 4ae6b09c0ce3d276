package service_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A process that a command leaves behind ends with its execution, also when it
// cleared its environment and left its session; but not while a command is
// running that may have started it and may still need it.
func TestOrphansEndWithTheirExecution(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	// Twice forked: its parent is gone at once.
	leave := `(env -i setsid /bin/sh -c 'echo $$ > "$0"; exec /bin/sleep 600' "%s" & :); while ! test -s "%[1]s"; do sleep 0.01; done; `
	shell := func(name, script string) string {
		return fmt.Sprintf("[[handler]]\nname = %q\nkind = \"command\"\nargv = [\"/bin/sh\", \"-c\", %q]\nconcurrency = 4\n%s", name, script, route(name, name+".*"))
	}
	s.write("{HTTP}" +
		shell("quick", fmt.Sprintf(leave, s.path("quick"))) +
		shell("slow", fmt.Sprintf(leave, s.path("slow"))+fmt.Sprintf(`while ! test -e "%s"; do sleep 0.01; done`, s.path("gate"))))
	s.start()
	s.ok("send", "--type", "slow.x", "--data", "x")
	slow := s.pid("slow")
	s.ok("send", "--type", "quick.x", "--data", "x")
	quick := s.pid("quick")
	await(t, "quick is done", func() bool { return strings.Contains(s.ok("deliveries"), "exit_0") })
	require.True(t, exists(slow), "its command is running")
	// The orphan of quick may belong to slow, for all that is known.
	require.NoError(t, os.WriteFile(s.path("gate"), nil, 0o600))
	await(t, "both are gone, and reaped", func() bool { return !exists(slow) && !exists(quick) })

	require.NoError(t, os.Remove(s.path("quick")))
	s.ok("send", "--type", "quick.x", "--data", "x")
	alone := s.pid("quick")
	await(t, "it ended with its execution", func() bool { return strings.Count(s.ok("deliveries"), "exit_0") == 3 })
	await(t, "and is gone", func() bool { return !exists(alone) })
	s.stop()
}

// A process that kept its environment belongs to its execution for certain: it
// ends with it whatever other commands are running.
func TestMarkedOrphansEndWithTheirExecution(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	shell := func(name, script string) string {
		return fmt.Sprintf("[[handler]]\nname = %q\nkind = \"command\"\nargv = [\"/bin/sh\", \"-c\", %q]\n%s", name, script, route(name, name+".*"))
	}
	leave := fmt.Sprintf(`(setsid /bin/sh -c 'echo $$ > "$0"; exec /bin/sleep 600' "%s" & :); while ! test -s "%[1]s"; do sleep 0.01; done`, s.path("quick"))
	s.write("{HTTP}" + shell("quick", leave) +
		shell("slow", fmt.Sprintf(`echo $$ > "%s"; while ! test -e "%s"; do sleep 0.01; done`, s.path("slow"), s.path("gate"))))
	s.start()
	s.ok("send", "--type", "slow.x", "--data", "x")
	slow := s.pid("slow")
	s.ok("send", "--type", "quick.x", "--data", "x")
	quick := s.pid("quick")
	await(t, "quick is done", func() bool { return strings.Contains(s.ok("deliveries"), "exit_0") })
	await(t, "and what it left is gone", func() bool { return !exists(quick) })
	require.True(t, exists(slow), "the other command is running")
	require.NoError(t, os.WriteFile(s.path("gate"), nil, 0o600))
	s.stop()
}

// pid is the number that a script wrote into a file.
func (s *site) pid(name string) int {
	s.t.Helper()
	var n int
	await(s.t, name+" has begun", func() bool {
		b, err := os.ReadFile(s.path(name))
		if err != nil || !strings.HasSuffix(string(b), "\n") {
			return false
		}
		n, err = strconv.Atoi(strings.TrimSpace(string(b)))
		return err == nil
	})
	return n
}

func exists(pid int) bool {
	_, err := os.Stat("/proc/" + strconv.Itoa(pid))
	return !errors.Is(err, fs.ErrNotExist)
}
