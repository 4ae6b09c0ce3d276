package webhook

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

const (
	dialTimeout       = 10 * time.Second
	handshakeTimeout  = 10 * time.Second
	idleTimeout       = 30 * time.Second
	maxReplyHeadBytes = 64 << 10
)

// newTransport makes the transport of one handler. HTTP/1.1 only: with one
// request on a connection at a time it is always known whether a byte of a
// request was written.
func newTransport(c Config) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	dialer := &net.Dialer{
		Timeout:        dialTimeout,
		Resolver:       c.Resolver,
		ControlContext: addressControl(c.AllowAddress),
	}
	t := &http.Transport{
		Proxy: nil, // on purpose: a request goes to its own host or nowhere
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			nc, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &conn{Conn: nc}, nil
		},
		Protocols:              protocols,
		DisableCompression:     true,
		MaxIdleConns:           c.Concurrency,
		MaxIdleConnsPerHost:    c.Concurrency,
		IdleConnTimeout:        idleTimeout,
		TLSHandshakeTimeout:    handshakeTimeout,
		MaxResponseHeaderBytes: maxReplyHeadBytes,
	}
	if c.RootCAs != nil {
		t.TLSClientConfig = tlsConfig(c.RootCAs)
	}
	return t
}

type addressError struct {
	addr  netip.Addr
	cause error
}

func (e *addressError) Error() string { return "address " + e.addr.String() + ": " + e.cause.Error() }
func (e *addressError) Unwrap() error { return e.cause }

// addressControl runs for every address that is dialled, after the name was
// resolved, so a name that resolves to something else the second time is judged
// too.
func addressControl(allow func(netip.Addr) error) func(context.Context, string, string, syscall.RawConn) error {
	if allow == nil {
		return nil
	}
	return func(_ context.Context, _, address string, _ syscall.RawConn) error {
		ap, err := netip.ParseAddrPort(address)
		if err != nil {
			return &addressError{cause: err}
		}
		addr := ap.Addr().Unmap()
		if err := allow(addr); err != nil {
			return &addressError{addr: addr, cause: err}
		}
		return nil
	}
}
