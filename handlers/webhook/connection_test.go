package webhook_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/handlers"
	"fencepost/handlers/webhook"
)

// freePort is an address on which nobody listens.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

func TestKnownNotDeliveredIsRetry(t *testing.T) {
	t.Parallel()
	plain := rawServer(t, func(c net.Conn) { _, _ = c.Write([]byte("not TLS at all\r\n")) })
	mute := rawServer(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	untrusted := httptest.NewUnstartedServer(status(http.StatusOK))
	untrusted.Config.ErrorLog = nil
	untrusted.StartTLS()
	t.Cleanup(untrusted.Close)
	silent := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	for name, c := range map[string]struct {
		config  webhook.Config
		timeout time.Duration
		code    string
	}{
		"refused":               {webhook.Config{URL: "http://" + freePort(t)}, hang, "connect_refused"},
		"name not found":        {webhook.Config{URL: "http://target.invalid/", Resolver: failingResolver()}, hang, "dns_failed"},
		"resolver silent":       {webhook.Config{URL: "http://target.invalid/", Resolver: silent}, 500 * time.Millisecond, "dns_failed"},
		"not TLS":               {webhook.Config{URL: "https" + plain[4:]}, hang, "tls_failed"},
		"handshake never ends":  {webhook.Config{URL: "https" + mute[4:]}, 500 * time.Millisecond, "tls_failed"},
		"certificate untrusted": {webhook.Config{URL: untrusted.URL}, hang, "tls_failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newHandler(t, c.config).Handle(within(t, c.timeout), claim("x"))
			require.Equal(t, edge.OutcomeRetry, r.Outcome, r.Detail)
			require.Equal(t, c.code, r.Code, r.Detail)
			require.Equal(t, edge.BlameConnection, r.Blame)
			require.NotEmpty(t, r.Detail)
		})
	}
}

func failingResolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("resolver is down")
	}}
}

func TestTLSWithAConfiguredAuthority(t *testing.T) {
	t.Parallel()
	s := new(server)
	s.Server = httptest.NewTLSServer(s.recording(status(http.StatusOK)))
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	h := newHandler(t, webhook.Config{URL: s.URL, RootCAs: roots})
	require.Equal(t, edge.OutcomeSucceeded, h.Handle(within(t, hang), claim("x")).Outcome)
	require.Len(t, s.all(), 1)
}

func TestAfterTheRequestWasWrittenIsUnknown(t *testing.T) {
	t.Parallel()
	readRequest := func(c net.Conn) {
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err == nil {
			_, _ = io.Copy(io.Discard, r.Body)
		}
	}
	reset := func(c net.Conn) {
		readRequest(c)
		_ = c.(*net.TCPConn).SetLinger(0)
	}
	for name, c := range map[string]struct {
		serve   func(net.Conn)
		timeout time.Duration
		code    string
	}{
		"closed without a reply": {readRequest, hang, "connection_reset"},
		"reset":                  {reset, hang, "connection_reset"},
		"cut in the head":        {func(c net.Conn) { readRequest(c); _, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nX: ")) }, hang, "connection_reset"},
		"garbage":                {func(c net.Conn) { readRequest(c); _, _ = c.Write([]byte("SMTP ready\r\n\r\n")) }, hang, "reply_malformed"},
		"head too large":         {func(c net.Conn) { readRequest(c); endlessHead(c) }, hang, "reply_malformed"},
		"no reply in time":       {func(c net.Conn) { readRequest(c); _, _ = io.Copy(io.Discard, c) }, 500 * time.Millisecond, "reply_timeout"},
		"drip in the head":       {func(c net.Conn) { readRequest(c); drip(c) }, 500 * time.Millisecond, "reply_timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHandler(t, webhook.Config{URL: rawServer(t, c.serve)})
			r := h.Handle(within(t, c.timeout), claim("x"))
			require.Equal(t, edge.OutcomeIndeterminate, r.Outcome, r.Detail)
			require.Equal(t, c.code, r.Code, r.Detail)
			require.Equal(t, c.code != "reply_malformed", r.Blame == edge.BlameConnection)
		})
	}
}

// T9: the reader of the reply stops long before 1 GiB.
func endlessHead(c net.Conn) {
	line := append([]byte("X-Long: "), make([]byte, 32<<10)...)
	for i := 8; i < len(line); i++ {
		line[i] = 'a'
	}
	line = append(line, '\r', '\n')
	_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\n"))
	for range 32 << 10 {
		if _, err := c.Write(line); err != nil {
			return
		}
	}
}

func drip(c net.Conn) {
	_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nX-Drip: "))
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		if _, err := c.Write([]byte("a")); err != nil {
			return
		}
	}
}

