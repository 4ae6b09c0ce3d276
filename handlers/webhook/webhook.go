// Package webhook is the handler that posts an event's exact bytes to one URL.
//
// The request is a CloudEvents 1.0 binary-mode POST, signed as Standard
// Webhooks 1.0.0 says, with the fence, the attempt and the idempotency key in
// headers, so that the receiver can refuse what is stale and repeat nothing.
// One call of Handle writes at most one request: redirects are not followed,
// nothing is replayed by the transport, no proxy is used, and the environment's
// proxy variables are not read.
//
// Statuses are judged by the table in outcome.go. A fault of the connection is
// told apart by whether a byte of the request may have left: if not, the result
// is a retry, which is safe for every effect; if so, it is indeterminate.
package webhook

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"fencepost/edge"
	"fencepost/handlers"
)

// Defaults of a [Config].
const (
	DefaultTimeout      = 20 * time.Second
	DefaultReplyTimeout = 5 * time.Second
	DefaultMaxPause     = 24 * time.Hour
	DefaultConcurrency  = 16
)

// Limits of a [Config].
const (
	MaxURLBytes = 4 << 10
	MaxSecrets  = 8
	MaxHeaders  = 32
)

// Config configures a [Handler]. Zero fields have useful defaults.
type Config struct {
	// URL is required: http or https, without user information and fragment.
	URL string
	// Secrets are references (env:NAME, file:/path) to signing secrets,
	// newest first: whsec_ for v1 (HMAC-SHA256) or whsk_ for v1a (Ed25519).
	// The request carries one signature for each. Without any it is unsigned.
	Secrets []string
	// Headers are sent with each request. A value that begins with env: or
	// file: is a reference to a secret, any other is sent as it is.
	Headers map[string]string
	// Fill makes what an event puts into its request; nil = nothing. It must be
	// pure. An error blocks the delivery with template_error.
	Fill func(*edge.Event) (Content, error)
	// PermanentCodes are statuses after which the delivery is given up, in
	// addition to 413, 415 and 431. Not 2xx, 410 or 429.
	PermanentCodes []int
	// ConflictSucceeds takes 409 for success: the receiver has the event.
	ConflictSucceeds bool
	// Concurrency is how many requests may be under way at once; as many
	// idle connections are kept.
	Concurrency int
	// Timeout bounds an attempt whose context has no earlier deadline.
	Timeout time.Duration
	// ReplyTimeout bounds the reading of a reply's body. The status stands
	// whatever the body does.
	ReplyTimeout time.Duration
	// MaxPause caps what a Retry-After can ask for.
	MaxPause time.Duration
	// RootCAs are the authorities trusted for https; nil = the system's.
	RootCAs *x509.CertPool
	// AllowAddress judges each address before it is dialled, after the name
	// was resolved, such as [handlers.AddressPolicy.Check]. An error refuses
	// it; when no address of the name is left, the delivery is blocked with
	// code address_refused. A URL whose host is a refused address is a fault
	// of the configuration. nil allows all.
	AllowAddress func(netip.Addr) error
	// Resolver looks names up; nil = the system's.
	Resolver *net.Resolver
	// Now is the wall clock, for the timestamp that is signed; nil = time.Now.
	Now func() time.Time
}

// Content is what one event puts into its request.
type Content struct {
	// Headers are sent beside Config.Headers, and like those; but a value is
	// never taken for a reference.
	Headers map[string]string
	// Body and ContentType are sent in place of the event's; with "" as the
	// content type the event's are.
	Body        []byte
	ContentType string
}

// Handler posts events to one URL. It may be used from many goroutines.
type Handler struct {
	config    Config
	url       *url.URL
	transport *http.Transport
}

