package api

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"time"

	"fencepost/edge"
)

// Door is what the network listener needs of a node.
type Door interface {
	Intake
	Names() edge.Names               // ids of the node, for public ids
	Ready() error                    // nil while the node takes events, and dispatches them unless it is on hold
	Hold() *edge.Loss                // why nothing is dispatched; nil when all is well
	Probe(ctx context.Context) error // touches the database
}

// Options say how the network listener guards itself.
type Options struct {
	// Token is the hash of the bearer token for POST /v1/events. The zero
	// value closes that route to everybody.
	Token TokenHash
	// MetricsToken is the hash of the bearer token for GET /metrics, which
	// lets its holder do nothing else. The zero value closes that route to
	// everybody.
	MetricsToken TokenHash
	// Metrics answers GET /metrics; nil makes it 404.
	Metrics http.Handler
	// Keep tells how long the answer to an Idempotency-Key is kept, which is
	// published with it; nil publishes nothing.
	Keep func() time.Duration
	// Observe is told of each request; nil tells nobody.
	Observe Observer
	// Hosts are the host names that the node answers to, beside the loopback
	// names and the address that a request came in on.
	Hosts []string
	// MaxBody is the limit of the body of one event in bytes; 0 means
	// edge.MaxDataBytes. A batch has edge.MaxBatchBytes.
	MaxBody int
	// ProbeTimeout bounds a health check; 0 means DefaultProbeTimeout.
	ProbeTimeout time.Duration
	// Logger takes the faults of the node; nil discards them.
	Logger *slog.Logger
}

// NewHandler returns the handler of the network listener. It serves the routes
// that the package comment lists; every other path is 404 before anything else
// looks at the request, its host name excepted.
func NewHandler(door Door, o Options) http.Handler {
	f := &faults{logger: orDiscard(o.Logger)}
	in := &intake{names: door.Names, take: door, maxBody: o.MaxBody, keep: o.Keep, fail: f.answer}
	h := newHealth(door, o.ProbeTimeout)
	handlers := map[string]http.HandlerFunc{
		"/v1/events": in.post,
		"/healthz":   h.healthz,
		"/readyz":    h.readyz,
	}
	if o.Metrics != nil {
		handlers["/metrics"] = o.Metrics.ServeHTTP
	}
	allowed := tokens{ScopeEvents: o.Token, ScopeMetrics: o.MetricsToken}
	t := &router{}
	for _, at := range NetworkRoutes {
		if at.Scope == ScopeMetrics && o.Metrics == nil {
			continue
		}
		t.add(at, allowed.require(at.Scope, handlers[at.Path]))
	}
	return observed(o.Observe, f.recover(newHostGuard(o.Hosts, refuseCrossOrigin(t))))
}

// faults answers errors, and logs those that are the node's own. That there is no
// room (507) is not logged for each request: the store says once when that begins
// and once when it ends, and a full disk must not fill with lines that say so.
type faults struct {
	logger *slog.Logger
}

func (f *faults) answer(w http.ResponseWriter, r *http.Request, err error) {
	p := problemOf(err)
	if p.Code == CodeUnavailable && (r.Method == http.MethodGet || r.URL.Path == "/v1/check") {
		p = NewProblem(p.Code, adviceToReaders)
	}
	if p.Status >= http.StatusInternalServerError && p.Status != http.StatusInsufficientStorage && !errors.Is(err, context.Canceled) {
		f.logger.Error("request failed", "method", r.Method, "path", r.URL.Path, "code", p.Code, "err", err)
	}
	writeProblem(w, r, p)
}

// adviceToReaders is for those who asked to see something: nothing was to be stored.
const adviceToReaders = "it could not be read now, or took so long that it held up those who write: ask again later, or for less at once, and check a backup rather than a busy database"

