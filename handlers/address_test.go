package handlers_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/handlers"
)

// T8, R99: what is special is refused in every encoding, and nothing is refused
// that is public.
func TestAddressPolicy(t *testing.T) {
	t.Parallel()
	edge := handlers.AddressPolicy{Private: true}
	for _, c := range []struct {
		addr string
		ok   bool
		what string
	}{
		{addr: "93.184.215.14", ok: true},
		{addr: "2606:2800:21f:cb07:6820:80da:af6b:8b2c", ok: true},
		{addr: "::ffff:93.184.215.14", ok: true},
		{addr: "64:ff9b::5db8:d70e", ok: true}, // NAT64 of a public address
		{addr: "10.0.0.1", ok: true},
		{addr: "172.31.255.255", ok: true},
		{addr: "192.168.1.1", ok: true},
		{addr: "::ffff:192.168.1.1", ok: true},
		{addr: "fd12:3456:789a::1", ok: true},
		{addr: "172.32.0.1", ok: true},
		{addr: "100.63.255.255", ok: true},
		{addr: "100.128.0.1", ok: true},
		{addr: "2001:4860:4860::8888", ok: true},

		{addr: "127.0.0.1", what: "loopback"},
		{addr: "127.255.255.254", what: "loopback"},
		{addr: "::1", what: "loopback"},
		{addr: "::ffff:127.0.0.1", what: "loopback"},
		{addr: "::127.0.0.1", what: "IPv4-compatible"},
		{addr: "::ffff:0:127.0.0.1", what: "translated"},
		{addr: "64:ff9b::7f00:1", what: "loopback"},
		{addr: "64:ff9b::a9fe:a9fe", what: "metadata"},
		{addr: "64:ff9b::a00:1", what: "private"}, // a gateway must not translate to it
		{addr: "64:ff9b:1::a9fe:a9fe", what: "local NAT64"},
		{addr: "2002:7f00:1::", what: "6to4"},
		{addr: "2001:0:53aa:64c::1", what: "Teredo"},
		{addr: "fec0::1", what: "site-local"},
		{addr: "fe80::1", what: "link-local"},
		{addr: "fe80::1%eth0", what: "link-local"},
		{addr: "169.254.169.254", what: "metadata"},
		{addr: "::ffff:169.254.169.254", what: "metadata"},
		{addr: "169.254.1.1", what: "link-local"},
		{addr: "fd00:ec2::254", what: "metadata"},
		{addr: "100.100.100.200", what: "metadata"},
		{addr: "168.63.129.16", what: "metadata"},
		{addr: "100.64.0.1", what: "CGNAT"},
		{addr: "100.127.255.255", what: "CGNAT"},
		{addr: "192.0.0.192", what: "reserved for protocols"},
		{addr: "192.0.2.1", what: "documentation"},
		{addr: "198.51.100.1", what: "documentation"},
		{addr: "203.0.113.1", what: "documentation"},
		{addr: "2001:db8::1", what: "documentation"},
		{addr: "3fff::1", what: "documentation"},
		{addr: "198.18.0.1", what: "benchmarks"},
		{addr: "198.19.255.255", what: "benchmarks"},
		{addr: "240.0.0.1", what: "reserved"},
		{addr: "255.255.255.255", what: "broadcast"},
		{addr: "0.0.0.0", what: "unspecified"},
		{addr: "0.1.2.3", what: "unspecified"},
		{addr: "::", what: "unspecified"},
		{addr: "::ffff:0.0.0.0", what: "unspecified"},
		{addr: "224.0.0.1", what: "multicast"},
		{addr: "ff02::1", what: "multicast"},
		{addr: "ff02::1%lo", what: "multicast"},
	} {
		err := edge.Check(netip.MustParseAddr(c.addr))
		if c.ok {
			require.NoError(t, err, c.addr)
			continue
		}
		require.ErrorIs(t, err, handlers.ErrAddressRefused, c.addr)
		require.ErrorContains(t, err, c.what, c.addr)
	}
	require.ErrorIs(t, edge.Check(netip.Addr{}), handlers.ErrAddressRefused)
	require.ErrorContains(t, handlers.AddressPolicy{}.Check(netip.MustParseAddr("192.168.1.1")), "allow_private is off")
}

func TestListedAddressesAreAllowed(t *testing.T) {
	t.Parallel()
	p := handlers.AddressPolicy{Allow: []netip.Prefix{
		netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("::ffff:169.254.1.0/120"),
		netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("0.0.0.0/0"),
	}}
	for _, a := range []string{"127.0.0.1", "::ffff:127.9.9.9", "::1", "169.254.1.77", "fe80::1%eth0", "100.64.0.1"} {
		require.NoError(t, p.Check(netip.MustParseAddr(a)), a)
	}
	// Never those that are no host, whatever is listed; and no other family.
	for _, a := range []string{"0.0.0.0", "224.0.0.1", "255.255.255.255", "::", "ff02::1", "::2", "fd00::1"} {
		require.ErrorIs(t, p.Check(netip.MustParseAddr(a)), handlers.ErrAddressRefused, a)
	}
}

func TestControlRefusesWhatItCannotJudge(t *testing.T) {
	t.Parallel()
	p := handlers.AddressPolicy{Private: true}
	for _, address := range []string{"", "/run/x.sock", "target.example:80", "127.0.0.1", "127.0.0.1:80", "[fe80::1%lo]:80"} {
		require.ErrorIs(t, p.Control(t.Context(), "tcp", address, nil), handlers.ErrAddressRefused, address)
	}
	require.NoError(t, p.Control(t.Context(), "tcp", "93.184.215.14:80", nil))
}

func TestLooksNumeric(t *testing.T) {
	t.Parallel()
	for _, h := range []string{"2130706433", "0x7f000001", "0x7f.1", "017700000001", "127.1", "127.0.0.1.", "0177.0.0.1", "a.0x", "1.2.3.4.5", "256.256.256.256"} {
		require.True(t, handlers.LooksNumeric(h), h)
	}
	for _, h := range []string{"", "127.0.0.1", "::1", "a.example", "a.example.", "1.2.3.x", "4a", "xn--0"} {
		require.False(t, handlers.LooksNumeric(h), h)
	}
}
