package node_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/api"
	"fencepost/edge/config"
	"fencepost/edge/node"
)

// write puts a configuration of the site into its file.
func (s site) write(t *testing.T, text string) {
	t.Helper()
	head := fmt.Sprintf("[node]\ndata = %q\nshutdown_grace_s = 1\n[http]\nlisten = \"127.0.0.1:0\"\nsocket = %q\n", s.path("db"), s.path("s"))
	if strings.HasPrefix(text, "[") && !strings.HasPrefix(text, "[[") {
		head = ""
	}
	require.NoError(t, os.WriteFile(s.path("f.toml"), []byte(head+text), 0o600))
}

// startFile starts a node from the site's file.
func (s site) startFile(t *testing.T, text string, o node.Options) *running {
	t.Helper()
	s.write(t, text)
	c, err := config.Load(s.path("f.toml"))
	require.NoError(t, err)
	return start(t, *c, o)
}

func logHandler(name string) string {
	return fmt.Sprintf("[[handler]]\nname = %q\nkind = \"log\"\n", name)
}

func routeTo(name, pattern, handler string) string {
	return fmt.Sprintf("[[route]]\nname = %q\ntype = %q\nhandler = %q\n", name, pattern, handler)
}

func TestReload_RoutesAndHandlersChange(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := s.startFile(t, logHandler("a")+routeTo("all", "*", "a"), node.Options{})
	r.await(t, r.send(t, "x", "1"), edge.Succeeded)
	s.write(t, logHandler("a")+logHandler("b")+routeTo("all", "*", "b"))
	answer, err := r.client.Reload(t.Context())
	require.NoError(t, err)
	require.Equal(t, api.Reloaded{File: s.path("f.toml"), Changes: []api.ConfigChange{
		{Key: "handler.b", What: "added", TakesEffect: "next claim"}, {Key: "route.all", What: "changed", TakesEffect: "reload"},
	}}, answer)
	d := r.await(t, r.send(t, "x", "1"), edge.Succeeded)
	require.Equal(t, "b:1", d.Target)

	s.write(t, logHandler("b")+routeTo("all", "*", "b"))
	_, err = r.client.Reload(t.Context())
	require.NoError(t, err)
	hs, err := r.client.Handlers(t.Context())
	require.NoError(t, err)
	require.Equal(t, edge.GateMissing, hs[0].Gate)
	require.Contains(t, r.log.String(), "key=handler.a change=removed")
	answer, err = r.client.Reload(t.Context())
	require.NoError(t, err)
	require.Empty(t, answer.Changes)
	r.sound(t)
	r.end(t)
}