// recover turns a panic into a logged 500.
func (f *faults) recover(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(v)
			}
			f.logger.Error("request panicked", "method", r.Method, "path", r.URL.Path, "panic", v, "stack", string(debug.Stack()))
			writeProblem(w, r, NewProblem(CodeInternal, adviceOf(CodeInternal)))
		}()
		next.ServeHTTP(w, r)
	})
}

// health answers the checks of a supervisor. It says no more than a class of
// fault, since anybody may ask.
type health struct {
	prober *prober
	door   Door
}

func newHealth(door Door, timeout time.Duration) *health {
	if timeout <= 0 {
		timeout = DefaultProbeTimeout
	}
	return &health{prober: &prober{probe: door.Probe, timeout: timeout}, door: door}
}

func (h *health) healthz(w http.ResponseWriter, r *http.Request) {
	h.answer(w, r, h.prober.check(r.Context()), nil)
}

func (h *health) readyz(w http.ResponseWriter, r *http.Request) {
	err := h.door.Ready()
	if err != nil && ClassOf(err).Code == CodeInternal {
		err = NewProblem(CodeNotReady, "the log of the node says why")
	}
	if err == nil {
		err = h.prober.check(r.Context())
	}
	h.answer(w, r, err, h.door.Hold())
}

// answer says ok, or 503: a supervisor must not take a fault of the store for
// anything else. A node on hold takes events, and says that it delivers none.
func (h *health) answer(w http.ResponseWriter, r *http.Request, err error, hold *edge.Loss) {
	if err == nil {
		said := map[string]string{"status": "ok"}
		if hold != nil {
			said["dispatch"] = "on hold: " + string(hold.Kind)
		}
		writeJSON(w, http.StatusOK, "application/json", said)
		return
	}
	code := ClassOf(err).Code
	if code == CodeLowSpace || code == CodeBacklogFull { // 503 here: a supervisor knows no other
		p := NewProblem(code, adviceOf(code))
		p.Status = http.StatusServiceUnavailable
		writeProblem(w, r, p)
		return
	}
	if code == CodeTimeout || classByCode(code).Status != http.StatusServiceUnavailable {
		code = CodeUnavailable
	}
	detail := "the store does not answer"
	if code == CodeNotReady {
		detail = "the log of the node says why"
	}
	writeProblem(w, r, NewProblem(code, detail))
}

// Timeouts bound the parts of a request. Zero fields have the defaults.
type Timeouts struct {
	Header time.Duration // until the header is there; 5 s
	Body   time.Duration // from then until the body is there; 30 s
	Answer time.Duration // for the answer, from the end of the header; 60 s
	Idle   time.Duration // between two requests of a connection; 60 s
}

// maxHeaderBytes is the limit of a request's header.
const maxHeaderBytes = 64 << 10

// NewServer returns a server for handler with every limit set. Serve it on a
// listener of [LimitListener], which it tells apart from others: what has not
// sent a whole request may be closed for newcomers. logger takes what the
// server has to say of broken connections, at level debug; nil discards it.
func NewServer(handler http.Handler, logger *slog.Logger, t Timeouts) *http.Server {
	or := func(d, otherwise time.Duration) time.Duration {
		if d > 0 {
			return d
		}
		return otherwise
	}
	header := or(t.Header, 5*time.Second)
	return &http.Server{
		Handler:                      handler,
		DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout:            header,
		ReadTimeout:                  header + or(t.Body, 30*time.Second),
		WriteTimeout:                 or(t.Answer, time.Minute),
		IdleTimeout:                  or(t.Idle, time.Minute),
		MaxHeaderBytes:               maxHeaderBytes,
		ErrorLog:                     slog.NewLogLogger(orDiscard(logger).Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if lc, ok := c.(*limitedConn); ok {
				return context.WithValue(ctx, connKey{}, lc)
			}
			return withPeer(ctx, c)
		},
		ConnState: func(c net.Conn, s http.ConnState) {
			if lc, ok := c.(*limitedConn); ok && s == http.StateIdle {
				lc.waiting()
			}
		},
	}
}

func orDiscard(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.New(slog.DiscardHandler)
	}
	return l
}
