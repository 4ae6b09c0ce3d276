package cli_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fencepost/edge"
	"fencepost/edge/api"

	"github.com/stretchr/testify/require"
)

const routes = `
[[handler]]
name = "record"
kind = "log"
[[handler]]
name = "stuck"
kind = "command"
argv = ["/bin/sh", "-c", "exit 3"]
max_attempts = 1
[[route]]
name = "greetings"
type = "greeting.*"
handler = "record"
[[route]]
name = "failures"
type = "fail.*"
handler = "stuck"
`

func TestNode_ADayOfAnOperator(t *testing.T) {
	t.Parallel()
	s := newSite(t, routes)
	p := s.start(t)

	rc := decode[api.Receipt](t, s.ok(t, "send", "--type", "greeting.hello", "--subject", "bob", "--data", `{"b":1,"a":1e400}`, "--json"))
	require.Len(t, rc.Deliveries, 1)
	require.Equal(t, "record:bob", rc.Deliveries[0].Target)
	d := s.await(t, rc.Deliveries[0].ID, edge.Succeeded)
	require.Equal(t, 17, d.Event.DataBytes)
	require.Equal(t, "application/json", d.Event.Attributes["datacontenttype"])
	number := rc.Deliveries[0].ID[strings.LastIndex(rc.Deliveries[0].ID, "-")+1:]
	require.Contains(t, s.ok(t, "delivery", number), "greeting.hello")
	require.Contains(t, s.ok(t, "explain", number), "never changes again")
	require.Contains(t, s.ok(t, "send", "--type", "nobody.cares"), "no route")
	require.Contains(t, s.ok(t, "deliveries", "--state", "succeeded"), "record:bob")
	require.Contains(t, s.ok(t, "deliveries", "--state", "held"), "no deliveries")

	require.Contains(t, s.ok(t, "send", "--type", "fail.now", "--key", "k1"), "stuck:")
	failed := decode[api.DeliveryPage](t, s.ok(t, "deliveries", "--handler", "stuck", "--json")).Deliveries[0].ID
	s.await(t, failed, edge.Failed)
	next := decode[api.Delivery](t, s.ok(t, "redrive", failed, "--json"))
	require.Equal(t, failed, next.RedriveOf)
	r := s.run(t, "redrive", failed)
	require.Equal(t, api.ExitConflict, r.code)
	require.Contains(t, r.err, "fencepost: ")
	require.Contains(t, s.ok(t, "send", "--type", "fail.now", "--key", "k1"), "existing")
	require.Equal(t, api.ExitConflict, s.run(t, "send", "--type", "fail.now", "--key", "k1", "--data", "other").code)

	require.Contains(t, s.ok(t, "handler", "pause", "record", "--for", "1h"), "paused_by_operator")
	waiting := decode[api.Receipt](t, s.ok(t, "send", "--type", "greeting.x", "--json")).Deliveries[0].ID
	require.Contains(t, s.ok(t, "explain", waiting), "handler resume record")
	require.NotContains(t, s.ok(t, "cancel", waiting), "already")
	require.Contains(t, s.ok(t, "cancel", waiting), "it is cancelled already: nothing to call off")
	require.Contains(t, s.ok(t, "cancel", number), "it is succeeded already: nothing to call off")
	require.Equal(t, edge.Cancelled, decode[api.Delivery](t, s.ok(t, "cancel", waiting, "--json")).State)
	resumed := s.ok(t, "handler", "resume", "record")
	require.Contains(t, resumed, "on")
	require.Contains(t, resumed, "retries are taken when they are due; to try them at once: fencepost retry-now --handler record")
	require.Contains(t, s.ok(t, "handler", "list"), "stuck")
	require.Contains(t, s.ok(t, "target", "list"), "record:bob")
	require.Equal(t, s.ok(t, "handler", "list"), s.ok(t, "handler"))
	require.Equal(t, s.ok(t, "target", "list"), s.ok(t, "target"))
	require.Equal(t, api.ExitConflict, s.run(t, "target", "resume", "record:bob").code)

	st := decode[map[string]any](t, s.ok(t, "status", "--json"))
	require.Equal(t, true, st["ready"])
	require.NotEmpty(t, st["counters"])
	require.Contains(t, s.ok(t, "status"), st["node"])
	require.Contains(t, s.ok(t, "clock", "confirm"), "ready")
	require.Contains(t, s.ok(t, "check", "--full"), "ok")

	require.Zero(t, p.stop(t), p.log)
	require.Contains(t, s.ok(t, "check", "--full"), "ok", "now on the file")
	require.Equal(t, api.CheckReport{Violations: []api.Violation{}}, decode[api.CheckReport](t, s.ok(t, "check", "--json")))
	require.Equal(t, api.ExitNoNode, s.run(t, "status").code)
}