// A reload that is refused says all that is wrong, and changes nothing.
func TestReload_WholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	good := logHandler("a") + routeTo("all", "*", "a")
	r := s.startFile(t, good, node.Options{})
	before, err := r.client.Handlers(t.Context())
	require.NoError(t, err)
	refused := func(text string, faults ...string) {
		t.Helper()
		s.write(t, text)
		_, err := r.client.Reload(t.Context())
		require.ErrorIs(t, err, edge.ErrInvalid)
		lines := strings.Split(err.Error(), "\n")
		require.Contains(t, lines[0], "nothing was changed")
		for _, f := range faults {
			require.Contains(t, err.Error(), f)
			require.Contains(t, strings.ReplaceAll(r.log.String(), `\"`, `"`), strings.Split(f, ";")[0])
		}
		require.Len(t, lines, 1+len(faults), "%v", err)
	}
	refused("[[handler]]\nname = \"b\"\nkind = \"lag\"\n[[route]]\nname = \"r\"\nhandler = \"c\"\n",
		`handler[1].kind: unknown value`, `route[1].handler: no handler is named "c"`)
	refused(good+"[", "toml.io")
	refused(fmt.Sprintf("[node]\ndata = %q\nlease_s = 30\nworkers = 5\nshutdown_grace_s = 1\n[http]\nlisten = \"127.0.0.1:1\"\nsocket = %q\n", s.path("db"), s.path("s"))+logHandler("b"),
		"f.toml:3:1: node.lease_s: is 30s, was 1m0s, which needs a restart; restart the node, or put the old value back",
		"f.toml:7:1: http.listen: is \"127.0.0.1:1\", was \"127.0.0.1:0\", which needs a restart")
	require.NoError(t, os.WriteFile(s.path("f.toml"), []byte("# nothing yet\n"), 0o600))
	_, err = r.client.Reload(t.Context())
	require.ErrorIs(t, err, edge.ErrInvalid)
	require.ErrorContains(t, err, "the file is empty")
	require.NoError(t, os.Remove(s.path("f.toml")))
	_, err = r.client.Reload(t.Context())
	require.ErrorIs(t, err, edge.ErrInvalid)
	require.ErrorContains(t, err, s.path("f.toml")+": cannot be read")

	s.write(t, good)
	require.NoError(t, os.Chmod(s.path("db.token"), 0o644))
	_, err = r.client.Reload(t.Context())
	require.ErrorIs(t, err, edge.ErrInvalid)
	require.ErrorContains(t, err, "http.token_file")
	require.NoError(t, os.Chmod(s.path("db.token"), 0o600))

	after, err := r.client.Handlers(t.Context())
	require.NoError(t, err)
	require.Equal(t, before, after)
	d := r.await(t, r.send(t, "x", "1"), edge.Succeeded)
	require.Equal(t, "a:1", d.Target)
	r.sound(t)
	r.end(t)

	n, err := node.New(s.config(t, "s", ""), node.Options{}) // "test.toml" is not there
	require.NoError(t, err)
	_, err = n.Reload(t.Context())
	require.ErrorIs(t, err, edge.ErrInvalid)
	n.Close()
}

func TestReload_TheDoorsAndTheLog(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var level slog.LevelVar
	r := s.startFile(t, "", node.Options{LogLevel: &level})
	ask := func(host, token, body string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.Addr()+"/v1/events?type=t", strings.NewReader(body))
		require.NoError(t, err)
		req.Host = host
		req.Header.Set("Authorization", "Bearer "+token)
		req.Close = true
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	first, err := os.ReadFile(s.path("db.token"))
	require.NoError(t, err)
	old := strings.TrimSpace(string(first))
	require.Equal(t, http.StatusMisdirectedRequest, ask("pi.example", old, "x"))
	require.Equal(t, http.StatusAccepted, ask("localhost", old, strings.Repeat("x", 2000)))
	const fresh = "a-new-token-of-32-characters-123"
	require.NoError(t, os.WriteFile(s.path("db.token"), []byte(fresh+"\n"), 0o600))
	require.Equal(t, http.StatusAccepted, ask("localhost", old, "x"), "not before the reload")
	s.write(t, fmt.Sprintf("[node]\ndata = %q\nlog_level = \"debug\"\n[http]\nlisten = \"127.0.0.1:0\"\nsocket = %q\nallowed_hosts = [\"pi.example\"]\nmax_body_bytes = 1024\n", s.path("db"), s.path("s")))
	_, err = r.client.Reload(t.Context())
	require.NoError(t, err)
	require.Equal(t, http.StatusUnauthorized, ask("localhost", old, "x"))
	require.Equal(t, http.StatusAccepted, ask("pi.example", fresh, "x"))
	require.Equal(t, http.StatusRequestEntityTooLarge, ask("localhost", fresh, strings.Repeat("x", 2000)))
	require.Equal(t, slog.LevelDebug, level.Level())
	require.NotContains(t, r.log.String(), fresh)
	r.end(t)
}

