package edge

import (
	"context"
	"time"
)

// Claim is a claimed delivery: what a handler is given. It is read-only, and
// Event.Data is shared with no one else.
type Claim struct {
	Delivery   DeliveryID
	DeliveryID string // public id
	Event      *Event
	EventID    string // public id
	Target     Target
	Route      string
	// Key is the idempotency key: the same for all attempts and, unless
	// asked otherwise, for all redrives of one event to one target.
	Key string
	// Fence grows with every execution. A receiver that remembers the
	// highest fence it has seen can refuse a stale one.
	Fence   ExecutionID
	Attempt int // from 1
	// DeadlineMS is the delivery's expiry in milliseconds UTC, 0 for none.
	DeadlineMS int64
	// Owner is the random id of this process's opening of the store.
	Owner string
}

// Handler performs deliveries. Handle is called only after the start was
// committed; its result is settled under the same lease. It must return soon
// after ctx is done: ctx ends at the handler's timeout, when cancelling is asked
// for, at shutdown and when the lease is no longer trusted
// (context.Cause tells which). Handle is called from many goroutines at once,
// never twice at once for one strict target. A panic counts as an unknown
// outcome.
type Handler interface {
	Handle(ctx context.Context, c *Claim) Result
}

// HandlerFunc is a function as a [Handler].
type HandlerFunc func(ctx context.Context, c *Claim) Result

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, c *Claim) Result { return f(ctx, c) }

// Inspector is implemented by a handler that can tell before the start whether
// it could work. Inspect must not have side effects. A handler without it is
// claimed and started in one commit.
type Inspector interface {
	Inspect(ctx context.Context, c *Claim) Inspection
}

// Inspection is the answer of an [Inspector]: ready (the zero value), retry or
// blocked.
type Inspection struct {
	Outcome Outcome // "" = ready, OutcomeRetry, OutcomeDeferred or OutcomeBlocked
	Code    string
	Detail  string
	Delay   time.Duration // least delay for retry and deferred
}

// Result is what a handler answers. Use the constructors.
type Result struct {
	Outcome Outcome
	Code    string // see [ValidCode]; "" becomes the outcome's name
	Detail  string // for people; longer than MaxDetailBytes is cut
	// Delay is the least time until the next attempt that the effect's other
	// side asked for (Retry-After). The engine takes the longer of this and
	// its own backoff.
	Delay time.Duration
	// FollowUps are events accepted in the settling transaction. Only with
	// OutcomeSucceeded.
	FollowUps []Event
	// Pause closes the handler's gate for this long: the endpoint asked
	// everyone to slow down.
	Pause time.Duration
	// GateOff closes the handler's gate until an operator opens it.
	GateOff bool
	// Blame says what a retry or an unknown outcome tells of the other side.
	Blame Blame
}

// Done is a succeeded result, with follow-up events if any.
func Done(followUps ...Event) Result {
	return Result{Outcome: OutcomeSucceeded, Code: "ok", FollowUps: followUps}
}

// TryAgain is a charged retry. From a once handler it declares that the effect
// did not begin.
func TryAgain(code, detail string) Result {
	return Result{Outcome: OutcomeRetry, Code: code, Detail: detail}
}

// GiveUp is a failure that repeating cannot help.
func GiveUp(code, detail string) Result {
	return Result{Outcome: OutcomeFailed, Code: code, Detail: detail}
}

// Defer is an uncharged retry after at least delay (and at least one second).
func Defer(code string, delay time.Duration) Result {
	return Result{Outcome: OutcomeDeferred, Code: code, Delay: delay}
}

// Unknown says that the effect may have happened.
func Unknown(code, detail string) Result {
	return Result{Outcome: OutcomeIndeterminate, Code: code, Detail: detail}
}

// Misconfigured says that nothing began because of a fault in the
// configuration. The delivery waits, blocked, until the configuration changes.
func Misconfigured(code, detail string) Result {
	return Result{Outcome: OutcomeBlocked, Code: code, Detail: detail}
}

// HandlerSpec is how a handler is registered with an engine. The zero value of
// each field is a useful default unless stated.
type HandlerSpec struct {
	Name    string  // required: [a-z0-9][a-z0-9_.-]*, at most 64 bytes
	Handler Handler // required
	Effect  Effect  // default Once
	// Revision names the handler's configuration. When it changes, work that
	// is blocked for a configuration reason is tried again.
	Revision string
	// Slots is how many deliveries of one target may run at once: 1 (the
	// default) is strict order, more is unordered.
	Slots int
	// Concurrency is how many deliveries of this handler may run at once;
	// default 16.
	Concurrency int
	// Timeout bounds one execution; default 5 minutes. None is unlimited.
	Timeout time.Duration
	Retry   RetryPolicy
	// HaltOnFailure stops a strict target's line when its head ends as
	// failed, until someone acts. A fault with Slots > 1.
	HaltOnFailure bool
	MaxLosses     int     // default DefaultMaxLosses
	Rate          Rate    // how often deliveries are claimed; default no limit
	Breaker       Breaker // when it rests because its other side fails; default never
	// Uplink names one of [Options].Uplinks, through which its other side is
	// reached; "" = none.
	Uplink string
	// Retired is called once when the handler was replaced or left out by
	// [Engine.Reload], or not taken by it, and its last execution has ended:
	// then Handler may be closed. It must not block. nil = nobody wants to know. Stop does not
	// call it.
	Retired func()
}
