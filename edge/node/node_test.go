package node_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"fencepost/edge"
	"fencepost/edge/api"
	"fencepost/edge/config"
	"fencepost/edge/node"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// site is a directory with a configuration.
type site struct{ dir string }

func newSite(t *testing.T) site {
	t.Helper()
	dir, err := os.MkdirTemp("", "fp") // short: the path of a socket is limited
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return site{dir}
}

func (s site) path(name string) string { return filepath.Join(s.dir, name) }

// config is a configuration of this site; name tells apart those of several
// nodes on one database.
func (s site) config(t *testing.T, name, text string) config.Config {
	t.Helper()
	head := fmt.Sprintf("[node]\ndata = %q\nallow_root_commands = true\nshutdown_grace_s = 1\n[http]\nlisten = \"127.0.0.1:0\"\nsocket = %q\n", s.path("db"), s.path(name))
	c, err := config.Parse("test.toml", []byte(head+text))
	require.NoError(t, err)
	return *c
}

// running is a node that runs.
type running struct {
	*node.Node
	log    *lockedBuffer
	client *api.Client
	stop   context.CancelFunc
	done   chan error
	sum    edge.Summary
}

func start(t *testing.T, c config.Config, o node.Options) *running {
	t.Helper()
	r := &running{log: &lockedBuffer{}, done: make(chan error, 1)}
	o.Logger = slog.New(slog.NewTextHandler(r.log, nil))
	n, err := node.New(c, o)
	require.NoError(t, err)
	r.Node = n
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	go func() {
		var err error
		r.sum, err = n.Run(ctx)
		r.done <- err
	}()
	r.client, err = api.Dial(t.Context(), c.HTTP.Socket)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return r.client.Ready(t.Context()) == nil }, 30*time.Second, 5*time.Millisecond)
	t.Cleanup(func() { r.client.Close(); cancel() })
	return r
}

// end stops the node and wants a clean end.
func (r *running) end(t *testing.T) {
	t.Helper()
	r.client.Close()
	r.stop()
	require.NoError(t, <-r.done)
}

func (r *running) send(t *testing.T, kind, subject string) string {
	t.Helper()
	rc, err := r.client.Send(t.Context(), edge.Event{Source: "/test", Type: kind, Subject: subject, Data: []byte("hi")})
	require.NoError(t, err)
	require.Len(t, rc.Deliveries, 1)
	return rc.Deliveries[0].ID
}

func (r *running) await(t *testing.T, id string, want edge.State) api.Delivery {
	t.Helper()
	var d api.DeliveryDetail
	require.Eventually(t, func() bool {
		var err error
		d, err = r.client.Delivery(t.Context(), id)
		require.NoError(t, err)
		return d.Delivery.State == want
	}, 30*time.Second, 5*time.Millisecond, "%s is not %s", id, want)
	return d.Delivery
}

func (r *running) sound(t *testing.T) {
	t.Helper()
	found, err := r.client.Check(t.Context(), true)
	require.NoError(t, err)
	require.Empty(t, found)
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestRun_FromTheNetworkToAWebhook(t *testing.T) {
	t.Parallel()
	got := make(chan string, 1)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	receiver := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- r.Header.Get("Webhook-Id") + " " + r.Header.Get("Ce-Type") + " " + string(body)
	})}
	go func() { _ = receiver.Serve(l) }()
	t.Cleanup(func() { _ = receiver.Close() })

	s := newSite(t)
	r := start(t, s.config(t, "s", fmt.Sprintf("[[handler]]\nname = \"hook\"\nkind = \"webhook\"\nurl = \"http://%s/\"\nallow_addresses = [\"127.0.0.1\"]\n[[route]]\nname = \"all\"\nhandler = \"hook\"\n", l.Addr())), node.Options{})
	token, err := os.ReadFile(s.path("db.token"))
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.Addr()+"/v1/events?type=greeting.hello", strings.NewReader("{\"b\":1, \"a\":2}\n"))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusAccepted, resp.StatusCode)
	id := edge.FormatID(edge.KindDelivery, r.Store().Node(), 1)
	require.Equal(t, id+" greeting.hello {\"b\":1, \"a\":2}\n", <-got)
	r.await(t, id, edge.Succeeded)
	r.sound(t)
	r.end(t)
}

func TestRun_StopsInStages(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	began, release := s.path("began"), s.path("release")
	c := s.config(t, "s", fmt.Sprintf(`
[[handler]]
name = "slow"
kind = "command"
argv = ["/bin/sh", "-c", "touch %s; while ! test -e %s; do sleep 0.01; done"]
[[route]]
name = "all"
handler = "slow"
`, began, release))
	c.Node.ShutdownGrace = 30 * time.Second
	r := start(t, c, node.Options{})
	running, waiting := r.send(t, "a", "x"), r.send(t, "b", "x")
	require.Eventually(t, func() bool { _, err := os.Stat(began); return err == nil }, 30*time.Second, 5*time.Millisecond)
	addr := r.Addr()
	r.stop()
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	}, 30*time.Second, 5*time.Millisecond, "producers are turned away at once")
	st, err := r.client.Status(t.Context())
	require.NoError(t, err, "the operator still gets answers while work ends")
	require.False(t, st.Ready)
	_, err = r.client.Send(t.Context(), edge.Event{Source: "/s", Type: "late"})
	require.ErrorIs(t, err, edge.ErrClosed)
	require.NoError(t, os.WriteFile(release, nil, 0o600))
	r.client.Close()
	require.NoError(t, <-r.done)
	require.EqualValues(t, 1, r.sum.Ended)
	require.Zero(t, r.sum.Unknown)

	r = start(t, c, node.Options{})
	r.await(t, running, edge.Succeeded)
	r.await(t, waiting, edge.Succeeded)
	r.sound(t)
	r.end(t)
}

