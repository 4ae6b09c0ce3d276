package config

import (
	"net/netip"
	"strings"
)

// readAddresses reads a list of addresses and ranges of them.
func readAddresses(t *table, key string) ([]netip.Prefix, bool) {
	const allowed = `an address such as "127.0.0.1", or a range such as "127.0.0.0/8"`
	return list(t, key, MaxListItems, "a string", func(at, s string) (netip.Prefix, bool) {
		if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
			a = a.Unmap()
			return netip.PrefixFrom(a, a.BitLen()), true
		}
		p, err := netip.ParsePrefix(s)
		switch {
		case err != nil:
			t.doc.add(at, "neither an address nor a range", allowed)
			return p, false
		case p.Addr().Is4In6():
			t.doc.add(at, "an IPv4 range in the form of IPv6", "the range in the form of IPv4, such as \"127.0.0.0/8\"")
			return p, false
		case p != p.Masked():
			t.doc.add(at, "has bits beyond its range", "\""+p.Masked().String()+"\"")
			return p, false
		}
		return p, true
	})
}

// spreadAddresses gives each webhook what the node allows, so that a change there is
// a change of every handler that it concerns.
func (c *Config) spreadAddresses() {
	for i := range c.Handlers {
		if w := c.Handlers[i].Webhook; w != nil {
			w.AllowPrivate = c.Node.AllowPrivate
			w.AllowAddresses = append(append([]netip.Prefix{}, c.Node.AllowAddresses...), w.AllowAddresses...)
		}
	}
}

// numericHost reports whether a host is no address and yet would be taken for one
// by some resolvers: its last label is a number, as in 2130706433, 0x7f.1 or 127.1.
func numericHost(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return false
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	last := host[strings.LastIndexByte(host, '.')+1:]
	if digits, hex := strings.CutPrefix(last, "0x"); hex {
		return strings.Trim(digits, "0123456789abcdef") == ""
	}
	return last != "" && strings.Trim(last, "0123456789") == ""
}
