package webhook

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
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
			d := new(dial)
			nc, err := dialer.DialContext(context.WithValue(ctx, dialKey{}, d), network, address)
			if err != nil {
				return nil, d.judge(err)
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

// addressError says that the configuration does not allow an address.
type addressError struct{ cause error }

func (e *addressError) Error() string { return e.cause.Error() }
func (e *addressError) Unwrap() error { return e.cause }

// dial is one dialling of a name, which may have several addresses.
type dial struct{ passed, refused atomic.Int32 }

type dialKey struct{}

// judge is the error of a dialling: that an address was refused is what counts
// only when no other was dialled in its stead.
func (d *dial) judge(err error) error {
	if d.refused.Load() == 0 || d.passed.Load() == 0 {
		return err
	}
	return fmt.Errorf("no connection to any allowed address: %s", err.Error())
}

// addressControl runs for every address that is dialled, after the name was
// resolved, so a name that resolves to something else the second time is judged
// too.
func addressControl(allow func(netip.Addr) error) func(context.Context, string, string, syscall.RawConn) error {
	if allow == nil {
		return nil
	}
	return func(ctx context.Context, _, address string, _ syscall.RawConn) error {
		d, ok := ctx.Value(dialKey{}).(*dial)
		if !ok {
			d = new(dial)
		}
		ap, err := netip.ParseAddrPort(address)
		if err == nil {
			err = allow(ap.Addr().Unmap())
		}
		if err != nil {
			d.refused.Add(1)
			return &addressError{err}
		}
		d.passed.Add(1)
		return nil
	}
}
