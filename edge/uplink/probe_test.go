package uplink_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/uplink"
	"fencepost/handlers"
)

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestProbeOfAPort(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	probe, err := uplink.New(uplink.Config{To: l.Addr().String()})
	require.NoError(t, err)
	require.NoError(t, probe(within(t)))
	require.NoError(t, l.Close())
	require.Error(t, probe(within(t)))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, probe(ended), context.Canceled)
}

// A probe goes nowhere that a webhook may not go.
func TestProbeKeepsToTheAddressPolicy(t *testing.T) {
	t.Parallel()
	var connections atomic.Int64
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ConnState = func(net.Conn, http.ConnState) { connections.Add(1) }
	s.StartTLS()
	t.Cleanup(s.Close)
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	require.NoError(t, err)
	policy := handlers.AddressPolicy{Private: true}
	for _, to := range []string{"localhost:" + port, "https://localhost:" + port + "/"} {
		probe, err := uplink.New(uplink.Config{To: to, Control: policy.Control})
		require.NoError(t, err)
		require.ErrorIs(t, probe(within(t)), handlers.ErrAddressRefused)
	}
	for _, to := range []string{s.Listener.Addr().String(), s.URL, "[::ffff:169.254.169.254]:80"} {
		_, err := uplink.New(uplink.Config{To: to, Control: policy.Control})
		require.ErrorIs(t, err, edge.ErrInvalid, "an address that is named is judged at once")
	}
	require.Zero(t, connections.Load())
	probe, err := uplink.New(uplink.Config{
		To: s.Listener.Addr().String(), Control: handlers.AddressPolicy{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}.Control,
	})
	require.NoError(t, err)
	require.NoError(t, probe(within(t)))
}

// A certificate that is not the name's, as a captive portal has it, is no way out.
func TestProbeOfAURLWantsTheRightHost(t *testing.T) {
	t.Parallel()
	s := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	probe, err := uplink.New(uplink.Config{To: s.URL})
	require.NoError(t, err)
	require.ErrorContains(t, probe(within(t)), "certificate")
}

func TestProbesAreJudged(t *testing.T) {
	t.Parallel()
	for _, to := range []string{"", "a.example", "a.example:0", "a.example:x", ":443", "http://a.example/", "https:///x", "https://u:p@a.example/", "https://a.example/#f", "a b:1", "ftp://a.example:1"} {
		require.NotEmpty(t, uplink.Check(to), to)
		_, err := uplink.New(uplink.Config{To: to})
		require.ErrorIs(t, err, edge.ErrInvalid, to)
	}
	for _, to := range []string{"a.example:443", "192.0.2.1:53", "[2001:db8::1]:443", "https://a.example/", "https://a.example:8443/healthz"} {
		require.Empty(t, uplink.Check(to), to)
	}
}
