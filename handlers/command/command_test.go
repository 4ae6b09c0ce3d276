//go:build unix

package command_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/handlers/command"
)

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		config command.Config
		exit   int
		want   edge.Outcome
	}{
		{command.Config{}, 0, edge.OutcomeSucceeded},
		{command.Config{}, 75, edge.OutcomeRetry},
		{command.Config{}, 1, edge.OutcomeFailed},
		{command.Config{}, 127, edge.OutcomeFailed},
		{command.Config{SucceededCodes: []int{0, 75}}, 75, edge.OutcomeSucceeded},
		{command.Config{SucceededCodes: []int{3}, RetryCodes: []int{0}}, 3, edge.OutcomeSucceeded},
		{command.Config{SucceededCodes: []int{3}, RetryCodes: []int{0}}, 0, edge.OutcomeRetry},
		{command.Config{RetryCodes: []int{}}, 75, edge.OutcomeFailed},
	} {
		c.config.Argv = []string{"sh", "-c", fmt.Sprintf("echo out; echo err >&2; exit %d", c.exit)}
		r := newHandler(t, c.config).Handle(within(t, hang), claim(""))
		require.Equal(t, c.want, r.Outcome, r.Detail)
		require.Equal(t, fmt.Sprintf("exit_%d", c.exit), r.Code)
		require.Equal(t, fmt.Sprintf("exit status %d\nout\nerr\n", c.exit), r.Detail)
	}
}

// T10, R94: 100 strings that a shell, a parser or a terminal would take for more
// than text. Arguments, input and variables are byte-equal to the model.
func TestR94_T10_NothingIsInterpreted(t *testing.T) {
	t.Parallel()
	corpus := []string{
		"$(touch /tmp/x)", "`id`", "; rm -rf /", "| cat", "&& true", "|| true", "> /tmp/x", "< /etc/passwd", "&", "$HOME", "${HOME}",
		"%PATH%", "!!", "~", "*", "?", "[a-z]", "{a,b}", "\\", "\\n", "'", `"`, "''", `""`, "' OR 1=1 --", "-o", "--", "--help", "-rf", "-",
		" ", "  a  ", "\t", "a b", "a\tb", "#", "a#b", "a=b", "=", "", ".", "..", "../../etc/passwd", "/", "//", "\u2028", "\u202e", "ü", "😀",
		"€", "%s%n", "%00", "\\x00", "\\0", "$0", "$1", "$@", "$$", "$?", "$!", "$'\\n'", "<(id)", ">(id)", "((1+1))", "[[ a ]]",
		"a;b", "a|b", "a&b", "a>b", "a<b", "a(b", "a)b", "{}", "{{.}}", "${jndi:ldap://x}", "<script>", "&lt;", "\\u0000", "nil", "null",
		"true", "0", "-1", "1e400", "NaN", "FENCEPOST_OWNER=x", "LD_PRELOAD=/x", "PATH=/x", "IFS=", "() { :;}; id", "x\\", "^C", "^D", "\u00a0",
		"\ufeff", "a\u0301", strings.Repeat("x", 512), strings.Repeat("$(", 200), "%c0%af", "file:///etc/passwd", "@file", "@-",
	}
	require.GreaterOrEqual(t, len(corpus), 100)
	hostile := slices.DeleteFunc(slices.Clone(corpus), func(s string) bool { return len(s) > 100 })
	argv := append([]string{self(t)}, hostile[:60]...)
	h := newHandler(t, command.Config{Argv: argv, Env: map[string]string{modeVariable: "dump", "STATIC": "$(id) `id`"}})
	for ten := range slices.Chunk(corpus, 10) {
		all := strings.Join(ten, "\n")
		c := claim(all + "\x00\xff\r\n")
		c.Event.Subject, c.Event.ID, c.Event.Type = ten[0], "x"+ten[len(ten)-1], all
		got := runDump(t, h, c)
		require.Equal(t, argv, got.Args)
		require.Equal(t, c.Event.Data, got.In)
		require.Contains(t, got.Env, "FENCEPOST_EVENT_SUBJECT="+c.Event.Subject)
		require.Contains(t, got.Env, "FENCEPOST_EVENT_ID="+c.Event.ID)
		require.Contains(t, got.Env, "FENCEPOST_EVENT_TYPE="+c.Event.Type)
		require.Contains(t, got.Env, "STATIC=$(id) `id`")
	}
}

func runDump(t *testing.T, h *command.Handler, c *edge.Claim) seen {
	t.Helper()
	r := h.Handle(within(t, hang), c)
	require.Equal(t, edge.OutcomeSucceeded, r.Outcome, r.Detail)
	_, out, ok := strings.Cut(r.Detail, "\n")
	require.True(t, ok)
	var s seen
	require.NoError(t, json.Unmarshal([]byte(out), &s), out)
	return s
}