func TestCalledOffBeforeAndAfterSending(t *testing.T) {
	t.Parallel()
	cause := errors.New("the node is shutting down")

	before, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	s := newServer(t, status(http.StatusOK))
	r := newHandler(t, webhook.Config{URL: s.URL}).Handle(before, claim("x"))
	require.Equal(t, edge.OutcomeDeferred, r.Outcome)
	require.Equal(t, "not_sent", r.Code)
	require.Contains(t, r.Detail, cause.Error())
	require.Empty(t, s.all())

	after, cancel := context.WithCancelCause(t.Context())
	arrived := newServer(t, func(_ http.ResponseWriter, r *http.Request) {
		cancel(cause)
		<-r.Context().Done()
	})
	r = newHandler(t, webhook.Config{URL: arrived.URL}).Handle(after, claim("x"))
	require.Equal(t, edge.OutcomeIndeterminate, r.Outcome)
	require.Equal(t, "interrupted_after_send", r.Code)
	require.Contains(t, r.Detail, cause.Error())
	require.Len(t, arrived.all(), 1)
}

func TestD12_OneRequestHoweverLongItTakes(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	s := newServer(t, func(_ http.ResponseWriter, r *http.Request) {
		cancel(edge.ErrLeaseLost)
		<-r.Context().Done()
	})
	r := newHandler(t, webhook.Config{URL: s.URL}).Handle(ctx, claim("x"))
	require.Equal(t, edge.OutcomeIndeterminate, r.Outcome)
	require.Len(t, s.all(), 1)
}

func TestOwnTimeoutWithoutADeadline(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	r := newHandler(t, webhook.Config{URL: s.URL, Timeout: 500 * time.Millisecond}).Handle(t.Context(), claim("x"))
	require.Equal(t, "reply_timeout", r.Code)
}

// Whatever the moment in which the server closes the idle connection: as many
// requests as attempts, and none that was sent twice.
func TestDX9_NoSilentReplayOnAClosedIdleConnection(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"x", ""} {
		var requests atomic.Int64
		var closed atomic.Bool // the latest request got no reply
		url := rawServer(t, func(c net.Conn) {
			in := bufio.NewReader(c)
			for i := 0; ; i++ {
				r, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				closed.Store(i == 1) // the second request on a connection gets no reply
				requests.Add(1)
				if i == 1 {
					return
				}
				_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
			}
		})
		h := newHandler(t, webhook.Config{URL: url})
		unknown := 0
		for attempt := range 20 {
			r := h.Handle(within(t, hang), claim(body))
			require.EqualValues(t, attempt+1, requests.Load())
			if !closed.Load() {
				require.Equal(t, edge.OutcomeSucceeded, r.Outcome, r.Detail)
				continue
			}
			require.Equal(t, edge.OutcomeIndeterminate, r.Outcome, r.Detail)
			require.Equal(t, "connection_reset", r.Code, r.Detail)
			unknown++
		}
		require.Positive(t, unknown)
	}
}

func TestDX9_ServerClosesAfterEachReply(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	url := rawServer(t, func(c net.Conn) {
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		requests.Add(1)
		_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
	})
	h := newHandler(t, webhook.Config{URL: url})
	var succeeded int64
	for range 50 {
		r := h.Handle(within(t, hang), claim("x"))
		if r.Outcome == edge.OutcomeSucceeded {
			succeeded++
			continue
		}
		// The idle connection ended in this very moment.
		require.Contains(t, []string{"connection_closed", "connection_reset"}, r.Code, r.Detail)
	}
	require.Positive(t, succeeded)
	require.Equal(t, succeeded, requests.Load(), "no attempt made more than one request")
}

// A connection that is found closed before the first byte: known not delivered,
// also when the handshake or an earlier request had been written on it, and not
// repeated behind our back.
func TestClosedBeforeTheFirstByteIsRetry(t *testing.T) {
	t.Parallel()
	plain := newServer(t, status(http.StatusOK))
	secure := new(server)
	secure.Server = httptest.NewTLSServer(secure.recording(status(http.StatusOK)))
	t.Cleanup(secure.Close)
	roots := x509.NewCertPool()
	roots.AddCert(secure.Certificate())
	closeFirst := func() context.Context {
		var once sync.Once
		return httptrace.WithClientTrace(within(t, hang), &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
			nc := info.Conn
			if c, ok := nc.(*tls.Conn); ok {
				nc = c.NetConn()
			}
			once.Do(func() { _ = nc.Close() })
		}})
	}
	for _, s := range []*server{plain, secure} {
		for _, reused := range []bool{false, true} {
			before := len(s.all())
			h := newHandler(t, webhook.Config{URL: s.URL, RootCAs: roots})
			if reused {
				require.Equal(t, edge.OutcomeSucceeded, h.Handle(within(t, hang), claim("x")).Outcome)
				before++
			}
			r := h.Handle(closeFirst(), claim("x"))
			require.Equal(t, edge.OutcomeRetry, r.Outcome, r.Detail)
			require.Equal(t, "connection_closed", r.Code, r.Detail)
			require.Len(t, s.all(), before)
		}
	}
}