func TestQ11_AHandlerThatLeftTheConfigurationKeepsItsWork(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const both = "[[handler]]\nname = \"a\"\nkind = \"log\"\n[[handler]]\nname = \"b\"\nkind = \"log\"\n[[route]]\nname = \"a\"\ntype = \"a\"\nhandler = \"a\"\n[[route]]\nname = \"b\"\ntype = \"b\"\nhandler = \"b\"\n"
	r := start(t, s.config(t, "s", both), node.Options{})
	_, err := r.client.PauseHandler(t.Context(), "b", 0)
	require.NoError(t, err)
	id := r.send(t, "b", "x")
	_, err = r.client.ResumeTarget(t.Context(), "b:x")
	require.ErrorIs(t, err, edge.ErrConflict)
	r.end(t)

	r = start(t, s.config(t, "s", "[[handler]]\nname = \"a\"\nkind = \"log\"\n[[route]]\nname = \"a\"\nhandler = \"a\"\n"), node.Options{})
	r.await(t, r.send(t, "a", "x"), edge.Succeeded)
	require.Equal(t, edge.Pending, r.await(t, id, edge.Pending).State)
	x, err := r.client.Explain(t.Context(), id)
	require.NoError(t, err)
	require.Contains(t, strings.Join(x.Text, " "), "configuration")
	r.sound(t)
	r.end(t)

	r = start(t, s.config(t, "s", both), node.Options{})
	_, err = r.client.ResumeHandler(t.Context(), "b")
	require.NoError(t, err)
	r.await(t, id, edge.Succeeded)
	r.end(t)
}

func TestRun_ASuppliedSecretUnblocks(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	receiver := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	go func() { _ = receiver.Serve(l) }()
	t.Cleanup(func() { _ = receiver.Close() })

	s := newSite(t)
	const canary = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	c := s.config(t, "s", fmt.Sprintf("[[handler]]\nname = \"hook\"\nkind = \"webhook\"\nurl = \"http://%s/\"\nallow_addresses = [\"127.0.0.1\"]\nsecrets = [%q]\n[[route]]\nname = \"all\"\nhandler = \"hook\"\n", l.Addr(), "file:"+s.path("secret")))
	r := start(t, c, node.Options{})
	require.Contains(t, r.log.String(), "a secret is missing")
	id := r.send(t, "t", "x")
	d := r.await(t, id, edge.Blocked)
	require.Equal(t, "secret_missing", d.Code)
	before, err := r.client.Handlers(t.Context())
	require.NoError(t, err)
	r.end(t)

	require.NoError(t, os.WriteFile(s.path("secret"), []byte(canary+"\n"), 0o600))
	again := start(t, c, node.Options{})
	again.await(t, id, edge.Succeeded)
	after, err := again.client.Handlers(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, before[0].Revision, after[0].Revision, "a supplied secret is a change")
	again.sound(t)
	again.end(t)
	require.NotContains(t, r.log.String()+again.log.String(), canary)
}

// A missing program is told of at start, and not first by a blocked delivery.
func TestRun_AMissingProgramIsToldOfAtStart(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	handler := func(name, keys string) string {
		return fmt.Sprintf("[[handler]]\nname = %q\nkind = \"command\"\n%s\n", name, keys)
	}
	require.NoError(t, os.WriteFile(s.path("plain"), nil, 0o600))
	c := s.config(t, "s", handler("gone", fmt.Sprintf("argv = [%q]", s.path("program")))+
		handler("plain", fmt.Sprintf("argv = [%q]", s.path("plain")))+
		handler("bare", "argv = [\"fencepost-no-such-program\"]")+
		handler("homeless", fmt.Sprintf("argv = [\"sh\"]\ndir = %q", s.path("nowhere")))+
		handler("elsewhere", fmt.Sprintf("argv = [\"sh\"]\nenv = { PATH = %q }", s.dir))+
		handler("well", "argv = [\"sh\"]")+
		"[[route]]\nname = \"all\"\nhandler = \"gone\"\n")
	r := start(t, c, node.Options{})
	for name, want := range map[string]string{
		"gone": "program " + s.path("program") + ": not found", "plain": "not an executable file",
		"bare": "fencepost-no-such-program: not found", "homeless": s.path("nowhere"), "elsewhere": "program sh: not found",
	} {
		require.Regexp(t, "level=WARN .*handler="+name+" .*"+want, r.log.String())
	}
	require.NotContains(t, r.log.String(), "handler=well")
	id := r.send(t, "t", "x")
	r.await(t, id, edge.Blocked)
	r.end(t)

	require.NoError(t, os.WriteFile(s.path("program"), []byte("#!/bin/sh\n"), 0o700))
	again := start(t, c, node.Options{})
	require.NotContains(t, again.log.String(), "handler=gone")
	again.await(t, id, edge.Succeeded)
	again.end(t)
}

