package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"fencepost/handlers"
	"fencepost/handlers/webhook"
)

// ListenOptions configure [Listen]. Zero fields have useful defaults.
type ListenOptions struct {
	// Addr is host:port; without a host it is 127.0.0.1, and "" is a free
	// port of it.
	Addr string
	// Secrets verify signatures: whsec_, whsk_ or whpk_ secrets, or
	// references env:NAME and file:/path to them.
	Secrets []string
	// Status is the reply's status. With Fail it is that of the failing
	// replies (default 500), else that of all (default 200). When it is not
	// given and there are Secrets, a request without a right signature gets
	// 401.
	Status int
	// Delay is the time before each reply.
	Delay time.Duration
	// Fail makes the first Fail requests fail; those after it get 200.
	Fail int
	// Close closes the connection instead of replying: for the first Fail
	// requests, or for all when Fail is 0.
	Close bool
	// RetryAfter is the Retry-After header of replies that are not 2xx.
	RetryAfter string
	// JSON prints one JSON object a line instead of text.
	JSON bool
	// Now is the wall clock; nil = time.Now.
	Now func() time.Time
}

const (
	listenMaxBody   = 8 << 20  // bytes of a request that are read
	listenShowText  = 1 << 10  // bytes of a body in a line of text
	listenShowJSON  = 64 << 10 // bytes of a body in a line of JSON
	listenShowField = 600
	listenRemember  = 10_000 // webhook ids and targets
)

// Listen is a small receiver for trying webhooks out: it prints what arrives
// until ctx is done, says whether signatures are right, notes repeated webhook
// ids and stale fences, and replies as told: also late, badly or not at all.
// The first line printed is the address it listens on.
func Listen(ctx context.Context, o ListenOptions, out io.Writer) error {
	r, err := newReceiver(o, out)
	if err != nil {
		return err
	}
	addr, err := listenAddr(o.Addr)
	if err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return &addressError{err}
	}
	if err := r.printStart("http://" + l.Addr().String()); err != nil {
		_ = l.Close()
		return err
	}
	return r.serve(ctx, l)
}

// addressError says that the address of a receiver cannot be had.
type addressError struct{ cause error }

func (e *addressError) Error() string { return "listen: " + e.cause.Error() }
func (e *addressError) Unwrap() error { return e.cause }

