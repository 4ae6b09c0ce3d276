package service_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// canaries makes values that are found again wherever they turn up, also encoded.
type canaries struct {
	t      *testing.T
	values map[string]string // by what they are
}

func (c *canaries) make(what string) string {
	v := fmt.Sprintf("canary%02dQz%x", len(c.values), what)
	if len(v) > 40 {
		v = v[:40]
	}
	c.values[what] = v
	return v
}

// in says which canaries are in a text, in any usual form.
func (c *canaries) in(where string, text []byte) []string {
	var found []string
	for what, v := range c.values {
		raw := []byte(v)
		for form, coded := range map[string]string{
			"as it is": v, "base64": base64.StdEncoding.EncodeToString(raw)[:len(v)/3*4], "hex": hex.EncodeToString(raw), "escaped": url.QueryEscape(v),
		} {
			if bytes.Contains(text, []byte(coded)) {
				found = append(found, fmt.Sprintf("%s: %s (%s)", where, what, form))
			}
		}
	}
	return found
}

// evidence is all that a node shows or stores.
type evidence struct {
	s     *site
	c     *canaries
	found []string
	looks int
}

func (e *evidence) look(where, text string) {
	e.looks++
	e.found = append(e.found, e.c.in(where, []byte(text))...)
}

// command runs a command, as text and as JSON, and looks at what it prints.
func (e *evidence) command(args ...string) {
	_, out := e.s.run(args...)
	e.look(strings.Join(args, " "), out)
	_, out = e.s.run(append(args, "--json")...)
	e.look(strings.Join(args, " ")+" --json", out)
}

// files looks at every byte of every file but those that hold secrets on purpose.
func (e *evidence) files(when string) {
	require.NoError(e.s.t, filepath.WalkDir(e.s.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.HasSuffix(path, ".secret") || strings.HasSuffix(path, ".token") || path == e.s.config {
			return err
		}
		b, err := os.ReadFile(path)
		e.look(when+" "+filepath.Base(path), string(b))
		return err
	}))
}

// TestT19_P32_SecretsAreNowhere gives a node secrets of every kind that it knows,
// makes each of them be used, refused, echoed back, printed and fail, and then
// looks at all that the node shows or stores.
func TestT19_P32_SecretsAreNowhere(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	c := &canaries{t: t, values: map[string]string{}}
	file := func(what string) string {
		path := s.path(fmt.Sprintf("%d.secret", len(c.values)))
		require.NoError(t, os.WriteFile(path, []byte(c.make(what)+"\n"), 0o600))
		return "file:" + path
	}
	env := func(what string) string {
		name := fmt.Sprintf("CANARY_%d", len(c.values))
		s.env = append(s.env, name+"="+c.make(what))
		return "env:" + name
	}
	echo := startEcho(t)
	hook := func(name, path, keys string) string {
		return fmt.Sprintf("[[handler]]\nname = %q\nkind = \"webhook\"\nurl = \"http://%s/%s\"\nretry_schedule_s = [1]\nallow_addresses = [\"127.0.0.1\"]\n%s\n%s", name, echo, path, keys, route(name, name+".*"))
	}
	shell := func(name, script, keys string) string {
		return fmt.Sprintf("[[handler]]\nname = %q\nkind = \"command\"\nargv = [\"/bin/sh\", \"-c\", %q]\n%s\n%s", name, script, keys, route(name, name+".*"))
	}
	require.NoError(t, os.WriteFile(s.path("loose.secret"), []byte(c.make("secret in a file that others can read")), 0o644))
	require.NoError(t, os.Chmod(s.path("loose.secret"), 0o644))
	key := "whsec_" + base64.StdEncoding.EncodeToString([]byte(c.make("signing key inside whsec_")))
	s.env = append(s.env, "CANARY_MALFORMED=whsec_!"+c.make("signing key that is malformed"), "CANARY_KEY="+key, "UNRELATED_PASSWORD="+c.make("variable that nobody names"))

	s.write("{HTTP}" +
		hook("works", "200", fmt.Sprintf("secrets = [\"env:CANARY_KEY\", %q]\nheaders = { Authorization = %q, X-Api-Key = %q }", env("signing secret, variable"), env("Authorization header, variable"), file("X-Api-Key header, file"))) +
		hook("fails", "500", fmt.Sprintf("secrets = [%q]\nheaders = { X-Auth-Token = %q, Cookie = %q }", file("signing secret, file"), file("X-Auth-Token header, file"), env("Cookie header, variable"))) +
		hook("refuses", "410", fmt.Sprintf("secrets = [%q]", file("signing secret of a receiver that is gone"))) +
		hook("breaks", "hangup", fmt.Sprintf("headers = { Authorization = %q }", env("Authorization header of a broken connection"))) +
		hook("malformed", "200", "secrets = [\"env:CANARY_MALFORMED\"]") +
		hook("loose", "200", fmt.Sprintf("secrets = [\"file:%s\"]", s.path("loose.secret"))) +
		shell("prints", `echo "$API_TOKEN $DB_PASSWORD"; env; exit 0`, fmt.Sprintf("env = { API_TOKEN = %q, DB_PASSWORD = %q }", env("variable of a program, variable"), file("variable of a program, file"))) +
		shell("fails-loudly", `echo "password=$DB_PASSWORD" >&2; exit 3`, fmt.Sprintf("env = { DB_PASSWORD = %q }", file("variable of a program that fails"))) +
		shell("dies", `echo "$API_TOKEN"; kill -9 $$`, fmt.Sprintf("env = { API_TOKEN = %q }", env("variable of a program that is killed"))) +
		shell("tries-again", `echo "token: $API_TOKEN"; exit 75`, fmt.Sprintf("retry_base_s = 1\nenv = { API_TOKEN = %q }", env("variable of a program that tries again"))))
	s.start()
	e := &evidence{s: s, c: c}
	c.values["token of the node"] = s.token()

	// Callers' secrets: wrong tokens, in every place where one may put them.
	for what, set := range map[string]func(r *http.Request, v string){
		"wrong bearer token":  func(r *http.Request, v string) { r.Header.Set("Authorization", "Bearer "+v) },
		"basic password":      func(r *http.Request, v string) { r.SetBasicAuth("user", v) },
		"token in the query":  func(r *http.Request, v string) { r.URL.RawQuery = "type=works.x&access_token=" + v },
		"cookie":              func(r *http.Request, v string) { r.Header.Set("Cookie", "session="+v) },
		"Proxy-Authorization": func(r *http.Request, v string) { r.Header.Set("Proxy-Authorization", "Basic "+v) },
		"header beside a right one": func(r *http.Request, v string) {
			r.Header.Set("Authorization", "Bearer "+s.token())
			r.Header.Set("X-Api-Key", v)
		},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.address()+"/v1/events?type=works.x", strings.NewReader("{}"))
		require.NoError(t, err)
		set(req, c.make(what))
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		e.look("answer to "+what, string(b)+fmt.Sprint(resp.Header))
	}
	require.GreaterOrEqual(t, len(c.values), 20)

	names := []string{"works", "fails", "refuses", "breaks", "malformed", "loose", "prints", "fails-loudly", "dies", "tries-again"}
	for _, name := range names {
		s.ok("send", "--type", name+".x", "--subject", "s", "--data", "hello")
	}
	lacking := "" // what did not come yet
	await(t, "each was tried", func() bool {
		_, out := s.run("deliveries", "--json")
		lacking = ""
		for _, code := range []string{`"http_200"`, `"http_500"`, `"endpoint_gone"`, `"secret_invalid"`, `"secret_missing"`, `"exit_0"`, `"exit_3"`, `"outcome_unknown"`, `"exit_75"`} {
			if !strings.Contains(out, code) {
				lacking += code
			}
		}
		return lacking == "" && strings.Count(out, `"id"`) >= len(names)
	})
	require.NotZero(t, echo.seen(c.values["Authorization header, variable"]), "the receiver did get the secrets")
	for n := 1; n <= len(names)+1; n++ {
		e.command("delivery", fmt.Sprint(n))
		e.command("explain", fmt.Sprint(n))
	}
	for _, args := range [][]string{{"status"}, {"deliveries"}, {"handler", "list"}, {"target", "list"}, {"check", "--full"}, {"clock"}, {"version"}} {
		e.command(args...)
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/nothing"} {
		resp, err := http.Get("http://" + s.address() + path)
		require.NoError(t, err)
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		e.look(path, string(b))
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", s.cmd.Process.Pid))
	require.NoError(t, err)
	e.look("arguments", string(b))
	e.files("while it runs")

	// A crash dump: the stacks of all goroutines.
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGQUIT))
	<-s.done
	require.Contains(t, s.log.String(), "goroutine ")
	e.look("log at level debug, with a crash dump", s.log.String())
	e.files("after a crash")
	s.log = &buffer{}
	s.start() // recovery of what was under way
	e.look("log of the recovery", s.log.String())
	s.stop()
	e.files("after the end")
	require.Empty(t, e.found)
	require.Greater(t, e.looks, 60)

	// The search itself finds what is there.
	require.NotEmpty(t, c.in("x", []byte("a "+c.values["cookie"]+" b")))
	require.NotEmpty(t, c.in("x", []byte(hex.EncodeToString([]byte(c.values["cookie"])))))
}