// Work under way ends by what it began with; the URL is the new one at the next
// claim.
func TestReload_TheURLChangesAtTheNextClaim(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	release := make(chan struct{})
	began := make(chan struct{}, 1)
	one := receiver(t, func() { began <- struct{}{}; <-release })
	var second atomic.Int32
	two := receiver(t, func() { second.Add(1) })
	hook := func(url string) string {
		return fmt.Sprintf("[[handler]]\nname = \"hook\"\nkind = \"webhook\"\nurl = %q\n", url) + routeTo("all", "*", "hook")
	}
	allow := "[node]\nallow_addresses = [\"127.0.0.0/8\"]\n"
	head := fmt.Sprintf("data = %q\n[http]\nlisten = \"\"\nsocket = %q\n", s.path("db"), s.path("s"))
	r := s.startFile(t, allow+head+hook(one), node.Options{})
	first, next := r.send(t, "t", "x"), r.send(t, "t", "x")
	<-began
	s.write(t, allow+head+hook(two))
	_, err := r.client.Reload(t.Context())
	require.NoError(t, err)
	close(release)
	r.await(t, first, edge.Succeeded)
	r.await(t, next, edge.Succeeded)
	require.EqualValues(t, 1, second.Load())
	r.sound(t)
	r.end(t)
}

// receiver is a webhook's other side.
func receiver(t *testing.T, got func()) (url string) {
	t.Helper()
	l := listen(t)
	srv := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { got() }), ReadHeaderTimeout: time.Minute}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return "http://" + l.Addr().String() + "/"
}

func TestReload_ASuppliedSecretUnblocks(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	url := receiver(t, func() {})
	r := s.startFile(t, fmt.Sprintf("[[handler]]\nname = \"hook\"\nkind = \"webhook\"\nallow_addresses = [\"127.0.0.1\"]\nurl = %q\nsecrets = [%q]\n", url, "file:"+s.path("secret"))+routeTo("all", "*", "hook"), node.Options{})
	id := r.send(t, "t", "x")
	r.await(t, id, edge.Blocked)
	require.NoError(t, os.WriteFile(s.path("secret"), []byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n"), 0o600))
	_, err := r.client.Reload(t.Context())
	require.NoError(t, err)
	r.await(t, id, edge.Succeeded)
	require.NotContains(t, r.log.String(), "MfKQ9r8GKYqrTwj")
	r.end(t)
}

// Sharers agree on handlers and routes: one that is alone may change them, one of
// several only what is each node's own.
func TestReload_AmongSharers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	one := s.startFile(t, logHandler("a")+routeTo("all", "*", "a"), node.Options{Share: true})
	two := start(t, s.config(t, "s2", logHandler("a")+routeTo("all", "*", "a")), node.Options{Share: true})
	changed := logHandler("a") + logHandler("b") + routeTo("all", "*", "b")
	s.write(t, changed)
	_, err := one.client.Reload(t.Context())
	require.ErrorIs(t, err, edge.ErrConflict)
	require.ErrorContains(t, err, "stop the others, reload this one")
	s.write(t, logHandler("a")+"concurrency = 3\n"+routeTo("all", "*", "a"))
	_, err = one.client.Reload(t.Context())
	require.NoError(t, err, "limits are each node's own")
	d := one.await(t, one.send(t, "t", "x"), edge.Succeeded)
	require.Equal(t, "a:x", d.Target)
	two.end(t)
	s.write(t, changed)
	_, err = one.client.Reload(t.Context())
	require.NoError(t, err)
	_, err = node.New(s.config(t, "s2", logHandler("a")+routeTo("all", "*", "a")), node.Options{Share: true})
	require.ErrorIs(t, err, edge.ErrConflict, "the old file no longer agrees")
	two = start(t, s.config(t, "s2", changed), node.Options{Share: true})
	d = two.await(t, two.send(t, "t", "y"), edge.Succeeded)
	require.Equal(t, "b:y", d.Target)
	two.sound(t)
	two.end(t)
	one.end(t)
}

// Reloads come while the node stops: each ends, with an answer.
func TestReload_WhileTheNodeStops(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := s.startFile(t, logHandler("a"), node.Options{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			if _, err := r.Reload(context.Background()); err != nil {
				return
			}
		}
	}()
	r.end(t)
	<-ended
	_, err := r.Reload(context.Background())
	require.ErrorIs(t, err, edge.ErrClosed)
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return l
}