func TestAFailureClosesIdleConnections(t *testing.T) {
	t.Parallel()
	var conns atomic.Int64
	var fail atomic.Bool
	both := make(chan struct{})
	var waiting atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if fail.Swap(false) {
			panic(http.ErrAbortHandler)
		}
		if waiting.Add(1) == 2 {
			close(both)
		}
		<-both
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	h := newHandler(t, webhook.Config{URL: s.URL})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { h.Handle(within(t, hang), claim("x")) })
	}
	wg.Wait()
	require.EqualValues(t, 2, conns.Load())
	fail.Store(true)
	require.Equal(t, "connection_reset", h.Handle(within(t, hang), claim("x")).Code)
	require.Equal(t, edge.OutcomeSucceeded, h.Handle(within(t, hang), claim("x")).Outcome)
	require.EqualValues(t, 3, conns.Load(), "dialled anew, not the other idle one")
}

func TestIdleConnectionIsReused(t *testing.T) {
	t.Parallel()
	var conns atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "fine") }))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	h := newHandler(t, webhook.Config{URL: s.URL})
	for range 5 {
		require.Equal(t, edge.OutcomeSucceeded, h.Handle(within(t, hang), claim("x")).Outcome)
	}
	require.EqualValues(t, 1, conns.Load())
}

func TestR29_DNSFailureIsTransient(t *testing.T) {
	t.Parallel()
	s := newServer(t, status(http.StatusOK))
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	require.NoError(t, err)
	var down atomic.Bool
	down.Store(true)
	resolver := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		if down.Load() {
			return nil, errors.New("resolver is down")
		}
		client, server := net.Pipe()
		go answerDNS(server)
		return client, nil
	}}
	h := newHandler(t, webhook.Config{URL: "http://target.example.test:" + port, Resolver: resolver})
	for range 2 {
		r := h.Handle(within(t, hang), claim("x"))
		require.Equal(t, edge.OutcomeRetry, r.Outcome)
		require.Equal(t, "dns_failed", r.Code)
	}
	down.Store(false)
	r := h.Handle(within(t, hang), claim("x"))
	require.Equal(t, edge.OutcomeSucceeded, r.Outcome, r.Detail)
	require.Len(t, s.all(), 1)
}

// answerDNS answers questions over a stream: 127.0.0.1 for type A, nothing for
// all else.
func answerDNS(c net.Conn) {
	defer func() { _ = c.Close() }()
	for {
		var n [2]byte
		if _, err := io.ReadFull(c, n[:]); err != nil {
			return
		}
		q := make([]byte, binary.BigEndian.Uint16(n[:]))
		if _, err := io.ReadFull(c, q); err != nil {
			return
		}
		end := 12 // of the one question: labels, a zero, type and class
		for q[end] != 0 {
			end += int(q[end]) + 1
		}
		end += 5
		isA := binary.BigEndian.Uint16(q[end-4:]) == 1
		a := append([]byte{q[0], q[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, q[12:end]...)
		if isA {
			a[7] = 1
			a = append(a, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1)
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(a))), a...)); err != nil {
			return
		}
	}
}

func TestRefusedAddressBlocks(t *testing.T) {
	t.Parallel()
	s := newServer(t, status(http.StatusOK))
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	require.NoError(t, err)
	h := newHandler(t, webhook.Config{
		URL: "http://target.example.test:" + port, Resolver: pipeResolver(answerDNS), AllowAddress: handlers.AddressPolicy{}.Check,
	})
	r := h.Handle(within(t, hang), claim("x"))
	require.Equal(t, edge.OutcomeBlocked, r.Outcome)
	require.Equal(t, "address_refused", r.Code)
	require.Contains(t, r.Detail, "127.0.0.1 is loopback, and is not listed in allow_addresses")
	require.Empty(t, s.all())
}

// pipeResolver asks serve, over a stream of its own for each question.
func pipeResolver(serve func(net.Conn)) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go serve(server)
		return client, nil
	}}
}

func TestProxyVariablesAreNotRead(t *testing.T) {
	proxy := newServer(t, status(http.StatusOK))
	s := newServer(t, status(http.StatusOK))
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	require.NoError(t, err)
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("http_proxy", proxy.URL)
	// Not a loopback name: the standard library never uses a proxy for those.
	resolver := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go answerDNS(server)
		return client, nil
	}}
	h := newHandler(t, webhook.Config{URL: "http://target.example.test:" + port, Resolver: resolver})
	require.Equal(t, edge.OutcomeSucceeded, h.Handle(within(t, hang), claim("x")).Outcome)
	require.Empty(t, proxy.all())
	require.Len(t, s.all(), 1)
}
