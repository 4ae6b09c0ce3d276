package webhook_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/handlers/webhook"
)

// hang is only a guard against hanging.
const hang = 20 * time.Second

func newHandler(t *testing.T, c webhook.Config) *webhook.Handler {
	t.Helper()
	h, err := webhook.New(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	return h
}

func claim(data string) *edge.Claim {
	return &edge.Claim{
		Delivery: 12, DeliveryID: "dlv-node-12", EventID: "evt-node-3", Key: "dlv-node-7", Fence: 40, Attempt: 2,
		Target: edge.Target{Handler: "hook", Key: "k ü"}, Route: "all", Owner: "owner",
		Event: &edge.Event{ID: "1", Source: "/source", Type: "com.example.test", Data: []byte(data)},
	}
}

type received struct {
	header http.Header
	host   string
	body   []byte
}

// server answers with handle and records each request with its body.
type server struct {
	*httptest.Server
	mu       sync.Mutex
	requests []received
}

func newServer(t *testing.T, handle http.HandlerFunc) *server {
	t.Helper()
	s := new(server)
	s.Server = httptest.NewServer(s.recording(handle))
	t.Cleanup(s.Close)
	return s
}

func (s *server) recording(handle http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.requests = append(s.requests, received{r.Header.Clone(), r.Host, body})
		s.mu.Unlock()
		handle(w, r)
	})
}

func (s *server) all() []received {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]received(nil), s.requests...)
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// rawServer gives each connection to serve and closes it afterwards.
func rawServer(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			wg.Go(func() {
				defer func() { _ = c.Close() }()
				serve(c)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return "http://" + l.Addr().String()
}

func secretFile(t *testing.T, value string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(path, []byte(value+"\n"), 0o600))
	return "file:" + path
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
