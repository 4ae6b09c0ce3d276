package node

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"

	"fencepost/edge/config"
	"fencepost/handlers"
)

// Addresses is a [config.Judge]: URLs of webhooks and probes of uplinks that name
// an address to which the node would not connect.
func Addresses(c *config.Config, src *config.Source) []config.Fault {
	var faults []config.Fault
	for i := range c.Handlers {
		w := c.Handlers[i].Webhook
		if w == nil {
			continue
		}
		if problem, allowed := addressFault(hostOf(w.URL), webhookPolicy(w), "of this handler, or of [node]"); problem != "" {
			faults = append(faults, src.Fault(fmt.Sprintf("handler[%d].url", i+1), problem, allowed))
		}
	}
	for i := range c.Uplinks {
		if problem, allowed := addressFault(hostOf(c.Uplinks[i].Probe), probePolicy(c), "of [node]"); problem != "" {
			faults = append(faults, src.Fault(fmt.Sprintf("uplink[%d].probe", i+1), problem, allowed))
		}
	}
	return faults
}

// addressFault says what is wrong with an address, and how it is allowed in the
// list that where names. A name is no fault: what it stands for may change.
func addressFault(host string, policy handlers.AddressPolicy, where string) (problem, allowed string) {
	a, err := netip.ParseAddr(host)
	if err != nil || policy.Check(a) == nil {
		return "", ""
	}
	a = a.Unmap().WithZone("")
	policy.Allow = []netip.Prefix{netip.PrefixFrom(a, a.BitLen())}
	if policy.Check(a) != nil { // nothing allows it
		return policy.Check(a).Error(), "the address of one host"
	}
	policy.Allow = nil
	return policy.Check(a).Error(), fmt.Sprintf("a public address, or %q in allow_addresses %s", a, where)
}

func webhookPolicy(w *config.Webhook) handlers.AddressPolicy {
	return handlers.AddressPolicy{Private: w.AllowPrivate, Allow: w.AllowAddresses}
}

func probePolicy(c *config.Config) handlers.AddressPolicy {
	return handlers.AddressPolicy{Private: c.Node.AllowPrivate, Allow: c.Node.AllowAddresses}
}

// hostOf is the host of a URL, or of host:port; "" when there is none.
func hostOf(s string) string {
	if strings.Contains(s, "://") {
		u, err := url.Parse(s)
		if err != nil {
			return ""
		}
		return u.Hostname()
	}
	host, _, err := net.SplitHostPort(s)
	if err != nil {
		return ""
	}
	return host
}

// loopbackName reports whether a name stands for this host wherever it is asked
// for (RFC 6761 section 6.3, and what distributions write into /etc/hosts).
func loopbackName(host string) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	switch host {
	case "localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback":
		return true
	}
	return strings.HasSuffix(host, ".localhost")
}

// loopbackRefused reports whether a name stands for this host, and none of its
// addresses is one to which a connection may be made.
func loopbackRefused(host string, policy handlers.AddressPolicy) bool {
	return loopbackName(host) && policy.Check(netip.AddrFrom4([4]byte{127, 0, 0, 1})) != nil && policy.Check(netip.IPv6Loopback()) != nil
}