func TestNode_AOnceCommandThatWasCutAsksAPerson(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	begun := s.path("begun")
	s.configure(t, fmt.Sprintf(`
[[handler]]
name = "pay"
kind = "command"
argv = ["/bin/sh", "-c", "echo x >> %s; exec sleep 600"]
[[route]]
name = "pay"
handler = "pay"
key = ""
`, begun))
	p := s.start(t)
	first := decode[api.Receipt](t, s.ok(t, "send", "--type", "pay", "--json")).Deliveries[0].ID
	second := decode[api.Receipt](t, s.ok(t, "send", "--type", "pay", "--json")).Deliveries[0].ID
	require.Eventually(t, func() bool { _, err := os.Stat(begun); return err == nil }, 30*time.Second, 5*time.Millisecond)
	p.kill(t)

	p = s.start(t)
	d := s.await(t, first, edge.Blocked)
	require.Equal(t, edge.CodeLostAfterStart, d.Delivery.Code)
	text := s.ok(t, "explain", first)
	require.Contains(t, text, "--version "+fmt.Sprint(d.Delivery.Version))
	require.Equal(t, edge.Pending, s.await(t, second, edge.Pending).Delivery.State, "the line waits behind it")
	require.Contains(t, s.ok(t, "target", "list", "--stalled"), "blocked")

	r := s.run(t, "resolve", first, "--as", "succeeded", "--reason", "the bank says so")
	require.Equal(t, api.ExitUsage, r.code, "no version: nobody looked")
	r = s.run(t, "resolve", first, "--as", "succeeded", "--version", "999", "--reason", "the bank says so")
	require.Equal(t, api.ExitConflict, r.code)
	require.Equal(t, api.ExitUsage, s.run(t, "resolve", first, "--as", "done", "--version", "1", "--reason", "x").code)
	require.Equal(t, api.ExitUsage, s.run(t, "resolve", first, "--as", "failed", "--version", "1").code)
	require.Contains(t, s.ok(t, "resolve", first, "--as", "succeeded", "--version", fmt.Sprint(d.Delivery.Version), "--reason", "the bank says so"), "succeeded")
	s.await(t, second, edge.Running)
	out := s.ok(t, "cancel", second)
	require.Contains(t, out, "if the outcome is unknown it is blocked, and its line with it, until a person resolves it")
	s.await(t, second, edge.Blocked)
	require.Equal(t, api.ExitConflict, s.run(t, "redrive", first).code, "succeeded: only with --again")

	began := time.Now()
	require.Zero(t, p.stop(t), p.log)
	require.Less(t, time.Since(began), 5*time.Second+20*time.Second, "grace, and a hang guard for slow machines")
	require.Contains(t, p.log.String(), "a person must act")
	require.Contains(t, s.ok(t, "check"), "ok")
}

// A person in another directory, such as cron's, means the same node.
func TestNode_RelativePathsAreThoseOfTheConfiguration(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	text := "[node]\ndata = \"host.db\"\n[http]\nlisten = \"\"\n"
	require.NoError(t, os.WriteFile(s.path("fencepost.toml"), []byte(text), 0o600))
	r := s.run(t, "status")
	require.Equal(t, api.ExitNoNode, r.code)
	require.Contains(t, r.err, "no node is running at "+s.path("host.db.sock"))
	require.Contains(t, s.run(t, "check").err, s.path("host.db"))
}

