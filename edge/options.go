package edge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Router decides to which targets an event is owed. Route must not change the
// event, has no side effects and may be called from many goroutines.
type Router interface {
	Route(e *Event) []Routed
}

// RouterFunc is a function as a [Router].
type RouterFunc func(e *Event) []Routed

// Route calls f.
func (f RouterFunc) Route(e *Event) []Routed { return f(e) }

// Options configures an [Engine]. The zero value of each field is usable and
// means what its comment states.
type Options struct {
	// Handlers are the handlers of this process. None is allowed: events are
	// then only stored.
	Handlers []HandlerSpec
	// Uplinks are the ways to the outside that handlers name.
	Uplinks []Uplink
	// Router routes accepted events and follow-ups; nil = events are stored
	// and go nowhere.
	Router Router
	// Workers is how many deliveries run at once in all; 0 = 64.
	Workers int
	// Lease is how long a lease lasts without being renewed; 0 = 60 s. From
	// 1 s to 10 min.
	Lease time.Duration
	// Logger takes the engine's log; nil discards it.
	Logger *slog.Logger
	// ShutdownGrace is how long running handlers may go on after Stop before
	// their contexts are cancelled; 0 = 20 s.
	ShutdownGrace time.Duration
	// ShutdownWait is how long Stop then waits for them to return; 0 = 900 ms,
	// so that a node is gone within a second after the grace.
	ShutdownWait time.Duration
	// InspectTimeout bounds one inspection; 0 = 10 s. A shorter timeout of
	// the handler holds as well.
	InspectTimeout time.Duration
	// MaxDataBytes is the limit of an event's data; 0 = 1 MiB.
	MaxDataBytes int
	// Retention is what is kept of work that is done.
	Retention Retention
	// KillOwner ends the child processes that a dead owner left, sees them
	// gone and returns how many there were. An error leaves that owner's
	// leases alone until a later try. nil = handlers leave no children.
	KillOwner func(ctx context.Context, owner string) (int, error)
	// Shared says that other processes work on the same store, so that the
	// engine looks for their death every 5 s.
	Shared bool
	// StubbornAfter is how long a handler may go on after its context is done
	// before it counts as stubborn; 0 = 5 s.
	StubbornAfter time.Duration
	// MaxStubborn is how many stubborn handlers get their slot replaced; past
	// it the engine is not ready. 0 = 8, below 0 = none.
	MaxStubborn int
	// ClockSynced tells whether the host's clock is synchronised; nil = that
	// is never known, and only [Engine.ConfirmClock] ends a doubt.
	ClockSynced func() bool
	// EarliestMS is a time known to have passed, such as the build date; a
	// clock that reads earlier is doubted. 0 = none is known.
	EarliestMS int64
	// Ended is told of each execution of a handler that has ended: its
	// outcome, and how long it took from the claim to the stored end. It is
	// called from many goroutines and must be quick. nil tells nobody.
	Ended func(handler string, outcome Outcome, took time.Duration)
	// Jitter draws from [0, 1) for retry delays; nil = at random.
	Jitter func() float64
}

// Bounds and defaults of Options and HandlerSpec.
const (
	defaultWorkers        = 64
	maxWorkers            = 10000
	minLease              = time.Second
	maxLease              = 10 * time.Minute
	defaultGrace          = 20 * time.Second
	defaultShutdownWait   = 900 * time.Millisecond
	defaultInspectTimeout = 10 * time.Second
	defaultStubbornAfter  = 5 * time.Second
	defaultMaxStubborn    = 8
	defaultConcurrency    = 16
	defaultTimeout        = 5 * time.Minute
	maxTimeout            = 24 * time.Hour
	maxSlots              = 1000
	maxRetryDelay         = 31 * 24 * time.Hour
	maxAttemptsLimit      = 10000
	maxHandlerName        = 64
)

// withDefaults returns o with each zero value replaced by its meaning.
func (o Options) withDefaults() Options {
	orInt(&o.Workers, defaultWorkers)
	orInt(&o.MaxDataBytes, MaxDataBytes)
	orInt(&o.MaxStubborn, defaultMaxStubborn)
	orDuration(&o.Lease, DefaultLease)
	orDuration(&o.ShutdownGrace, defaultGrace)
	orDuration(&o.ShutdownWait, defaultShutdownWait)
	orDuration(&o.InspectTimeout, defaultInspectTimeout)
	orDuration(&o.StubbornAfter, defaultStubbornAfter)
	o.Retention = o.Retention.withDefaults()
	o.MaxStubborn = max(o.MaxStubborn, 0)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	hs := make([]HandlerSpec, len(o.Handlers))
	for i, h := range o.Handlers {
		hs[i] = h.withDefaults()
	}
	o.Handlers = hs
	us := make([]Uplink, len(o.Uplinks))
	for i, u := range o.Uplinks {
		us[i] = u.withDefaults()
	}
	o.Uplinks = us
	return o
}

func (h HandlerSpec) withDefaults() HandlerSpec {
	if h.Effect == "" {
		h.Effect = Once
	}
	orInt(&h.Slots, 1)
	orInt(&h.Concurrency, defaultConcurrency)
	orInt(&h.MaxLosses, DefaultMaxLosses)
	orDuration(&h.Timeout, defaultTimeout)
	return h
}

func orInt(v *int, def int) {
	if *v == 0 {
		*v = def
	}
}

