package webhook_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/handlers"
	"fencepost/handlers/webhook"
)

// canary counts the connections to any address of this host.
func canary(t *testing.T) (port string, connections *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", ":0")
	require.NoError(t, err)
	connections = new(atomic.Int64)
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			_ = c.Close()
		}
	})
	t.Cleanup(func() { _ = l.Close(); accepting.Wait() })
	_, port, err = net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return port, connections
}

// zone answers questions for names: the n-th time, from 0, with what the function
// of the name returns.
type zone struct {
	mu    sync.Mutex
	names map[string]func(n int) []string
	asked map[string]int
}

func newZone() *zone { return &zone{names: map[string]func(int) []string{}, asked: map[string]int{}} }

func (z *zone) always(name string, addrs ...string) {
	z.names[name] = func(int) []string { return addrs }
}

func (z *zone) resolver() *net.Resolver { return pipeResolver(z.serve) }

const typeA, typeAAAA = 1, 28

// lookup counts the questions of type A, of which each resolution asks one.
func (z *zone) lookup(name string, kind uint16) []netip.Addr {
	z.mu.Lock()
	defer z.mu.Unlock()
	fn := z.names[strings.TrimSuffix(strings.ToLower(name), ".")]
	if fn == nil {
		return nil
	}
	key := fmt.Sprint(name, kind)
	n := z.asked[key]
	z.asked[key]++
	var out []netip.Addr
	for _, s := range fn(n) {
		if a := netip.MustParseAddr(s); a.Is4() == (kind == typeA) {
			out = append(out, a)
		}
	}
	return out
}

func (z *zone) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	for {
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		q := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, q); err != nil {
			return
		}
		end, name := 12, ""
		for q[end] != 0 {
			name += string(q[end+1:end+1+int(q[end])]) + "."
			end += int(q[end]) + 1
		}
		end += 5
		kind := binary.BigEndian.Uint16(q[end-4:])
		addrs := []netip.Addr{}
		if kind == typeA || kind == typeAAAA {
			addrs = z.lookup(name, kind)
		}
		a := append([]byte{q[0], q[1], 0x81, 0x80, 0, 1, 0, byte(len(addrs)), 0, 0, 0, 0}, q[12:end]...)
		for _, addr := range addrs {
			raw := addr.AsSlice()
			a = append(a, 0xc0, 12, 0, byte(kind), 0, 1, 0, 0, 0, 0, 0, byte(len(raw)))
			a = append(a, raw...)
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(a))), a...)); err != nil {
			return
		}
	}
}

