package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
)

// AddressPolicy says to which addresses a connection may be made. It judges
// addresses, never names: it belongs into [net.Dialer].ControlContext, where the
// name has been resolved and each address is asked about just before it is
// dialled, so that a name which resolves to something else the next time gains
// nothing by it.
//
// The zero value allows public addresses only. Loopback, link-local and all
// other special ranges are refused unless Allow lists them. An IPv4 address
// inside an IPv6 one (mapped, or NAT64) is judged as the IPv4 address.
type AddressPolicy struct {
	// Private allows 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16 and fc00::/7.
	Private bool
	// Allow are ranges that are allowed whatever they are. The unspecified
	// address, broadcast and multicast never are.
	Allow []netip.Prefix
}

// ErrAddressRefused is wrapped by what [AddressPolicy.Check] and
// [AddressPolicy.Control] refuse.
var ErrAddressRefused = errors.New("address refused")

// addressRange is a range of addresses with what it is.
type addressRange struct {
	prefix netip.Prefix
	what   string
}

func ranges(list ...string) []addressRange {
	out := make([]addressRange, 0, len(list)/2)
	for i := 0; i < len(list); i += 2 {
		out = append(out, addressRange{netip.MustParsePrefix(list[i]), list[i+1]})
	}
	return out
}

// neverRanges are no addresses of a single host.
var neverRanges = ranges(
	"0.0.0.0/8", "the unspecified network",
	"255.255.255.255/32", "broadcast",
	"224.0.0.0/4", "multicast",
	"::/128", "the unspecified address",
	"ff00::/8", "multicast",
)

var privateRanges = ranges(
	"10.0.0.0/8", "a private address",
	"172.16.0.0/12", "a private address",
	"192.168.0.0/16", "a private address",
	"fc00::/7", "a private address",
)

// specialRanges are those of the special-purpose registries (RFC 6890), and the
// addresses at which clouds give out credentials. The first match names it.
var specialRanges = ranges(
	"127.0.0.0/8", "loopback",
	"::1/128", "loopback",
	"169.254.169.254/32", "a cloud's metadata service",
	"169.254.0.0/16", "link-local",
	"fe80::/10", "link-local",
	"100.100.100.200/32", "a cloud's metadata service",
	"168.63.129.16/32", "a cloud's metadata service",
	"fd00:ec2::254/128", "a cloud's metadata service",
	"fd20:ce::254/128", "a cloud's metadata service",
	"100.64.0.0/10", "shared by a carrier (CGNAT)",
	"192.0.0.0/24", "reserved for protocols",
	"192.0.2.0/24", "for documentation",
	"198.51.100.0/24", "for documentation",
	"203.0.113.0/24", "for documentation",
	"192.88.99.0/24", "a 6to4 relay",
	"198.18.0.0/15", "for benchmarks",
	"240.0.0.0/4", "reserved",
	"::/96", "an IPv4-compatible address",
	"::ffff:0:0:0/96", "a translated IPv4 address",
	"64:ff9b:1::/48", "local NAT64",
	"100::/64", "discard-only",
	"100:0:0:1::/64", "a dummy prefix",
	"2001::/32", "Teredo",
	"2001:db8::/32", "for documentation",
	"2001::/23", "reserved for protocols",
	"2002::/16", "6to4",
	"3fff::/20", "for documentation",
	"5f00::/16", "segment routing",
	"fec0::/10", "site-local",
)

// nat64 is the well-known prefix of RFC 6052; the IPv4 address follows.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// Check returns nil when a connection to a may be made, else an error that wraps
// [ErrAddressRefused] and says what a is.
func (p AddressPolicy) Check(a netip.Addr) error {
	if !a.IsValid() {
		return fmt.Errorf("%w: not an address", ErrAddressRefused)
	}
	a = a.Unmap().WithZone("") // a prefix holds no address with a zone
	if r := within(neverRanges, a); r != "" {
		return fmt.Errorf("%w: %s is %s", ErrAddressRefused, a, r)
	}
	for _, allowed := range p.Allow {
		if plain(allowed).Contains(a) {
			return nil
		}
	}
	if nat64.Contains(a) {
		return p.checkNAT64(a)
	}
	if r := within(specialRanges, a); r != "" {
		return fmt.Errorf("%w: %s is %s, and is not listed in allow_addresses", ErrAddressRefused, a, r)
	}
	if r := within(privateRanges, a); r != "" && !p.Private {
		return fmt.Errorf("%w: %s is %s; allow_private is off and allow_addresses does not list it", ErrAddressRefused, a, r)
	}
	return nil
}

// checkNAT64 judges the IPv4 address within. A gateway must not translate to
// private addresses (RFC 6052, section 3.1), so those are refused as well.
func (p AddressPolicy) checkNAT64(a netip.Addr) error {
	b := a.As16()
	p.Private = false
	if err := p.Check(netip.AddrFrom4([4]byte(b[12:]))); err != nil {
		return fmt.Errorf("%w (within %s)", err, a)
	}
	return nil
}

// plain is a prefix in the form in which addresses are compared: one of mapped
// addresses is that of IPv4.
func plain(p netip.Prefix) netip.Prefix {
	if a := p.Addr(); a.Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(a.Unmap(), p.Bits()-96)
	}
	return p
}

func within(list []addressRange, a netip.Addr) string {
	for _, r := range list {
		if r.prefix.Contains(a) {
			return r.what
		}
	}
	return ""
}

// Control is a [net.Dialer].ControlContext that refuses what the policy does. What
// it cannot judge it refuses.
func (p AddressPolicy) Control(_ context.Context, network, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %s %q cannot be judged", ErrAddressRefused, network, address)
	}
	return p.Check(ap.Addr())
}

// LooksNumeric reports whether a host is no address and yet would be taken for
// one by some resolvers: its last label is a number, as in 2130706433, 0x7f.1 or
// 127.1 (WHATWG URL, "ends in a number").
func LooksNumeric(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return false
	}
	host = strings.TrimSuffix(host, ".")
	last := strings.ToLower(host[strings.LastIndexByte(host, '.')+1:])
	digits, hex := strings.CutPrefix(last, "0x")
	if hex {
		return strings.Trim(digits, "0123456789abcdef") == ""
	}
	return last != "" && strings.Trim(last, "0123456789") == ""
}
