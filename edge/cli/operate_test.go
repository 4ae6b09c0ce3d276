package cli_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/api"
	"fencepost/edge/cli"
)

const waiting = `
[[handler]]
name = "later"
kind = "command"
argv = ["/bin/sh", "-c", "exit 75"]
retry_delay_s = [3600]
[[handler]]
name = "broken"
kind = "command"
argv = ["/bin/sh", "-c", "exit 3"]
max_attempts = 1
[[route]]
name = "later"
type = "later.*"
handler = "later"
[[route]]
name = "broken"
type = "broken.*"
handler = "broken"
`

func (s *site) send(t *testing.T, eventType string, n int) (ids []string) {
	t.Helper()
	for i := range n {
		rc := decode[api.Receipt](t, s.ok(t, "send", "--type", eventType, "--subject", fmt.Sprint("key ", i), "--json"))
		ids = append(ids, rc.Deliveries[0].ID)
	}
	return ids
}

type report struct {
	Verb, Filter, Next     string
	DryRun                 bool `json:"dry_run"`
	Matched, Done, Skipped int
	Reasons                map[string]int
	Examples               []string
}

// bulk runs a verb with --json whatever its exit code.
func (s *site) bulk(t *testing.T, code int, args ...string) report {
	t.Helper()
	r := s.run(t, append(args, "--json")...)
	require.Equal(t, code, r.code, "%v: %s%s", args, r.out, r.err)
	return decode[report](t, r.out)
}

func TestBulk_FilterEchoCountAndSummary(t *testing.T) {
	t.Parallel()
	s := newSite(t, strings.Replace(waiting, "retry_delay_s = [3600]\n", "", 1))
	p := s.start(t)
	failed := s.send(t, "broken.x", 7)
	for _, id := range failed {
		s.await(t, id, edge.Failed)
	}
	dry := s.bulk(t, 0, "redrive", "--handler", "broken", "--dry-run")
	require.Equal(t, report{
		Verb: "redrive", Filter: "--state failed --handler broken --newest", DryRun: true, Matched: 7, Examples: dry.Examples,
	}, dry)
	require.Len(t, dry.Examples, 5)
	require.Contains(t, s.ok(t, "redrive", "--handler", "broken", "--dry-run"), "7 deliveries would be redriven: --state failed --handler broken --newest")

	r := s.run(t, "redrive", "--handler", "broken")
	require.Equal(t, api.ExitUsage, r.code, "no terminal and no --yes")
	require.Contains(t, r.err, "7 deliveries")
	require.Contains(t, r.err, "--dry-run")
	require.EqualValues(t, 7, s.counters(t)["state.failed"], "nothing was done")
	require.Zero(t, s.counters(t)["redrives"])

	done := s.bulk(t, 0, "redrive", "--handler", "broken", "--max", "3", "--yes")
	require.Equal(t, 3, done.Done)
	done = s.bulk(t, 0, "redrive", "--handler", "broken", "--yes", "--before", failed[4])
	require.Equal(t, 4, done.Done, "what was redriven is no longer the newest")
	for _, args := range [][]string{
		{"redrive"}, {"cancel", "--yes"}, {"cancel", "--dry-run"}, {"redrive", failed[0], "--handler", "broken"}, {"redrive", "--max", "-1", "--handler", "x"},
		{"cancel", "--state", "gone", "--yes"}, {"cancel", "--since", "yesterday", "--yes"}, {"cancel", "--since", "1h", "--until", "2h"},
	} {
		require.Equal(t, api.ExitUsage, s.run(t, args...).code, "%v", args)
	}
	require.Zero(t, s.bulk(t, 0, "cancel", "--handler", "nobody", "--yes").Matched)

	// What has moved since it was listed is left alone and counted.
	c, err := api.Dial(t.Context(), s.path("db.sock"))
	require.NoError(t, err)
	defer c.Close()
	answer, err := c.Bulk(t.Context(), api.BulkRequest{Verb: edge.BulkRedrive, Items: []api.BulkItem{{ID: failed[0], Version: 99}}})
	require.NoError(t, err)
	require.Equal(t, api.CodeConflict, answer.Results[0].Code)
	require.Zero(t, p.stop(t))
}