// forgedURLs lead, by one resolver or another, to this host or to a service that
// gives out credentials. %s is the canary's port.
var forgedURLs = []string{
	"http://127.0.0.1:%s/", "http://127.0.0.2:%s/", "http://127.255.255.254:%s/", "http://127.1:%s/", "http://127.0.1:%s/",
	"http://2130706433:%s/", "http://0x7f000001:%s/", "http://0x7f.1:%s/", "http://0x7f.0x0.0x0.0x1:%s/", "http://0X7F000001:%s/",
	"http://017700000001:%s/", "http://0177.0.0.1:%s/", "http://0177.0.0.01:%s/", "http://00000177.1:%s/", "http://127.0.0.1.:%s/",
	"http://0:%s/", "http://0.0.0.0:%s/", "http://0x0:%s/", "http://00:%s/", "http://0.0.0.0.:%s/",
	"http://[::1]:%s/", "http://[0:0:0:0:0:0:0:1]:%s/", "http://[0000::0001]:%s/", "http://[::]:%s/", "http://[::ffff:127.0.0.1]:%s/",
	"http://[::ffff:7f00:1]:%s/", "http://[0:0:0:0:0:ffff:7f00:1]:%s/", "http://[::127.0.0.1]:%s/", "http://[::ffff:0:127.0.0.1]:%s/", "http://[::ffff:0.0.0.0]:%s/",
	"http://[64:ff9b::7f00:1]:%s/", "http://[64:ff9b::127.0.0.1]:%s/", "http://[64:ff9b:1::7f00:1]:%s/", "http://[2002:7f00:1::]:%s/", "http://[2001:0:7f00:1::]:%s/",
	"http://[fe80::1]:%s/", "http://[fe80::1%%25lo]:%s/", "http://[fec0::1]:%s/", "http://[ff02::1]:%s/", "http://224.0.0.1:%s/",
	"http://169.254.169.254:%s/", "http://[::ffff:169.254.169.254]:%s/", "http://[64:ff9b::a9fe:a9fe]:%s/", "http://2852039166:%s/", "http://0xa9fea9fe:%s/",
	"http://0251.0376.0251.0376:%s/", "http://169.254.43518:%s/", "http://[fd00:ec2::254]:%s/", "http://100.100.100.200:%s/", "http://168.63.129.16:%s/",
	"http://192.0.0.192:%s/", "http://100.64.0.1:%s/", "http://198.18.0.1:%s/", "http://240.0.0.1:%s/", "http://255.255.255.255:%s/",
	"http://localhost:%s/", "http://LOCALHOST:%s/", "http://localhost.:%s/", "http://good.example.test@127.0.0.1:%s/", "http://127.0.0.1:%s@good.example.test/",
	"http://good.example.test#@127.0.0.1:%s/", "http://127.0.0.1:%s\\@good.example.test/", "http://127.0.0.1%%2f:%s/", "http://①②⑦.⓪.⓪.①:%s/", "http://127。0。0。1:%s/",
	"http://loopback.example.test:%s/", "http://six.example.test:%s/", "http://mapped.example.test:%s/", "http://metadata.example.test:%s/", "http://many.example.test:%s/",
	"http://nat64.example.test:%s/", "http://zero.example.test:%s/", "http://rebinds.example.test:%s/", "http://nowhere.example.test:%s/",
	"ftp://127.0.0.1:%s/", "file:///proc/self/environ?%s", "gopher://127.0.0.1:%s/", "//127.0.0.1:%s/",
}

// T8, DX1, R99: no URL makes a connection that the policy refuses.
func TestT8_ForgedURLsConnectNowhere(t *testing.T) {
	t.Parallel()
	port, connections := canary(t)
	z := newZone()
	z.always("loopback.example.test", "127.0.0.1")
	z.always("six.example.test", "::1")
	z.always("mapped.example.test", "::ffff:127.0.0.1")
	z.always("metadata.example.test", "169.254.169.254")
	z.always("many.example.test", "169.254.169.254", "127.0.0.1", "::1", "fe80::1")
	z.always("nat64.example.test", "64:ff9b::7f00:1")
	z.always("zero.example.test", "0.0.0.0", "::")
	z.always("rebinds.example.test", "127.0.0.1")
	require.GreaterOrEqual(t, len(forgedURLs), 60)
	refused, blocked := 0, 0
	for _, form := range forgedURLs {
		url := fmt.Sprintf(form, port)
		h, err := webhook.New(webhook.Config{URL: url, Resolver: z.resolver(), AllowAddress: handlers.AddressPolicy{Private: true}.Check})
		if err != nil {
			refused++
			continue
		}
		r := h.Handle(within(t, hang), claim("x"))
		require.NoError(t, h.Close())
		switch r.Code {
		case webhook.CodeAddressRefused:
			require.Equal(t, edge.OutcomeBlocked, r.Outcome, url)
			blocked++
		case webhook.CodeDNSFailed: // the resolver does not know it: tried again, never allowed
			require.Equal(t, edge.OutcomeRetry, r.Outcome, url)
		default:
			require.Fail(t, "neither refused nor unresolved", "%s: %s %s %s", url, r.Outcome, r.Code, r.Detail)
		}
	}
	require.Zero(t, connections.Load())
	require.Greater(t, refused, 50)
	require.GreaterOrEqual(t, blocked, 8)

	// The control: without a policy the canary is reached.
	h := newHandler(t, webhook.Config{URL: "http://loopback.example.test:" + port, Resolver: z.resolver()})
	h.Handle(within(t, hang), claim("x"))
	require.Positive(t, connections.Load())
}