func TestDemo_SaysWhatToDoWhenItsPortIsTaken(t *testing.T) {
	t.Parallel()
	if l, err := net.Listen("tcp", "127.0.0.1:9000"); err == nil {
		defer l.Close()
	} // else it is taken already, which is what is wanted
	s := newSite(t, "")
	r := s.run(t, "demo")
	require.NotZero(t, r.code)
	require.Contains(t, r.err, "the webhook of the example goes to 127.0.0.1:9000: stop what listens there")
	require.NotContains(t, r.err, "--addr")

	r = s.run(t, "listen", "--addr", "127.0.0.1:9000")
	require.NotZero(t, r.code)
	require.Contains(t, r.err, "--addr")
}

func TestServe_SecondNodeOnOneFileIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	p := s.start(t)
	r := s.run(t, "serve")
	require.Equal(t, api.ExitConflict, r.code)
	require.Contains(t, r.err, fmt.Sprintf("process %d", p.cmd.Process.Pid))
	require.Contains(t, s.ok(t, "check"), "ok", "the first one still answers")
	p.kill(t)
	require.Zero(t, s.start(t).stop(t), "a killed holder leaves nothing to clean up")
}

func TestServe_RefusesBadConfigurations(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	for name, c := range map[string]struct {
		config string
		want   string
		code   int
	}{
		"unknown key":  {"sokcet = \"x\"\n", "fencepost.toml:7", api.ExitUsage},
		"no TOML":      {"[[\n", "fencepost.toml:7", api.ExitUsage},
		"no handler":   {"[[route]]\nname = \"a\"\nhandler = \"b\"\n", "handler", api.ExitUsage},
		"no directory": {"token_file = \"/nowhere/token\"\n", "token_file", api.ExitUsage},
		"long socket":  {"socket = \"/tmp/" + strings.Repeat("x", 200) + "\"\n", "shorter", api.ExitUsage},
	} {
		s.configure(t, c.config)
		r := s.run(t, "serve")
		require.Equal(t, c.code, r.code, "%s: %s", name, r.err)
		require.Contains(t, r.err, c.want, name)
		require.NotContains(t, r.err, "goroutine")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	text := fmt.Sprintf("[node]\ndata = %q\n[http]\nlisten = %q\n", s.path("db"), l.Addr())
	require.NoError(t, os.WriteFile(s.path("fencepost.toml"), []byte(text), 0o600))
	r := s.run(t, "serve")
	require.Equal(t, api.ExitConflict, r.code, r.err)
	require.Contains(t, r.err, "http.listen")
	require.Contains(t, s.ok(t, "check"), "ok", "nothing stayed open")

	require.NoError(t, os.Chmod(s.path("db.token"), 0o644))
	r = s.run(t, "serve")
	require.Equal(t, api.ExitUsage, r.code)
	require.Contains(t, r.err, "chmod 600")
}

func TestR62_AnEmptyConfigurationIsValid(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	p := s.start(t)
	require.Contains(t, s.ok(t, "handler", "list"), "no handlers")
	require.Contains(t, s.ok(t, "target", "list"), "no targets")
	require.Contains(t, s.ok(t, "send", "--type", "t"), "0 targets")
	require.Zero(t, p.stop(t))
}

func TestUsage_ExitCodesAndHints(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	empty := newSite(t, "")
	require.NoError(t, os.Remove(empty.path("fencepost.toml")))
	for _, c := range []struct {
		s    *site
		args []string
		code int
		hint string
	}{
		{s, []string{"fly"}, api.ExitUsage, "--help"},
		{s, []string{"send"}, api.ExitUsage, "type"},
		{s, []string{"send", "--type", "t", "--id", "a", "--key", "b"}, api.ExitUsage, "--help"},
		{s, []string{"send", "--type", "t", "--id", ""}, api.ExitUsage, "empty"},
		{s, []string{"send", "--type", "t", "--id", " "}, api.ExitUsage, "id: must not be empty"},
		{s, []string{"send", "--type", "t", "--file", "/nowhere"}, api.ExitUsage, "/nowhere"},
		{s, []string{"send", "--type", "t", "--ext", "x"}, api.ExitUsage, "name=value"},
		{s, []string{"send", "--type", "t", "--nope"}, api.ExitUsage, "--help"},
		{s, []string{"serve", "extra"}, api.ExitUsage, "--help"},
		{s, []string{"deliveries", "--limit", "x"}, api.ExitUsage, "--help"},
		{s, []string{"delivery"}, api.ExitUsage, "id"},
		{s, []string{"target"}, api.ExitNoNode, "no node is running at " + s.path("db.sock")},
		{s, []string{"clock"}, api.ExitUsage, "clock --help"},
		{s, []string{"target", "fly"}, api.ExitUsage, "--help"},
		{s, []string{"target", "skip", "a:b"}, api.ExitUsage, "--version"},
		{s, []string{"handler", "pause", "x", "--for", "-1s"}, api.ExitUsage, "negative"},
		{s, []string{"handler", "pause", "x", "--for", "9999999h"}, api.ExitUsage, "--for"},
		{s, []string{"handler", "resume", ""}, api.ExitUsage, "name of one handler"},
		{s, []string{"bench", "--rounds", "0"}, api.ExitUsage, "--rounds"},
		{s, []string{"bench", "--n", "-1"}, api.ExitUsage, "--n"},
		{s, []string{"bench", "--large", "0"}, api.ExitUsage, "--large"},
		{s, []string{"status"}, api.ExitNoNode, "fencepost serve"},
		{s, []string{"send", "--type", "t"}, api.ExitNoNode, "fencepost serve"},
		{s, []string{"check"}, api.ExitNotFound, "first start"},
		{empty, []string{"serve"}, api.ExitUsage, "config.example.toml"},
		{empty, []string{"status"}, api.ExitUsage, "FENCEPOST_CONFIG"},
	} {
		r := c.s.run(t, c.args...)
		require.Equal(t, c.code, r.code, "%v: %s", c.args, r.err)
		require.Contains(t, r.err, c.hint, c.args)
		require.True(t, strings.HasPrefix(r.err, "fencepost: "), r.err)
		require.Empty(t, r.out, c.args)

		r = c.s.run(t, append(c.args, "--json")...)
		require.Equal(t, c.code, r.code)
		require.EqualValues(t, c.code, decode[map[string]any](t, r.err)["exit"], "%v", c.args)
	}
	require.NoFileExists(t, s.path("db"), "asking makes no database")
}

func TestT7_NothingFromOutsideReachesTheTerminal(t *testing.T) {
	t.Parallel()
	s := newSite(t, `
[[handler]]
name = "shout"
kind = "command"
argv = ["/bin/sh", "-c", "cat; exit 9"]
[[route]]
name = "all"
handler = "shout"
`)
	p := s.start(t)
	evil := "\x1b[31mred\x1b]0;title\x07 \r\x08 \u009b31m \u202Egnirts\u2066 \x7f\nline"
	c, err := api.Dial(t.Context(), s.path("db.sock"))
	require.NoError(t, err)
	defer c.Close()
	rc, err := c.Send(t.Context(), edge.Event{Source: "/s", Type: "t", Subject: "\u202Etxt.exe \u2066", Data: []byte(evil)})
	require.NoError(t, err)
	id := rc.Deliveries[0].ID
	s.await(t, id, edge.Failed)
	out := s.ok(t, "delivery", id) + s.ok(t, "deliveries") + s.ok(t, "explain", id) + s.ok(t, "target", "list") + s.ok(t, "status")
	out += s.run(t, "delivery", "\x1b[31m\u202e").err + s.run(t, evil).err + s.run(t, "target", "resume", "shout:"+evil).err
	require.Contains(t, out, `\x1b`, "shown, escaped")
	for _, r := range out {
		require.False(t, r < ' ' && r != '\n' || r >= 0x7f && r <= 0x9f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069, "%U", r)
	}
	require.Zero(t, p.stop(t))
	require.NotContains(t, p.log.String(), "\x1b")
}

func TestSend_DataFromEverywhere(t *testing.T) {
	t.Parallel()
	s := newSite(t, "[[handler]]\nname = \"out\"\nkind = \"command\"\nargv = [\"/bin/cat\"]\n[[route]]\nname = \"all\"\nhandler = \"out\"\n")
	p := s.start(t)
	file := s.path("data")
	require.NoError(t, os.WriteFile(file, []byte("from a file\n"), 0o600))
	big := strings.Repeat("x", edge.MaxDataBytes+1)
	for name, c := range map[string]struct {
		args        []string
		in          string
		contentType string
		want        string
	}{
		"text":  {[]string{"--data", "plain"}, "", "text/plain; charset=utf-8", "plain"},
		"json":  {[]string{"--data", `{"a":1,"a":2}`}, "", "application/json", `{"a":1,"a":2}`},
		"file":  {[]string{"--file", file}, "", "text/plain; charset=utf-8", `from a file`},
		"stdin": {[]string{"--file", "-"}, "piped", "text/plain; charset=utf-8", "piped"},
		"type":  {[]string{"--file", "-", "--content-type", "a/b"}, "\x00\x01", "a/b", `\x00\x01`},
		"bytes": {[]string{"--file", "-"}, "\xff\x00", "application/octet-stream", `\xff`},
		"none":  {nil, "not read", "", "exit status 0"},
	} {
		r := s.runWith(t, strings.NewReader(c.in), append([]string{"send", "--type", "t", "--json", "--ext", "name=" + name}, c.args...)...)
		require.Zero(t, r.code, r.err)
		d := s.await(t, decode[api.Receipt](t, r.out).Deliveries[0].ID, edge.Succeeded)
		require.Equal(t, c.contentType, d.Event.Attributes["datacontenttype"], name)
		require.Equal(t, name, d.Event.Attributes["name"])
		require.Equal(t, "/cli", d.Event.Attributes["source"])
		require.Contains(t, d.Executions[0].Detail, c.want, name)
	}
	r := s.runWith(t, strings.NewReader(big), "send", "--type", "t", "--file", "-")
	require.Equal(t, api.ExitUsage, r.code)
	require.Contains(t, r.err, "1048576")
	require.Zero(t, p.stop(t))
}

func TestNode_TokenOpensTheListener(t *testing.T) {
	t.Parallel()
	s := newSite(t, routes)
	p := s.start(t)
	st := decode[map[string]any](t, s.ok(t, "status", "--json"))
	token, err := os.ReadFile(s.path("db.token"))
	require.NoError(t, err)
	post := func(token string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+st["listen"].(string)+"/v1/events?type=greeting.web", strings.NewReader("hi"))
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		return resp.StatusCode
	}
	require.Equal(t, http.StatusAccepted, post(strings.TrimSpace(string(token))))
	require.Equal(t, http.StatusUnauthorized, post("wrong"))
	require.Zero(t, p.stop(t))
	require.NotContains(t, p.log.String(), strings.TrimSpace(string(token)))
	for _, name := range []string{"db", "db.token", "db.lock"} {
		fi, err := os.Stat(s.path(name))
		require.NoError(t, err)
		require.Zero(t, fi.Mode().Perm()&0o077, "%s is ours alone", name)
	}
	left, err := filepath.Glob(s.path("db.*"))
	require.NoError(t, err)
	require.NotContains(t, left, s.path("db.sock"))
}

func TestSchema_IsTheOneOfTheStore(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	require.Contains(t, s.ok(t, "schema"), "CREATE TABLE deliveries")
	require.NotEmpty(t, decode[map[string]any](t, s.ok(t, "schema", "--json"))["schema"])
	require.NotEmpty(t, decode[map[string]string](t, s.ok(t, "version", "--json"))["version"])
	require.Contains(t, s.ok(t, "version"), "fencepost")
}