func (s *site) counters(t *testing.T) map[string]int64 {
	t.Helper()
	var status struct {
		Counters map[string]int64 `json:"counters"`
	}
	require.NoError(t, json.Unmarshal([]byte(s.ok(t, "status", "--json")), &status))
	return status.Counters
}

func TestRetryNow_AWaitingRetryIsTried(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	flag := s.path("flag")
	s.configure(t, strings.ReplaceAll(strings.Replace(waiting, "retry_delay_s = [3600]\n", "", 1), "exit 75", "test -e "+flag+" || exit 75"))
	p := s.start(t)
	id := s.send(t, "later.x", 1)[0]
	d := s.await(t, id, edge.Pending)
	require.NoError(t, os.WriteFile(flag, nil, 0o600))
	out := s.run(t, "retry-now", id)
	require.Contains(t, []int{0, api.ExitConflict}, out.code, "due by itself in a second: it may run already")
	s.await(t, id, edge.Succeeded)
	require.NotEmpty(t, d.Executions)
	r := s.run(t, "retry-now", id)
	require.Equal(t, api.ExitConflict, r.code)
	require.Contains(t, r.err, "redriven")
	require.Equal(t, api.ExitNotFound, s.run(t, "retry-now", "9999").code)
	require.Zero(t, p.stop(t))
}

func TestTail_ShowsChangesAndTheEndOfTheNode(t *testing.T) {
	t.Parallel()
	s := newSite(t, routes)
	p := s.start(t)
	tail := s.follow(t, "tail", "--json", "--handler", "record")
	cut := s.follow(t, "tail")
	tail.await(t, func() { s.ok(t, "send", "--type", "greeting.a", "--subject", "bob") }, `"state":"succeeded"`)
	cut.await(t, func() { s.ok(t, "send", "--type", "greeting.b", "--subject", "ann") }, "record:ann  succeeded")
	require.NoError(t, cut.cmd.Process.Signal(os.Interrupt))
	require.NoError(t, cut.cmd.Wait(), "Ctrl-C is a clean end: %s", cut.log)
	s.ok(t, "send", "--type", "fail.now")
	require.Zero(t, p.stop(t))
	require.Error(t, tail.cmd.Wait())
	require.Equal(t, api.ExitNoNode, tail.cmd.ProcessState.ExitCode(), tail.log.String())
	require.Contains(t, tail.log.String(), "no_node")
	require.NotContains(t, tail.log.String(), "stuck:", "the filter holds")
	require.Equal(t, api.ExitNoNode, s.run(t, "tail").code)
}

// follow starts a command as a process of its own.
func (s *site) follow(t *testing.T, args ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	p := &process{cmd: exec.Command(exe, append(args, "--config", s.path("fencepost.toml"))...), log: &lockedBuffer{}}
	p.cmd.Env = append(os.Environ(), asProgram+"=1")
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	return p
}

// await does something again and again until the output has a text.
func (p *process) await(t *testing.T, do func(), text string) {
	t.Helper()
	require.Eventually(t, func() bool {
		do()
		return strings.Contains(p.log.String(), text)
	}, 30*time.Second, 20*time.Millisecond, "%s", p.log)
}