func listenAddr(addr string) (string, error) {
	if addr == "" {
		return "127.0.0.1:0", nil
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", fmt.Errorf("listen: address %q: write it as host:port or :port", addr)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}

// receiver answers requests and prints them.
type receiver struct {
	o    ListenOptions
	keys []webhook.Key
	stop context.CancelCauseFunc

	mu     sync.Mutex // everything below, and the order of lines
	out    io.Writer
	count  int
	ids    *memory[int]   // webhook id to times seen
	fences *memory[int64] // target to highest fence
}

func newReceiver(o ListenOptions, out io.Writer) (*receiver, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Status != 0 && (o.Status < 200 || o.Status > 599) {
		return nil, fmt.Errorf("listen: status %d is not from 200 to 599", o.Status)
	}
	if o.Fail < 0 || o.Delay < 0 {
		return nil, errors.New("listen: fail and delay must not be negative")
	}
	if strings.ContainsAny(o.RetryAfter, "\r\n\x00") {
		return nil, errors.New("listen: retry-after has a control character")
	}
	r := &receiver{o: o, out: out, ids: newMemory[int](listenRemember), fences: newMemory[int64](listenRemember)}
	for i, s := range o.Secrets {
		v, _, err := handlers.ResolveValue(s)
		if err != nil {
			return nil, fmt.Errorf("listen: secret %d: %w", i+1, err)
		}
		k, err := webhook.ParseKey(v)
		if err != nil {
			return nil, fmt.Errorf("listen: secret %d: %w", i+1, err)
		}
		r.keys = append(r.keys, k)
	}
	return r, nil
}

func (r *receiver) serve(ctx context.Context, l net.Listener) error {
	ctx, r.stop = context.WithCancelCause(ctx)
	defer r.stop(nil)
	s := &http.Server{
		Handler:           r,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("listen: %w", err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if s.Shutdown(grace) != nil {
		_ = s.Close() // what is left is given up
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("listen: %w", err)
	}
	var printing *printError
	if errors.As(context.Cause(ctx), &printing) {
		return printing
	}
	return nil
}

type printError struct{ cause error }

func (e *printError) Error() string { return "listen: print: " + e.cause.Error() }
func (e *printError) Unwrap() error { return e.cause }

// ServeHTTP takes one request.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(io.LimitReader(req.Body, listenMaxBody+1))
	if err != nil {
		return // the sender went away
	}
	if len(body) > listenMaxBody {
		http.Error(w, fmt.Sprintf("the body is longer than %d bytes", listenMaxBody), http.StatusRequestEntityTooLarge)
		return
	}
	a := r.arrived(req, body)
	if r.o.Delay > 0 {
		// The server's read timeout would end a long delay.
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
		timer := time.NewTimer(r.o.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-req.Context().Done():
			return
		}
	}
	if a.Closed {
		panic(http.ErrAbortHandler) // closes the connection without a reply
	}
	if r.o.RetryAfter != "" && a.Status >= 300 {
		w.Header().Set("Retry-After", r.o.RetryAfter)
	}
	w.WriteHeader(a.Status)
}

// arrival is what is printed of a request.
type arrival struct {
	Time          string `json:"time"`
	Method        string `json:"method"`
	Path          string `json:"path"`
	WebhookID     string `json:"webhook_id,omitempty"`
	Delivery      string `json:"delivery,omitempty"`
	Target        string `json:"target,omitempty"`
	Fence         string `json:"fence,omitempty"`
	Attempt       string `json:"attempt,omitempty"`
	Type          string `json:"type,omitempty"`
	Source        string `json:"source,omitempty"`
	ID            string `json:"id,omitempty"`
	Subject       string `json:"subject,omitempty"`
	ContentType   string `json:"content_type,omitempty"`
	Verified      string `json:"verified"` // verified, BAD, unsigned, or unchecked without a secret
	Why           string `json:"why,omitempty"`
	Seen          int    `json:"seen"` // times this webhook id has arrived
	Stale         bool   `json:"stale"`
	Highest       int64  `json:"highest_fence,omitempty"`
	Status        int    `json:"status"` // of the reply
	Closed        bool   `json:"closed"` // no reply
	Bytes         int    `json:"bytes"`
	SHA256        string `json:"sha256"`
	Body          string `json:"body"`
	BodyTruncated bool   `json:"body_truncated"`

	raw []byte
}

func (r *receiver) arrived(req *http.Request, body []byte) arrival {
	sum := sha256.Sum256(body)
	h := req.Header
	a := arrival{
		Method: req.Method, Path: req.URL.EscapedPath(),
		WebhookID: h.Get(webhook.HeaderID), Delivery: h.Get(webhook.HeaderDelivery),
		Target: h.Get(webhook.HeaderTarget), Fence: h.Get(webhook.HeaderFence), Attempt: h.Get(webhook.HeaderAttempt),
		Type: h.Get("Ce-Type"), Source: h.Get("Ce-Source"), ID: h.Get("Ce-Id"), Subject: h.Get("Ce-Subject"),
		ContentType: h.Get("Content-Type"),
		Bytes:       len(body), SHA256: hex.EncodeToString(sum[:]),
		raw: body,
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.o.Now()
	a.Time = now.Format("2006-01-02T15:04:05.000Z07:00")
	a.Verified, a.Why = r.verify(h, body, now)
	r.note(&a)
	r.plan(&a)
	if err := r.print(&a); err != nil {
		r.stop(&printError{err})
	}
	return a
}

func (r *receiver) verify(h http.Header, body []byte, now time.Time) (verdict, why string) {
	err := webhook.Verify(r.keys, h, body, now)
	switch {
	case errors.Is(err, webhook.ErrUnsigned):
		return "unsigned", ""
	case len(r.keys) == 0:
		return "unchecked", ""
	case err != nil:
		return "BAD", err.Error()
	}
	return "verified", ""
}

// note counts the webhook id and compares the fence with the highest of its
// target. A request whose signature is wrong counts for nothing.
func (r *receiver) note(a *arrival) {
	if a.Verified == "BAD" {
		return
	}
	if a.WebhookID != "" {
		a.Seen = r.ids.get(a.WebhookID) + 1
		r.ids.set(a.WebhookID, a.Seen)
	}
	fence, err := strconv.ParseInt(a.Fence, 10, 64)
	if err != nil || a.Target == "" {
		return
	}
	highest := r.fences.get(a.Target)
	a.Stale, a.Highest = fence < highest, max(fence, highest)
	r.fences.set(a.Target, a.Highest)
}

// plan decides the reply.
func (r *receiver) plan(a *arrival) {
	r.count++
	failing := r.o.Fail == 0 || r.count <= r.o.Fail
	a.Closed = r.o.Close && failing
	a.Status = http.StatusOK
	switch {
	case a.Closed:
		a.Status = 0
	case r.o.Status != 0 && failing:
		a.Status = r.o.Status
	case r.o.Fail > 0 && failing:
		a.Status = http.StatusInternalServerError
	case r.o.Status == 0 && len(r.keys) > 0 && a.Verified != "verified":
		a.Status = http.StatusUnauthorized
	}
}

func (r *receiver) printStart(url string) error {
	if r.o.JSON {
		return r.printJSON(map[string]string{"listening": url})
	}
	_, err := fmt.Fprintf(r.out, "listening on %s\n", url)
	return err
}

func (r *receiver) print(a *arrival) error {
	if r.o.JSON {
		shown := a.raw[:min(len(a.raw), listenShowJSON)]
		a.Body, a.BodyTruncated = string(shown), len(shown) < len(a.raw)
		if !utf8.Valid(shown) {
			a.Body = handlers.Line(string(shown), listenShowJSON)
		}
		return r.printJSON(a)
	}
	line := a.text()
	if len(a.raw) > 0 {
		line += "    " + handlers.Line(string(a.raw[:min(len(a.raw), listenShowText+1)]), listenShowText) + "\n"
	}
	_, err := io.WriteString(r.out, line)
	return err
}

func (r *receiver) printJSON(v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := r.out.Write(b.Bytes())
	return err
}

func (a *arrival) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s %s", a.Time, handlers.Line(a.Method, 32), handlers.Line(a.Path, listenShowField), a.Verified)
	if a.Why != "" {
		fmt.Fprintf(&b, " (%s)", a.Why)
	}
	for _, f := range [...]struct{ name, value string }{
		{"webhook-id", a.WebhookID}, {"delivery", a.Delivery}, {"target", a.Target}, {"fence", a.Fence},
		{"attempt", a.Attempt}, {"type", a.Type}, {"subject", a.Subject},
	} {
		if f.value != "" {
			fmt.Fprintf(&b, " %s=%s", f.name, handlers.Line(f.value, listenShowField))
		}
	}
	fmt.Fprintf(&b, " %d bytes", a.Bytes)
	if a.Seen > 1 {
		fmt.Fprintf(&b, " [REPEAT: seen %d times]", a.Seen)
	}
	if a.Stale {
		fmt.Fprintf(&b, " [STALE FENCE: %d was seen]", a.Highest)
	}
	if a.Closed {
		b.WriteString(" -> closed without a reply\n")
	} else {
		fmt.Fprintf(&b, " -> %d\n", a.Status)
	}
	return b.String()
}

// memory is a map that forgets what was added first when it is full.
type memory[V any] struct {
	limit  int
	values map[string]V
	order  []string
}

func newMemory[V any](limit int) *memory[V] {
	return &memory[V]{limit: limit, values: map[string]V{}}
}

func (m *memory[V]) get(key string) V { return m.values[cutKey(key)] }

// cutKey bounds what one hostile header can make us remember.
func cutKey(key string) string { return key[:min(len(key), 512)] }

func (m *memory[V]) set(key string, v V) {
	key = strings.Clone(cutKey(key))
	if _, known := m.values[key]; !known {
		if len(m.order) >= m.limit {
			delete(m.values, m.order[0])
			m.order = slices.Delete(m.order, 0, 1)
		}
		m.order = append(m.order, key)
	}
	m.values[key] = v
}