// New returns a handler, or all faults of the configuration. Secrets are not
// read: that is done at each attempt.
func New(c Config) (*Handler, error) {
	u, err := checkURL(c.URL)
	if err == nil {
		err = checkAddress(u.Hostname(), c.AllowAddress)
	}
	faults := []error{err, checkHeaders(c.Headers), checkCodes(c)}
	if len(c.Secrets) > MaxSecrets {
		faults = append(faults, fmt.Errorf("secrets: %d, the limit is %d", len(c.Secrets), MaxSecrets))
	}
	for i, ref := range c.Secrets {
		if err := handlers.CheckSecretRef(ref); err != nil {
			faults = append(faults, fmt.Errorf("secrets: number %d: %w", i+1, err))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("webhook handler: %w", err)
	}
	c = withDefaults(c)
	return &Handler{config: c, url: u, transport: newTransport(c)}, nil
}

// Handle makes one attempt.
func (h *Handler) Handle(ctx context.Context, c *edge.Claim) edge.Result {
	ctx, cancel := context.WithTimeout(ctx, h.config.Timeout)
	defer cancel()
	req, secrets, fault := h.request(c)
	if fault != nil {
		return *fault
	}
	w := new(wire)
	resp, err := h.transport.RoundTrip(req.WithContext(w.trace(ctx)))
	if err != nil {
		// The next attempt dials anew, and so looks the name up anew.
		h.transport.CloseIdleConnections()
		return w.failure(ctx, err, secrets)
	}
	text, truncated := h.readReply(resp, cancel, handlers.LongestSecret(secrets))
	return h.judge(resp, text, truncated, secrets)
}

// Close closes idle connections.
func (h *Handler) Close() error {
	h.transport.CloseIdleConnections()
	return nil
}

func withDefaults(c Config) Config {
	if c.Concurrency <= 0 {
		c.Concurrency = DefaultConcurrency
	}
	if c.Timeout <= 0 {
		c.Timeout = DefaultTimeout
	}
	if c.ReplyTimeout <= 0 {
		c.ReplyTimeout = DefaultReplyTimeout
	}
	if c.MaxPause <= 0 {
		c.MaxPause = DefaultMaxPause
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

func checkURL(s string) (*url.URL, error) {
	if len(s) > MaxURLBytes {
		return nil, fmt.Errorf("url: %d bytes, the limit is %d", len(s), MaxURLBytes)
	}
	u, err := url.Parse(s)
	if err != nil {
		return nil, errors.New("url: not a URL; write it as https://host/path") // the text may have a secret
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("url: must begin with http:// or https://")
	case u.Hostname() == "":
		return nil, errors.New("url: has no host")
	case u.User != nil:
		return nil, errors.New("url: must not have a user name or password; send an Authorization header whose value is a secret reference")
	case u.Fragment != "":
		return nil, errors.New("url: must not have a fragment")
	}
	return u, nil
}

// checkAddress refuses a host that is an address which would be refused when it is
// dialled, and one that only some resolvers take for an address.
func checkAddress(host string, allow func(netip.Addr) error) error {
	a, err := netip.ParseAddr(host)
	switch {
	case err == nil && allow != nil:
		if err := allow(a.Unmap()); err != nil {
			return fmt.Errorf("url: %w; if it is meant, add allow_addresses = [%q] to the handler", err, a.Unmap().WithZone(""))
		}
	case err != nil && handlers.LooksNumeric(host):
		return errors.New("url: the host is a number and no address; write an address as 192.0.2.1 or [2001:db8::1]")
	}
	return nil
}

func checkCodes(c Config) error {
	for _, code := range c.PermanentCodes {
		switch {
		case code < 300 || code > 599:
			return fmt.Errorf("permanent codes: %d is not a status from 300 to 599", code)
		case code == http.StatusGone || code == http.StatusTooManyRequests:
			return fmt.Errorf("permanent codes: %d has a meaning of its own", code)
		}
	}
	if c.ConflictSucceeds && slices.Contains(c.PermanentCodes, http.StatusConflict) {
		return errors.New("permanent codes: 409 is also said to be success")
	}
	return nil
}