// T8, DX1: a name that was good the first time is judged anew each time.
func TestT8_RebindingName(t *testing.T) {
	t.Parallel()
	good := newServer(t, status(http.StatusOK))
	host, port, err := net.SplitHostPort(good.Listener.Addr().String())
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.2:"+port) // the same port, at an address that is not listed
	require.NoError(t, err)
	defer l.Close()
	z := newZone()
	z.names["rebinds.example.test"] = func(n int) []string {
		if n == 0 {
			return []string{host}
		}
		return []string{"127.0.0.2"}
	}
	h := newHandler(t, webhook.Config{
		URL: "http://rebinds.example.test:" + port, Resolver: z.resolver(),
		AllowAddress: handlers.AddressPolicy{Allow: []netip.Prefix{netip.MustParsePrefix(host + "/32")}}.Check,
	})
	require.Equal(t, edge.OutcomeSucceeded, h.Handle(within(t, hang), claim("x")).Outcome)
	require.NoError(t, h.Close()) // its idle connection
	r := h.Handle(within(t, hang), claim("x"))
	require.Equal(t, edge.OutcomeBlocked, r.Outcome, r.Detail)
	require.Equal(t, webhook.CodeAddressRefused, r.Code)
	require.Len(t, good.all(), 1)
}

// T8: a redirect is not followed, wherever it leads.
func TestT8_RedirectToMetadata(t *testing.T) {
	t.Parallel()
	port, connections := canary(t)
	for _, to := range []string{"http://169.254.169.254/latest/meta-data/", "http://127.0.0.1:" + port + "/", "//[::1]:" + port + "/", "/elsewhere"} {
		for _, code := range []int{301, 302, 303, 307, 308} {
			s := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", to)
				w.WriteHeader(code)
			})
			r := newHandler(t, webhook.Config{URL: s.URL}).Handle(within(t, hang), claim("x"))
			require.Equal(t, edge.OutcomeRetry, r.Outcome)
			require.Equal(t, fmt.Sprintf("http_%d", code), r.Code)
			require.Len(t, s.all(), 1)
		}
	}
	require.Zero(t, connections.Load())
}

// A name of several addresses is blocked only when none of them may be dialled.
func TestOneAllowedAddressIsEnough(t *testing.T) {
	t.Parallel()
	s := newServer(t, status(http.StatusOK))
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	require.NoError(t, err)
	z := newZone()
	z.always("mixed.example.test", "169.254.169.254", "127.0.0.1")
	c := webhook.Config{
		URL: "http://mixed.example.test:" + port, Resolver: z.resolver(),
		AllowAddress: handlers.AddressPolicy{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}.Check,
	}
	require.Equal(t, edge.OutcomeSucceeded, newHandler(t, c).Handle(within(t, hang), claim("x")).Outcome)

	// Nobody listens at the allowed one: that is no fault of the configuration.
	_, dead, err := net.SplitHostPort(freePort(t))
	require.NoError(t, err)
	c.URL = "http://mixed.example.test:" + dead
	r := newHandler(t, c).Handle(within(t, hang), claim("x"))
	require.Equal(t, edge.OutcomeRetry, r.Outcome, r.Detail)
	require.Equal(t, webhook.CodeConnectFailed, r.Code)
}

// R99: a resolver that fails allows nothing.
func TestR99_ResolverFailureFailsClosed(t *testing.T) {
	t.Parallel()
	port, connections := canary(t)
	h := newHandler(t, webhook.Config{
		URL: "http://target.example.test:" + port, AllowAddress: handlers.AddressPolicy{}.Check,
		Resolver: &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("resolver is down")
		}},
	})
	r := h.Handle(within(t, hang), claim("x"))
	require.Equal(t, edge.OutcomeRetry, r.Outcome)
	require.Equal(t, webhook.CodeDNSFailed, r.Code)
	require.Zero(t, connections.Load())
}
