package webhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http/httptrace"
	"os"
	"sync/atomic"
	"syscall"

	"fencepost/edge"
	"fencepost/handlers"
)

// Result codes of faults of the connection. Up to connection_closed no byte of
// the request had been written; after the others it is unknown what the
// receiver did.
const (
	CodeAddressRefused   = "address_refused"   // blocked: the configuration does not allow the address
	CodeNotSent          = "not_sent"          // called off before anything was written
	CodeDNSFailed        = "dns_failed"        // the name was not resolved
	CodeConnectRefused   = "connect_refused"   // nobody listens
	CodeUnreachable      = "unreachable"       // no way to the host or network
	CodeConnectTimeout   = "connect_timeout"   // no connection in time
	CodeConnectFailed    = "connect_failed"    // no connection for another reason
	CodeTLSFailed        = "tls_failed"        // the handshake or the certificate
	CodeConnectionClosed = "connection_closed" // an idle connection closed just before it was used

	CodeReplyTimeout    = "reply_timeout"          // written, no reply in time
	CodeConnectionReset = "connection_reset"       // written, the connection broke
	CodeReplyMalformed  = "reply_malformed"        // written, the reply is not HTTP or its head too large
	CodeInterrupted     = "interrupted_after_send" // written, then called off
)

// conn knows whether a request may have been written on it. A write is noted
// before it is made, and after seal no write is made any more; so if seal says
// that nothing was written, that stays true. A first write of which the system
// took no byte, as on a connection that was closed meanwhile, does not count.
type conn struct {
	net.Conn
	wrote, sealed atomic.Bool
}

var errSealed = errors.New("the attempt is over")

func (c *conn) Write(b []byte) (int, error) {
	first := !c.wrote.Swap(true)
	if c.sealed.Load() {
		return 0, errSealed
	}
	n, err := c.Conn.Write(b)
	if first && n == 0 && err != nil {
		c.wrote.Store(false)
	}
	return n, err
}

// begin forgets what was written before: handshakes and earlier requests.
func (c *conn) begin() { c.wrote.Store(false) }

func (c *conn) seal() (wrote bool) {
	c.sealed.Store(true)
	return c.wrote.Load()
}

// Phases of getting a connection.
const (
	phaseNone int32 = iota
	phaseDNS
	phaseConnect
	phaseTLS
)

// wire follows one attempt down to the socket. The transport calls it from
// several goroutines.
type wire struct {
	phase atomic.Int32
	got   atomic.Bool // a connection was given to the request
	conn  atomic.Pointer[conn]
}

func (w *wire) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		DNSStart:          func(httptrace.DNSStartInfo) { w.phase.Store(phaseDNS) },
		ConnectStart:      func(string, string) { w.phase.Store(phaseConnect) },
		TLSHandshakeStart: func() { w.phase.Store(phaseTLS) },
		GotConn: func(info httptrace.GotConnInfo) {
			nc := info.Conn
			if t, ok := nc.(*tls.Conn); ok {
				nc = t.NetConn()
			}
			if c, ok := nc.(*conn); ok {
				c.begin()
				w.conn.Store(c)
			}
			w.got.Store(true)
		},
	})
}

// sent reports whether a byte of the request may have been written, and sees to
// it that none is from now on.
func (w *wire) sent() bool {
	if c := w.conn.Load(); c != nil {
		return c.seal()
	}
	return w.got.Load()
}

// failure is the result of an attempt that got no reply.
func (w *wire) failure(ctx context.Context, err error, secrets []handlers.Secret) edge.Result {
	text := err.Error()
	if cause := context.Cause(ctx); cause != nil && cause.Error() != text {
		text = cause.Error() + ": " + text
	}
	sent := w.sent()
	r := w.afterSend(ctx, err)
	if !sent {
		r = w.beforeSend(ctx, err)
	}
	r.Detail = handlers.Detail(text, nil, false, secrets)
	return r
}

// beforeSend judges a fault before the first byte: the effect did not begin.
func (w *wire) beforeSend(ctx context.Context, err error) edge.Result {
	var refused *addressError
	var dns *net.DNSError
	phase := w.phase.Load()
	code := CodeConnectFailed
	switch {
	case errors.As(err, &refused):
		return edge.Misconfigured(CodeAddressRefused, "")
	case errors.Is(ctx.Err(), context.Canceled):
		return edge.Defer(CodeNotSent, 0)
	case w.got.Load():
		code = CodeConnectionClosed
	case errors.As(err, &dns) || phase == phaseDNS:
		code = CodeDNSFailed
	case errors.Is(err, syscall.ECONNREFUSED):
		code = CodeConnectRefused
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTDOWN):
		code = CodeUnreachable
	case phase == phaseTLS:
		code = CodeTLSFailed
	case isTimeout(err):
		code = CodeConnectTimeout
	}
	r := edge.TryAgain(code, "")
	r.Blame = edge.BlameConnection
	return r
}

// afterSend judges a fault after it: what the receiver did is not known.
func (w *wire) afterSend(ctx context.Context, err error) edge.Result {
	var op *net.OpError
	code := CodeReplyMalformed
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		code = CodeInterrupted
	case ctx.Err() != nil, isTimeout(err):
		code = CodeReplyTimeout
	case errors.As(err, &op), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, net.ErrClosed),
		err.Error() == errServerClosedIdle:
		code = CodeConnectionReset
	}
	r := edge.Unknown(code, "")
	if code != CodeReplyMalformed {
		r.Blame = edge.BlameConnection
	}
	return r
}

// errServerClosedIdle is the text of a private error of net/http: the
// connection ended in the moment in which the request was written on it.
const errServerClosedIdle = "http: server closed idle connection"

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &t) && t.Timeout()
}

func tlsConfig(roots *x509.CertPool) *tls.Config {
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
}