// Reads of a node that is down come from its file, of which nothing changes.
func TestOffline_ReadsAndNeverWrites(t *testing.T) {
	t.Parallel()
	s := newSite(t, routes)
	r := s.run(t, "deliveries", "--offline")
	require.Equal(t, api.ExitNotFound, r.code)
	p := s.start(t)
	rc := decode[api.Receipt](t, s.ok(t, "send", "--type", "greeting.hello", "--subject", "bob", "--json"))
	id := rc.Deliveries[0].ID
	s.await(t, id, edge.Succeeded)
	r = s.run(t, "deliveries", "--offline")
	require.Equal(t, api.ExitConflict, r.code, "a node has it")
	require.Contains(t, r.err, "without --offline")
	p.kill(t)
	for _, ended := range []string{"killed", "stopped"} {
		require.Contains(t, s.run(t, "deliveries").err, "add --offline")
		before := s.sums(t)
		for _, args := range [][]string{
			{"deliveries"}, {"delivery", id}, {"explain", id}, {"events"}, {"event", "1"}, {"target", "list"}, {"handler", "list"}, {"status"},
		} {
			r := s.run(t, append(args, "--offline")...)
			require.Zero(t, r.code, "%s: %v: %s", ended, args, r.err)
			require.Contains(t, r.err, "no node runs")
			require.Zero(t, s.run(t, append(args, "--offline", "--json")...).code)
		}
		require.Contains(t, s.run(t, "deliveries", "--offline").out, "record:bob")
		require.Equal(t, before, s.sums(t), ended)
		p = s.start(t)
		require.Zero(t, p.stop(t))
	}
}

// sums are what is in the database and its log.
func (s *site) sums(t *testing.T) map[string][sha256.Size]byte {
	t.Helper()
	sums := map[string][sha256.Size]byte{}
	for _, name := range []string{"db", "db-wal"} {
		text, err := os.ReadFile(s.path(name))
		if err == nil {
			sums[name] = sha256.Sum256(text)
		}
	}
	require.NotEmpty(t, sums)
	return sums
}

// A crash leaves work running; the listing and what can be done agree.
func TestR16_R22_AfterAKillTheListAndTheActionAgree(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	begun := s.path("begun")
	s.configure(t, fmt.Sprintf("[[handler]]\nname = \"pay\"\nkind = \"command\"\nargv = [\"/bin/sh\", \"-c\", \"echo x >> %s; exec sleep 600\"]\n[[route]]\nname = \"pay\"\nhandler = \"pay\"\nkey = \"\"\n", begun))
	p := s.start(t)
	id := decode[api.Receipt](t, s.ok(t, "send", "--type", "pay", "--json")).Deliveries[0].ID
	require.Eventually(t, func() bool { _, err := os.Stat(begun); return err == nil }, 30*time.Second, 5*time.Millisecond)
	text := s.ok(t, "explain", id)
	require.Regexp(t, `Owner \w+ \(this node, process \d+\) holds the lease until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S+ \(in `, text)
	require.Contains(t, text, "If that owner dies")
	p.kill(t)
	r := s.run(t, "explain", id, "--offline")
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.out, "is running")
	require.Contains(t, r.out, "holds the lease until", "when and why, with the node down")

	p = s.start(t)
	s.await(t, id, edge.Blocked)
	require.Contains(t, s.ok(t, "deliveries", "--state", "running"), "no deliveries", "nothing shows as running")
	r = s.run(t, "cancel", id)
	require.Equal(t, api.ExitConflict, r.code)
	require.Contains(t, r.err, "fencepost resolve", "the refusal names what works")
	// Each printed choice is one whole command; the last is pasted into a shell.
	var command string
	for line := range strings.Lines(s.ok(t, "explain", id)) {
		if rest, ok := strings.CutPrefix(line, "    fencepost resolve "); ok {
			command = "resolve " + strings.TrimSpace(rest)
			require.NotContains(t, line, "|")
			require.NotContains(t, line, "<")
		}
	}
	require.NotEmpty(t, command)
	exe, err := os.Executable()
	require.NoError(t, err)
	sh := exec.Command("/bin/sh", "-c", `exec "`+exe+`" `+command)
	sh.Env = append(os.Environ(), asProgram+"=1", "FENCEPOST_CONFIG="+s.path("fencepost.toml"))
	out, err := sh.CombinedOutput()
	require.NoError(t, err, "%s: %s", command, out)
	s.await(t, id, edge.Failed)
	require.Contains(t, s.ok(t, "explain", id), "goes on in its stead")
	require.Zero(t, p.stop(t))
}

// hostile is text that a terminal might act on, or show in another order.
const hostile = "\x1b[31mred\x1b]0;title\x07 \r\x08 \u009b31m \u202egnirts\u2066 \x7f\u200f\u061c\ufeff\u2028 \U000e0041 end"

