// Package uplink makes probes: checks of whether there is a way to the outside.
package uplink

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"fencepost/edge"
)

// Config configures a probe.
type Config struct {
	// To is what is probed: host:port, to which a TCP connection is made, or
	// an https URL, to which a HEAD request is sent; any reply means that the
	// way is there. With plain http a captive portal would answer as well.
	To string
	// Control judges each address before it is dialled, as
	// [net.Dialer].ControlContext; nil allows all. It must not use its last
	// argument: an address that To itself names is judged by New.
	Control func(ctx context.Context, network, address string, c syscall.RawConn) error
	// Resolver looks names up; nil = the system's.
	Resolver *net.Resolver
}

// maxToBytes bounds what is probed.
const maxToBytes = 2048

// Check returns what is wrong with the text of a probe, "" when nothing is.
func Check(to string) (problem string) {
	if _, _, err := parse(to); err != nil {
		return err.Error()
	}
	return ""
}

// parse returns the address or the URL of a probe.
func parse(to string) (address string, u *url.URL, err error) {
	if len(to) > maxToBytes {
		return "", nil, fmt.Errorf("%d bytes, the limit is %d", len(to), maxToBytes)
	}
	if strings.Contains(to, "://") {
		u, err := url.Parse(to)
		if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
			return "", nil, errors.New("not an https URL")
		}
		return "", u, nil
	}
	host, port, err := net.SplitHostPort(to)
	if err != nil || host == "" || strings.ContainsAny(host, " /\\@?#") {
		return "", nil, errors.New("not host:port")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", nil, errors.New("the port is not a number from 1 to 65535")
	}
	return to, nil, nil
}

// New returns a probe for [edge.Uplink]. Each call makes a connection of its own,
// through no proxy, and ends with its context.
func New(c Config) (func(ctx context.Context) error, error) {
	address, u, err := parse(c.To)
	if err != nil {
		return nil, fmt.Errorf("%w: probe %q: %w", edge.ErrInvalid, c.To, err)
	}
	if err := checkAddress(c, address, u); err != nil {
		return nil, fmt.Errorf("%w: probe %q: %w", edge.ErrInvalid, c.To, err)
	}
	dialer := &net.Dialer{Resolver: c.Resolver, ControlContext: c.Control}
	if u == nil {
		return func(ctx context.Context) error {
			conn, err := dialer.DialContext(ctx, "tcp", address)
			if err != nil {
				return err
			}
			return conn.Close()
		}, nil
	}
	transport := &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true, TLSHandshakeTimeout: handshake, MaxResponseHeaderBytes: maxHead}
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodHead, u.String(), nil)
		if err != nil {
			return err
		}
		req.Header.Set("User-Agent", "fencepost")
		reply, err := transport.RoundTrip(req) // one request: no redirect is followed
		if err != nil {
			return err
		}
		return reply.Body.Close()
	}, nil
}

// checkAddress refuses a probe of an address that would be refused when it is
// dialled. What a name leads to is only known then.
func checkAddress(c Config, address string, u *url.URL) error {
	if u != nil {
		address = net.JoinHostPort(u.Hostname(), "443")
	}
	if ap, err := netip.ParseAddrPort(address); err == nil && c.Control != nil {
		return c.Control(context.Background(), "tcp", ap.String(), nil)
	}
	return nil
}

const (
	handshake = 20 * time.Second
	maxHead   = 64 << 10
)