func TestEnvironmentIsExactlyTheDocumentedSet(t *testing.T) {
	t.Setenv("NODE_SECRET_CANARY", "canary")
	t.Setenv("HOME", "/home/node")
	t.Setenv("LANG", "")
	t.Setenv("COMMAND_TEST_TOKEN", "token-canary")
	dir := t.TempDir()
	c := claim("x")
	c.Event.Time, c.Event.ContentType, c.Event.Subject = "2026-01-31T08:00:00Z", "text/plain", "s"
	h := newHandler(t, command.Config{
		Argv: []string{self(t)}, Dir: dir,
		Env: map[string]string{modeVariable: "dump", "TOKEN": "env:COMMAND_TEST_TOKEN"},
	})
	r := h.Handle(within(t, hang), c)
	require.Equal(t, edge.OutcomeSucceeded, r.Outcome, r.Detail)
	require.NotContains(t, r.Detail, "token-canary", "a secret that the program prints is not stored")
	got := runDump(t, h, c)
	require.Equal(t, dir, got.Dir)
	require.Equal(t, []string{
		"COMMAND_TEST_MODE=dump",
		"FENCEPOST_ATTEMPT=2",
		"FENCEPOST_CONTENT_TYPE=text/plain",
		"FENCEPOST_DELIVERY=dlv-node-12",
		"FENCEPOST_EVENT=evt-node-3",
		"FENCEPOST_EVENT_ID=1",
		"FENCEPOST_EVENT_SOURCE=/source",
		"FENCEPOST_EVENT_SUBJECT=s",
		"FENCEPOST_EVENT_TIME=2026-01-31T08:00:00Z",
		"FENCEPOST_EVENT_TYPE=t",
		"FENCEPOST_FENCE=40",
		"FENCEPOST_KEY=dlv-node-7",
		"FENCEPOST_OWNER=" + c.Owner,
		"FENCEPOST_ROUTE=all",
		"FENCEPOST_TARGET=cmd:k",
		"HOME=/home/node",
		"LANG=C.UTF-8",
		"PATH=/usr/local/bin:/usr/bin:/bin",
		"TOKEN=[redacted]",
		"TRACEPARENT=" + c.Trace().Parent,
	}, got.Env)
	// The program itself has the secret.
	r = newHandler(t, command.Config{
		Argv: []string{"sh", "-c", `test "$TOKEN" = token-canary`}, Env: map[string]string{"TOKEN": "env:COMMAND_TEST_TOKEN"},
	}).Handle(within(t, hang), c)
	require.Equal(t, edge.OutcomeSucceeded, r.Outcome, r.Detail)
}

func TestTraceReachesTheProgram(t *testing.T) {
	t.Parallel()
	c := claim("")
	c.Event.Trace = edge.Trace{Parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", State: "a=1"}
	r := shell(t, `echo "$TRACEPARENT $TRACESTATE"`).Handle(within(t, hang), c)
	require.Contains(t, r.Detail, c.Trace().Parent+" a=1")
	r = newHandler(t, command.Config{Argv: []string{"sh", "-c", `echo "<$TRACEPARENT>"`}, Env: map[string]string{"TRACEPARENT": "mine"}}).Handle(within(t, hang), c)
	require.Contains(t, r.Detail, "<mine>", "the configuration decides")
}

func TestPathCanBeConfigured(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mine"), []byte("#!/bin/sh\necho $PATH\n"), 0o700))
	r := newHandler(t, command.Config{Argv: []string{"mine"}, Env: map[string]string{"PATH": "relative:" + dir}}).Handle(within(t, hang), claim(""))
	require.Equal(t, edge.OutcomeSucceeded, r.Outcome, r.Detail)
	require.Contains(t, r.Detail, "relative:"+dir)
}

func TestR69_TenMebibytesOnStandardInput(t *testing.T) {
	t.Parallel()
	data := strings.Repeat("0123456789abcde\n", 10<<20/16)
	r := shell(t, "wc -c").Handle(within(t, hang), claim(data))
	require.Equal(t, edge.OutcomeSucceeded, r.Outcome, r.Detail)
	require.Equal(t, "10485760", strings.Fields(r.Detail)[3])

	for name, script := range map[string]string{
		"not read":       "true",
		"read in part":   "head -c 10 > /dev/null",
		"closed at once": "exec 0<&-; true",
	} {
		r := shell(t, script).Handle(within(t, hang), claim(data))
		require.Equal(t, edge.OutcomeSucceeded, r.Outcome, name+": "+r.Detail)
	}
}

func TestOutputIsCappedAndDrained(t *testing.T) {
	t.Parallel()
	r := shell(t, `head -c 20000000 /dev/zero | tr '\0' x; echo end >&2; exit 0`).Handle(within(t, hang), claim(""))
	require.Equal(t, edge.OutcomeSucceeded, r.Outcome)
	require.LessOrEqual(t, len(r.Detail), edge.MaxDetailBytes)
	require.Greater(t, len(r.Detail), edge.MaxDetailBytes-64)
	require.True(t, strings.HasSuffix(r.Detail, "\n[truncated]"))

	r = shell(t, `printf 'a\000b\377\033[31m'`).Handle(within(t, hang), claim(""))
	require.Equal(t, "exit status 0\na\\x00b\\xff\\x1b[31m", r.Detail)
	require.True(t, utf8.ValidString(r.Detail))
}

func TestProgramThatCannotStartBlocks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), mode))
		return path
	}
	for name, c := range map[string]struct {
		config command.Config
		code   string
	}{
		"no such path":        {command.Config{Argv: []string{"/no/such/program"}}, "program_not_found"},
		"no such name":        {command.Config{Argv: []string{"no-such-program-anywhere"}}, "program_not_found"},
		"below a file":        {command.Config{Argv: []string{file("plain", "", 0o700) + "/x"}}, "program_not_found"},
		"directory":           {command.Config{Argv: []string{dir}}, "program_not_executable"},
		"not executable":      {command.Config{Argv: []string{file("data", "#!/bin/sh\n", 0o600)}}, "program_not_executable"},
		"not a program":       {command.Config{Argv: []string{file("text", "just text\n", 0o700)}}, "program_not_executable"},
		"interpreter missing": {command.Config{Argv: []string{file("script", "#!/no/such/interpreter\n", 0o700)}}, "program_not_found"},
		"no such directory":   {command.Config{Argv: []string{"true"}, Dir: dir + "/absent"}, "directory_not_found"},
		"secret missing":      {command.Config{Argv: []string{"true"}, Env: map[string]string{"A": "file:" + dir + "/absent"}}, "secret_missing"},
	} {
		r := newHandler(t, c.config).Handle(within(t, hang), claim(""))
		require.Equal(t, edge.OutcomeBlocked, r.Outcome, name+": "+r.Detail)
		require.Equal(t, c.code, r.Code, name)
		require.NotEmpty(t, r.Detail, name)
	}
}