func TestT7_NoListingCommandLetsRawBytesThrough(t *testing.T) {
	t.Parallel()
	s := newSite(t, `
[[handler]]
name = "shout"
kind = "command"
argv = ["/bin/sh", "-c", "cat; printf '\\033[31m\\377\\233'; exit 9"]
max_attempts = 1
[[route]]
name = "all"
handler = "shout"
`)
	p := s.start(t)
	c, err := api.Dial(t.Context(), s.path("db.sock"))
	require.NoError(t, err)
	defer c.Close()
	evil := "\u202ecod.exe\u2066\u200f\u061c\ufeff\U000e0041" // what an attribute may have
	rc, err := c.Send(t.Context(), edge.Event{Source: "/s", Type: "t" + evil, Subject: evil, ID: "i" + evil, Data: []byte(hostile + "\xff\xfe")})
	require.NoError(t, err)
	id := rc.Deliveries[0].ID
	s.await(t, id, edge.Failed)
	exe, err := os.Executable()
	require.NoError(t, err)
	shownEscaped := 0
	for _, args := range [][]string{
		{"deliveries"}, {"delivery", id}, {"explain", id}, {"events"}, {"event", "1"}, {"target", "list"}, {"target"}, {"handler", "list"}, {"status"},
		{"deliveries", "--limit", "1", "--subject", evil}, {"target", "list", "--limit", "1"}, {"redrive", "--subject", evil, "--dry-run"},
		{"delivery", hostile}, {hostile}, {"help", hostile}, {"--" + hostile}, {"target", "resume", "shout:" + evil}, {"deliveries", "--state", hostile},
		{"deliveries", "--since", hostile}, {"handler", "pause", hostile}, {"completion", hostile}, {"status", "--config", hostile},
	} {
		for _, form := range [][]string{nil, {"--json"}} {
			cmd := exec.Command(exe, append(args, form...)...)
			cmd.Env = append(os.Environ(), asProgram+"=1", "FENCEPOST_CONFIG="+s.path("fencepost.toml"))
			out, _ := cmd.CombinedOutput() // some fail on purpose
			require.NotEmpty(t, out, "%q", args)
			harmless(t, out, fmt.Sprint(args, form))
			if bytes.Contains(out, []byte(`\u202e`)) {
				shownEscaped++
			}
		}
	}
	require.Greater(t, shownEscaped, 15, "it is shown, escaped")
	require.Zero(t, p.stop(t))
	harmless(t, []byte(p.log.String()), "log")
}

func TestT7_NorDoesALogInJSON(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	config := fmt.Sprintf("[node]\ndata = %q\nlog_format = \"json\"\n[http]\nlisten = \"127.0.0.1:0\"\n[[handler]]\nname = \"record\"\nkind = \"log\"\n[[route]]\nname = \"all\"\nhandler = \"record\"\n", s.path("db"))
	require.NoError(t, os.WriteFile(s.path("fencepost.toml"), []byte(config), 0o600))
	p := s.start(t)
	evil := "\u202e\u2066\u200f\ufeff"
	s.ok(t, "send", "--type", "t"+evil, "--subject", evil)
	require.Eventually(t, func() bool { return strings.Contains(p.log.String(), `\u202e`) }, 30*time.Second, 5*time.Millisecond, p.log)
	require.Zero(t, p.stop(t))
	harmless(t, []byte(p.log.String()), "log")
	for line := range strings.Lines(p.log.String()) {
		require.True(t, json.Valid([]byte(line)), line)
	}
}

// harmless requires that a terminal does nothing with out but show it.
func harmless(t *testing.T, out []byte, what string) {
	t.Helper()
	require.True(t, utf8.Valid(out), "%s: %q", what, out)
	for _, r := range string(out) {
		require.True(t, unicode.IsPrint(r) || r == '\n' || r == '\t', "%s: %U in %q", what, r, out)
	}
}