func TestNew_WhatFailsLeavesNothingOpen(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.config(t, "s", "")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	busy := c
	busy.HTTP.Listen = taken.Addr().String()
	_, err = node.New(busy, node.Options{})
	require.ErrorIs(t, err, edge.ErrConflict)
	require.ErrorContains(t, err, "http.listen")
	require.NoFileExists(t, c.HTTP.Socket)

	open := c
	open.HTTP.TokenFile = s.path("open")
	require.NoError(t, os.WriteFile(open.HTTP.TokenFile, []byte("0123456789abcdef0123"), 0o600))
	require.NoError(t, os.Chmod(open.HTTP.TokenFile, 0o644))
	_, err = node.New(open, node.Options{})
	require.ErrorIs(t, err, edge.ErrInvalid)

	foreign := c
	foreign.Node.Data = s.path("foreign")
	require.NoError(t, os.WriteFile(foreign.Node.Data, []byte("no database"), 0o600))
	_, err = node.New(foreign, node.Options{})
	require.ErrorIs(t, err, edge.ErrInvalid)

	n, err := node.New(c, node.Options{})
	require.NoError(t, err, "the database was given up each time")
	_, err = node.New(c, node.Options{})
	require.ErrorIs(t, err, edge.ErrConflict)
	n.Close()
	n.Close()
	r := start(t, c, node.Options{})
	r.end(t)
}

func TestRun_TwoNodesShareOneDatabase(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const routes = "[[handler]]\nname = \"a\"\nkind = \"log\"\n[[route]]\nname = \"a\"\nhandler = \"a\"\n"
	one := start(t, s.config(t, "s1", routes), node.Options{Share: true})
	two := start(t, s.config(t, "s2", routes), node.Options{Share: true})
	require.NotEqual(t, one.Addr(), two.Addr())
	var ids []string
	for i := range 20 {
		ids = append(ids, one.send(t, "t", fmt.Sprint(i%3)), two.send(t, "t", fmt.Sprint(i%3)))
	}
	for _, id := range ids {
		one.await(t, id, edge.Succeeded)
		two.await(t, id, edge.Succeeded)
	}
	two.end(t)
	one.await(t, one.send(t, "t", "x"), edge.Succeeded)
	one.sound(t)
	one.end(t)
}

func TestHealth_OfARealNode(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := start(t, s.config(t, "s", ""), node.Options{Version: "v1"})
	for _, path := range []string{"/healthz", "/readyz"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.Addr()+path, nil)
		require.NoError(t, err)
		req.Close = true
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusOK, resp.StatusCode)
	}
	st, err := r.client.Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, api.Status{
		Node: r.Store().Node(), Owner: r.Store().Owner(), PID: os.Getpid(), Version: "v1", Database: s.path("db"),
		Durability: "full", Listen: r.Addr(), StartedAt: st.StartedAt, Now: st.Now, Ready: true, Recovery: &api.Recovery{},
		Storage: st.Storage,
	}, st)
	require.NotZero(t, st.StartedAt)
	require.Equal(t, edge.StorageHealthy, st.Storage.State)
	require.Positive(t, st.Storage.FileBytes)
	require.EqualValues(t, 64<<20, st.Storage.LowWaterBytes)
	r.end(t)
	r2 := start(t, func() config.Config { c := s.config(t, "s", ""); c.HTTP.Listen = ""; return c }(), node.Options{})
	require.Empty(t, r2.Addr())
	r2.end(t)
}

func TestRun_ADoubtedClockIsConfirmedByAnOperator(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := start(t, s.config(t, "s", ""), node.Options{EarliestMS: time.Now().Add(24 * time.Hour).UnixMilli()})
	st, err := r.client.Status(t.Context())
	require.NoError(t, err)
	require.True(t, st.Doubted, "it reads earlier than the build")
	st, err = r.client.ConfirmClock(t.Context())
	require.NoError(t, err)
	require.False(t, st.Doubted)
	r.end(t)
}

// TestExplain_ARouteErrorSaysWhatTheEventLacks: the operator sees the attribute
// that is missing, though the store keeps no text of it.
func TestExplain_ARouteErrorSaysWhatTheEventLacks(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := start(t, s.config(t, "s", "[[handler]]\nname = \"a\"\nkind = \"log\"\n[[route]]\nname = \"by-tenant\"\nhandler = \"a\"\nkey = \"tenant\"\n"), node.Options{})
	id := r.send(t, "t", "x")
	x, err := r.client.Explain(t.Context(), id)
	require.NoError(t, err)
	require.Contains(t, strings.Join(x.Text, "\n"), `Its route by-tenant failed on the event, so it has no target yet: "key: the event has no tenant".`)
	r.end(t)
}