func TestCalledOffBeforeTheStart(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("shutting down"))
	mark := filepath.Join(t.TempDir(), "mark")
	r := shell(t, `touch "$1"`, mark).Handle(ctx, claim(""))
	require.Equal(t, edge.OutcomeDeferred, r.Outcome)
	require.Equal(t, "not_started", r.Code)
	require.Contains(t, r.Detail, "shutting down")
	require.NoFileExists(t, mark)

	over, done := context.WithTimeout(t.Context(), -time.Second)
	defer done()
	r = shell(t, `touch "$1"`, mark).Handle(over, claim(""))
	require.Equal(t, edge.OutcomeRetry, r.Outcome)
	require.NoFileExists(t, mark)
}

func TestNULInAnAttributeFails(t *testing.T) {
	t.Parallel()
	c := claim("")
	c.Event.Subject = "a\x00b"
	r := shell(t, "true").Handle(within(t, hang), c)
	require.Equal(t, edge.OutcomeFailed, r.Outcome)
	require.Equal(t, "environment_invalid", r.Code)
}

func TestNewRefusesUnsafeConfigurations(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config command.Config
		says   string
	}{
		"no program":        {command.Config{}, "argv"},
		"relative":          {command.Config{Argv: []string{"./x"}}, "absolute"},
		"NUL":               {command.Config{Argv: []string{"x", "a\x00"}}, "NUL"},
		"many arguments":    {command.Config{Argv: make([]string, command.MaxArguments+1)}, "argv"},
		"long arguments":    {command.Config{Argv: []string{"x", strings.Repeat("a", command.MaxArgumentBytes)}}, "limit"},
		"relative dir":      {command.Config{Argv: []string{"x"}, Dir: "a"}, "dir"},
		"reserved variable": {command.Config{Argv: []string{"x"}, Env: map[string]string{"FENCEPOST_OWNER": "canary"}}, "reserved"},
		"variable name":     {command.Config{Argv: []string{"x"}, Env: map[string]string{"A=B": "canary"}}, "name"},
		"secret reference":  {command.Config{Argv: []string{"x"}, Env: map[string]string{"A": "env:"}}, "reference"},
		"exit code":         {command.Config{Argv: []string{"x"}, RetryCodes: []int{256}}, "255"},
		"ambiguous code":    {command.Config{Argv: []string{"x"}, RetryCodes: []int{0}}, "both"},
		"grace":             {command.Config{Argv: []string{"x"}, Grace: 2 * time.Second}, "grace"},
	} {
		_, err := command.New(c.config)
		require.ErrorContains(t, err, c.says, name)
		require.NotContains(t, err.Error(), "canary")
	}
}