func TestTable_GivesWayToTheTerminal(t *testing.T) {
	t.Parallel()
	header := []string{"ID", "TARGET…", "CODE…"}
	rows := [][]string{{"1", "hello:" + strings.Repeat("bob", 20), "http_503"}, {"2", "日本語" + strings.Repeat("語", 30), ""}}
	var whole bytes.Buffer
	require.NoError(t, cli.TableForTest(&whole, 0, header, rows...))
	require.NotContains(t, whole.String(), "…", "no terminal: nothing is cut")
	for _, width := range []int{30, 40, 79} {
		var out bytes.Buffer
		require.NoError(t, cli.TableForTest(&out, width, header, rows...))
		require.Contains(t, out.String(), "…")
		for line := range strings.Lines(out.String()) {
			n := 0
			for _, r := range strings.TrimRight(line, "\n") {
				if n++; r > 0x2e80 {
					n++
				}
			}
			require.LessOrEqual(t, n, width, line)
		}
	}
}

func TestShellWord_IsOneWordToAShell(t *testing.T) {
	t.Parallel()
	for _, word := range []string{"plain", "hello:bob", "a b", "it's", "$(reboot)", "a;b", "*", "~", "", "new\nline", "\x1b[31m", "é", "\u202e", `back\slash`, "-rf", "#x", "a!b"} {
		out, err := exec.Command("bash", "-c", "printf %s "+cli.ShellWordForTest(word)).Output()
		require.NoError(t, err, word)
		require.Equal(t, word, string(out), cli.ShellWordForTest(word))
	}
}

// Every error says what to do next.
func TestErrors_SayWhatToDoNext(t *testing.T) {
	t.Parallel()
	s := newSite(t, routes)
	down := newSite(t, routes)
	p := s.start(t)
	rc := decode[api.Receipt](t, s.ok(t, "send", "--type", "greeting.x", "--json"))
	done := rc.Deliveries[0].ID
	s.await(t, done, edge.Succeeded)
	for _, c := range []struct {
		s    *site
		args []string
		code int
		next string
	}{
		{down, []string{"status"}, api.ExitNoNode, "fencepost serve"},
		{down, []string{"status"}, api.ExitNoNode, "--offline"},
		{down, []string{"cancel", "1"}, api.ExitNoNode, "fencepost serve"},
		{down, []string{"tail"}, api.ExitNoNode, "fencepost serve"},
		{down, []string{"deliveries", "--offline"}, api.ExitNotFound, "first start"},
		{s, []string{"status", "--offline"}, api.ExitConflict, "without --offline"},
		{s, []string{"delivery", "9999"}, api.ExitNotFound, "fencepost deliveries"},
		{s, []string{"explain", "dlv-aaaaaaaa-1"}, api.ExitNotFound, "fencepost deliveries"},
		{s, []string{"event", "9999"}, api.ExitNotFound, "fencepost events"},
		{s, []string{"delivery", "x1"}, api.ExitUsage, "dlv-"},
		{s, []string{"handler", "pause", "nobody"}, api.ExitNotFound, "fencepost handler list"},
		{s, []string{"target", "resume", "record:nobody"}, api.ExitNotFound, "fencepost target list"},
		{s, []string{"target", "resume", "nocolon"}, api.ExitUsage, "handler:key"},
		{s, []string{"redrive", done}, api.ExitConflict, "--again"},
		{s, []string{"resolve", done, "--as", "failed", "--version", "1", "--reason", "x"}, api.ExitConflict, "redriven"},
		{s, []string{"deliveries", "--limit", "5000"}, api.ExitUsage, "1 to 1000"},
		{s, []string{"deliveries", "--before", "x"}, api.ExitUsage, "dlv-"},
		{s, []string{"serve"}, api.ExitConflict, "stop it first"},
	} {
		r := c.s.run(t, c.args...)
		require.Equal(t, c.code, r.code, "%v: %s", c.args, r.err)
		require.Contains(t, r.err, c.next, "%v", c.args)
		require.NotContains(t, r.err, "goroutine")
	}
	require.Zero(t, p.stop(t))
}
