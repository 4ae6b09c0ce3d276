package cli_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"fencepost/edge/api"

	"github.com/stretchr/testify/require"
)

const reloadable = "[[handler]]\nname = \"one\"\nkind = \"log\"\n[[route]]\nname = \"all\"\nhandler = \"one\"\n"

func TestReload_ByCommandAndBySignal(t *testing.T) {
	t.Parallel()
	s := newSite(t, reloadable)
	p := s.start(t)
	require.Contains(t, s.ok(t, "reload"), "it says what was in force already")

	s.configure(t, reloadable+"[[handler]]\nname = \"two\"\nkind = \"log\"\n")
	out := s.ok(t, "reload")
	require.Contains(t, out, "handler.two")
	require.Contains(t, out, "with the next claim")

	s.configure(t, strings.ReplaceAll(reloadable, "log", "lag")+"nonsense = 1\n")
	r := s.run(t, "reload")
	require.Equal(t, api.ExitUsage, r.code)
	require.Empty(t, r.out)
	require.Contains(t, r.err, "nothing was changed: "+s.path("fencepost.toml")+" has 2 faults")
	require.Contains(t, r.err, "handler[1].kind: unknown value")
	require.Contains(t, r.err, "route[1].nonsense: unknown key")
	r = s.run(t, "reload", "--json")
	require.Equal(t, api.ExitUsage, r.code)
	require.Contains(t, r.err, `"code": "invalid"`)

	s.configure(t, "[[handler")
	r = s.run(t, "reload")
	require.Equal(t, api.ExitUsage, r.code)
	require.Contains(t, r.err, "the node was not asked, and nothing was changed")
	require.Contains(t, r.err, ":9: expected ']]'")
	s.configure(t, "nonsense = 1\n")
	require.Contains(t, s.ok(t, "status"), "ready", "the node goes on, and so does who operates it")

	// By signal: the log tells, and a good file counts.
	before := strings.Count(p.log.String(), "reload refused")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
	logged := func(n int, text string) func() bool {
		return func() bool { return strings.Count(p.log.String(), text) >= n }
	}
	require.Eventually(t, logged(before+1, "reload refused"), 30*time.Second, 5*time.Millisecond)
	s.configure(t, reloadable+"[[handler]]\nname = \"three\"\nkind = \"log\"\n")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
	require.Eventually(t, logged(1, "key=handler.three change=added"), 30*time.Second, 5*time.Millisecond)
	require.Contains(t, s.ok(t, "handler"), "three")
	require.Zero(t, p.stop(t))
}