func orDuration(v *time.Duration, def time.Duration) {
	if *v == 0 {
		*v = def
	}
}

// validate reports all faults of o, which has its defaults, as one error that
// wraps [ErrInvalid].
func (o Options) validate() error {
	var faults []error
	fault := func(format string, a ...any) {
		faults = append(faults, fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, a...)...))
	}
	if o.Workers < 1 || o.Workers > maxWorkers {
		fault("Workers: %d, must be 1 to %d", o.Workers, maxWorkers)
	}
	if o.Lease < minLease || o.Lease > maxLease {
		fault("Lease: %s, must be %s to %s", o.Lease, minLease, maxLease)
	}
	if o.MaxDataBytes < 0 {
		fault("MaxDataBytes: %d, must not be negative", o.MaxDataBytes)
	}
	for _, d := range [...]struct {
		name string
		d    time.Duration
	}{
		{"ShutdownGrace", o.ShutdownGrace}, {"ShutdownWait", o.ShutdownWait},
		{"InspectTimeout", o.InspectTimeout}, {"StubbornAfter", o.StubbornAfter},
	} {
		if d.d < 0 {
			fault("%s: %s, must not be negative", d.name, d.d)
		}
	}
	uplinks := map[string]bool{"": true}
	for i, u := range o.Uplinks {
		if uplinks[u.Name] && u.Name != "" {
			fault("Uplinks[%d] %q: the name is used twice", i, u.Name)
		}
		uplinks[u.Name] = true
		if err := u.validate(); err != nil {
			fault("Uplinks[%d] %q: %w", i, u.Name, err)
		}
	}
	seen := map[string]bool{}
	for i, h := range o.Handlers {
		if !uplinks[h.Uplink] {
			fault("Handlers[%d] %q: Uplink: none is named %q", i, h.Name, h.Uplink)
		}
		if seen[h.Name] {
			fault("Handlers[%d] %q: the name is used twice", i, h.Name)
		}
		seen[h.Name] = true
		if err := h.validate(); err != nil {
			fault("Handlers[%d] %q: %w", i, h.Name, err)
		}
	}
	return errors.Join(faults...)
}

// validate reports all faults of h, which has its defaults.
func (h HandlerSpec) validate() error {
	var faults []error
	fault := func(format string, a ...any) { faults = append(faults, fmt.Errorf(format, a...)) }
	if !ValidHandlerName(h.Name) {
		fault("Name: must be 1 to %d bytes of the form [a-z0-9][a-z0-9_.-]*", maxHandlerName)
	}
	if h.Handler == nil {
		fault("Handler: must be set")
	}
	switch h.Effect {
	case Idempotent, Transactional, Once:
	default:
		fault("Effect: %q, must be %s, %s or %s", h.Effect, Idempotent, Transactional, Once)
	}
	if h.Slots < 1 || h.Slots > maxSlots {
		fault("Slots: %d, must be 1 to %d", h.Slots, maxSlots)
	}
	if h.HaltOnFailure && h.Slots > 1 {
		fault("HaltOnFailure: needs strict order, but Slots is %d; set Slots to 1", h.Slots)
	}
	if h.Concurrency < 1 || h.Concurrency > maxWorkers {
		fault("Concurrency: %d, must be 1 to %d", h.Concurrency, maxWorkers)
	}
	if h.Timeout < 0 || h.Timeout > maxTimeout {
		fault("Timeout: %s, must be more than 0 and at most %s", h.Timeout, maxTimeout)
	}
	if h.MaxLosses < 0 {
		fault("MaxLosses: %d, must not be negative", h.MaxLosses)
	}
	for _, err := range []error{h.Retry.validate(), h.Rate.Validate(), h.Breaker.validate()} {
		if err != nil {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

// validate reports the first fault of p.
func (p RetryPolicy) validate() error {
	for i, d := range p.Schedule {
		if d <= 0 || d > maxRetryDelay {
			return fmt.Errorf("Retry.Schedule[%d]: %s, must be more than 0 and at most %s", i, d, maxRetryDelay)
		}
	}
	switch {
	case p.Base < 0 || p.Base > maxRetryDelay:
		return fmt.Errorf("Retry.Base: %s, must be 0 to %s", p.Base, maxRetryDelay)
	case p.Max < 0 || p.Max > maxRetryDelay:
		return fmt.Errorf("Retry.Max: %s, must be 0 to %s", p.Max, maxRetryDelay)
	case p.Max > 0 && p.Base > p.Max:
		return fmt.Errorf("Retry.Base: %s is above Retry.Max, %s", p.Base, p.Max)
	case p.MaxAttempts < 0 || p.MaxAttempts > maxAttemptsLimit:
		return fmt.Errorf("Retry.MaxAttempts: %d, must be 0 to %d", p.MaxAttempts, maxAttemptsLimit)
	case p.GiveUpAfter < 0:
		return fmt.Errorf("Retry.GiveUpAfter: %s, must not be negative", p.GiveUpAfter)
	}
	return nil
}

// ValidHandlerName reports whether s has the form of a handler's name:
// [a-z0-9][a-z0-9_.-]*, at most 64 bytes.
func ValidHandlerName(s string) bool {
	if s == "" || len(s) > maxHandlerName {
		return false
	}
	for i, c := range []byte(s) {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
		case i > 0 && (c == '_' || c == '.' || c == '-'):
		default:
			return false
		}
	}
	return true
}