// Secrets that were written where they do not belong are refused, and the refusal
// does not repeat them.
func TestT19_RefusalsRepeatNoSecret(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]string{
		"signing secret": `secrets = ["CANARY"]`, "header": `headers = { Authorization = "Bearer CANARY" }`, "cookie": `headers = { Cookie = "CANARY" }`,
		"password in the URL": "url = \"http://user:CANARY@127.0.0.1/\"", "variable": "kind = \"command\"\nargv = [\"true\"]\nenv = { API_TOKEN = \"CANARY\" }",
		"reference": `secrets = ["env:CANARY!"]`,
	} {
		if !strings.Contains(handler, "url =") && !strings.Contains(handler, "argv") {
			handler = "url = \"http://127.0.0.1/\"\n" + handler
		}
		if !strings.Contains(handler, "kind") {
			handler = "kind = \"webhook\"\n" + handler
		}
		c := &canaries{t: t, values: map[string]string{}}
		s := newSite(t, "")
		s.write("{HTTP}[[handler]]\nname = \"h\"\n" + strings.ReplaceAll(handler, "CANARY", c.make("refused")) + "\n")
		for _, args := range [][]string{{"serve"}, {"status"}, {"serve", "--json"}} {
			code, out := s.run(args...)
			require.Equal(t, 2, code, "%s: %s", name, out)
			require.Empty(t, c.in(name, []byte(out)))
		}
	}
}

// echo is a receiver that repeats what it got in its answer.
type echoReceiver struct {
	net.Listener
	got *buffer
}

func (e *echoReceiver) String() string        { return e.Addr().String() }
func (e *echoReceiver) seen(value string) int { return strings.Count(e.got.String(), value) }

func startEcho(t *testing.T) *echoReceiver {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	e := &echoReceiver{l, &buffer{}}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := fmt.Sprintf("%v\n", r.Header)
		_, _ = e.got.Write([]byte(text))
		status := map[string]int{"/200": 200, "/500": 500, "/410": 410}[r.URL.Path]
		if status == 0 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return e
}
