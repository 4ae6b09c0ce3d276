package edge

import "context"

// Store keeps events, deliveries, executions and leases, and makes every state
// change. Each method is one or a few guarded writes in one transaction and
// returns only after its commit; a method that returns an error has changed
// nothing, unless it says otherwise. All methods may be called from many
// goroutines. Common errors: [ErrClosed], [ErrUnavailable] (may be repeated),
// [ErrStorage] (terminal).
//
// [fencepost/edge/sqlite] is the durable store; [fencepost/edge/edgetest] has
// a model of it in memory.
type Store interface {
	Identity
	Intake
	Dispatch
	Recoverer
	Operator
	Upkeep
	Reader

	// Watch registers fn to be called with the changes of each commit, in
	// commit order, before the calls that made them return. fn must be quick
	// and must not call the store. Only one fn at a time; nil removes it.
	Watch(fn func([]Change))
	// Close ends the store. Calls that wait return ErrClosed.
	Close() error
}

// Identity says who this opening of the store is.
type Identity interface {
	Node() string  // random id of the file, made when it was created or copied to another machine
	Names() Names  // that id, and those that it had before
	Owner() string // random id of this opening
	Clock() *Clock
	// Failed is closed when the store has failed for good ([ErrStorage]).
	Failed() <-chan struct{}
	// Storage tells what the store holds and has left. It does not wait.
	Storage() Storage
}

// Registration is what the store knows of a handler of this process.
type Registration struct {
	Name      string
	Revision  string
	Effect    Effect
	Serial    int64 // of this declaration; each claim made under it carries it
	Slots     int   // per target; 1 = strict
	Limit     int   // deliveries of this handler that this owner may hold at once
	Inspect   bool  // claim first and start later; otherwise both in one commit
	Halt      bool  // on_failure = "halt"
	MaxLosses int   // 0 = DefaultMaxLosses
	Rate      Rate  // of claims; the zero value is no limit
}

// Intake takes events.
type Intake interface {
	// Register declares the handlers of this process, whole: a known handler
	// that is not among them gets the gate GateMissing, one that came back
	// loses it. Deliveries of rs that are blocked for a configuration reason
	// become pending again. limit is how many deliveries this owner may hold
	// in all, leaseMS how long a claim's lease lasts. It may be called again
	// at any time: claims change from one declaration to the next at one
	// commit, and when it returns, every claim made under an earlier one has
	// been given to deliver. On an error the declaration may be in force.
	Register(ctx context.Context, rs []Registration, limit int, leaseMS int64) error
	// SetLimit changes how many deliveries of a registered handler this
	// owner may hold at once, 0 for none, and how many in all. It holds until
	// the next Register.
	SetLimit(handler string, n, total int)
	// Accept stores events with their deliveries, all in one transaction.
	// The answers are in the order of the submissions; a fault of one event
	// is in its answer and does not touch the others; so is ErrBacklogFull.
	// ErrLowSpace: no event is taken now.
	Accept(ctx context.Context, subs []Submission) ([]Accepted, error)
	// AcceptOnce is Accept for a request with a key, which is stored with the
	// answers: the same request again gets them as they were, and changes
	// nothing. [ErrKeyReused]: the key has another fingerprint. When a fault of
	// an event is [ErrBacklogFull], nothing is stored under the key.
	AcceptOnce(ctx context.Context, key RequestKey, subs []Submission) (Kept, error)
}

// Claimed is a claim with the token that fences it.
type Claimed struct {
	Claim
	Token     Token
	Effect    Effect
	Started   bool  // the start was committed with the claim
	ExpiresMS int64 // end of the lease
	Retry     bool  // a retry, not a first try
	Serial    int64 // of the Registration that it was made under
}

// Settlement ends an execution. Of the outcomes, Release takes retry, deferred,
// interrupted and blocked; Settle takes those and succeeded, failed and
// indeterminate.
type Settlement struct {
	Execution     ExecutionID
	Token         Token
	Outcome       Outcome
	Code          string
	Detail        string
	DelayMS       int64 // until the next attempt, for retry and deferred
	MaxAttempts   int   // budget; 0 = no limit by count
	GiveUpAfterMS int64 // budget; 0 = no limit by time
	FollowUps     []Submission
	PauseMS       int64  // close the handler's gate for this long
	GateOff       bool   // close the handler's gate until it is opened
	GateCode      string // why, for PauseMS and GateOff
}

// Settled is the answer to a Settlement.
type Settled struct {
	Delivery  DeliveryID
	State     State // the delivery's state after it
	Code      string
	DueMS     int64 // for Pending
	Repeated  bool  // this very settlement had been stored before
	FollowUps []Accepted
}

// Dispatch is the life of an execution.
type Dispatch interface {
	// Claim claims up to max due deliveries, at most one per strict target,
	// within the limits of Register.
	Claim(ctx context.Context, max int) ([]Claimed, error)
	// Dispatch keeps claiming until ctx is done: after each commit that made
	// something claimable or freed a slot, and when a due time comes. Each
	// claim is given to deliver after its commit; deliver must not block.
	// One Dispatch at a time. It returns when no more calls of deliver will
	// come: nil when ctx is done, else the store's error.
	Dispatch(ctx context.Context, deliver func([]Claimed)) error
	// Start crosses the start barrier: leased to running. It returns Running,
	// or Succeeded when the consumption was there already. ErrLeaseLost: the
	// lease is gone. ErrConflict: refused (lease or delivery expired, cancel
	// asked for, gate closed); the caller releases as interrupted.
	Start(ctx context.Context, e ExecutionID, t Token) (State, error)
	// Renew moves the expiry of the leases named, and voids leases of this
	// owner that have expired and are not named.
	Renew(ctx context.Context, live []Token) (Renewed, error)
	// Release ends an execution that has not started.
	// ErrLeaseLost: the lease is gone; nothing was written.
	Release(ctx context.Context, s Settlement) (Settled, error)
	// Settle ends a started execution. ErrLeaseLost: the token no longer
	// holds; the outcome is kept as the execution's LateOutcome. The same
	// settlement again gives the stored answer; other content for an
	// execution that has ended is ErrConflict.
	Settle(ctx context.Context, s Settlement) (Settled, error)
	// Acquire takes a lease on a target for code that is not a delivery, and
	// creates the target if needed. It is allowed while the target is
	// stalled. ErrBusy: all slots are leased.
	Acquire(ctx context.Context, t Target) (Lease, error)
	// Relinquish ends what Acquire began. ErrLeaseLost: the lease is gone.
	Relinquish(ctx context.Context, e ExecutionID, t Token, o Outcome, code string) error
}

// Renewed is the answer to Renew.
type Renewed struct {
	Lost   []Token // named, but gone
	Cancel []Token // named, and their delivery is to be cancelled
	Voided []Voided
}

// Voided is a lease taken from its owner.
type Voided struct {
	Delivery  DeliveryID // 0 for a lease of Acquire
	Execution ExecutionID
	Target    Target
	Owner     string
	Started   bool
	State     State // the delivery's state after it
	Code      string
}

// Recoverer settles executions whose owner is gone. It can never execute.
type Recoverer interface {
	// DeadOwners lists owners that hold leases and are proven dead.
	DeadOwners(ctx context.Context) ([]string, error)
	// VoidOwner voids all leases of an owner that DeadOwners listed. The
	// caller has seen that none of the owner's child processes is left.
	VoidOwner(ctx context.Context, owner string) ([]Voided, error)
	// VoidStale voids leases of live foreign owners whose expiry has not
	// moved for a full lease on this process's monotonic clock.
	VoidStale(ctx context.Context) ([]Voided, error)
}

// Gate is the stored switch of a handler. Claiming reads it.
type Gate string

const (
	GateOn      Gate = "on"
	GateOff     Gate = "off"     // closed by an operator or by 410 Gone
	GateMissing Gate = "missing" // the configuration does not name the handler
	GatePaused  Gate = "paused"  // closed until ResumeMS
)

// ResolveAs is a person's decision on a blocked delivery.
type ResolveAs string

const (
	ResolveSucceeded ResolveAs = "succeeded"
	ResolveFailed    ResolveAs = "failed"
	// ResolveRetry fails it and puts a new generation in its place in line.
	ResolveRetry ResolveAs = "retry"
)

// Resolution is a person's decision on a blocked delivery, made on the version
// that the person saw.
type Resolution struct {
	Delivery DeliveryID
	Version  int64
	As       ResolveAs
	Reason   string // required
	By       string // who
}

// Redrive makes a new generation of a final delivery.
type Redrive struct {
	Delivery DeliveryID
	Again    bool // also when it succeeded: the effect happens again
	NewKey   bool // a new idempotency key instead of the old one
}

// Operator is what people do. Errors: ErrNotFound; a [TransitionError] when the
// state forbids it (it wraps ErrConflict); ErrInvalid.
type Operator interface {
	// Cancel calls a delivery off: at once before the start; a running one is
	// told, and what is observed is stored. A final one is returned as it is.
	Cancel(ctx context.Context, id DeliveryID) (Delivery, error)
	// Resolve decides a blocked delivery. The answer is the delivery, or with
	// ResolveRetry the new generation.
	Resolve(ctx context.Context, r Resolution) (Delivery, error)
	// Redrive returns the new generation. ErrConflict names the newer
	// generation when there is one already.
	Redrive(ctx context.Context, r Redrive) (Delivery, error)
	// RetryNow makes a waiting retry due now and charges nothing; its gate and
	// its line still hold it. One that is due already is returned as it is.
	RetryNow(ctx context.Context, id DeliveryID) (Delivery, error)
	// Bulk does one verb to up to MaxBulk deliveries in one transaction, each
	// guarded by the version that was seen. The answers are in the order of the
	// items; a refusal of one is in its answer and does not touch the others.
	Bulk(ctx context.Context, b Bulk) ([]BulkResult, error)
	// ResumeTarget ends a halt. ErrConflict when the target is not halted.
	ResumeTarget(ctx context.Context, t Target) (TargetInfo, error)
	// SkipTarget lets the line go past its stall: a held head is cancelled, a
	// blocked one failed (version is the head's), a halt ended.
	SkipTarget(ctx context.Context, t Target, version int64, reason, by string) (TargetInfo, error)
	// SetGate opens a handler's gate (GateOn), closes it (GateOff), or pauses
	// it until resumeMS (GatePaused). A missing handler stays missing.
	SetGate(ctx context.Context, handler string, g Gate, code string, resumeMS int64) (HandlerInfo, error)
	// SetEpisode keeps the episode of a handler, in place of the one it had;
	// the zero value ends it.
	SetEpisode(ctx context.Context, handler string, e Episode) error
	// Reroute gives a delivery blocked with route_error its target, at the
	// tail of the line. When event and target have a delivery already, this
	// one is cancelled.
	Reroute(ctx context.Context, id DeliveryID, to Routed) (Delivery, error)
}

// Swept is the answer of one bounded step of upkeep.
type Swept struct {
	Done int   // rows changed or removed
	More bool  // call again
	Next int64 // when the next one is due, milliseconds UTC; 0 = nothing waits
}

// Upkeep is done in small steps that never hold up other writers for long.
type Upkeep interface {
	// Expire expires up to limit held and pending deliveries whose time has
	// passed. It does nothing while the clock is doubted.
	Expire(ctx context.Context, limit int) (Swept, error)
	// Prune removes up to p.Limit rows that p no longer keeps. It does
	// nothing while the clock is doubted; what finished in that time counts
	// as finished when the doubt has ended.
	Prune(ctx context.Context, p PrunePolicy) (Swept, error)
	// ClockStepped mends stored times after a step of the wall clock, one
	// bounded batch a call. Backward: waiting work is not left further in
	// the future than the largest delay, maxDelayMS. Forward out of a doubted
	// clock (untrusted): relative deadlines of open rows written since
	// sinceMS, the doubtful reading, move with the step.
	ClockStepped(ctx context.Context, stepMS, maxDelayMS, sinceMS int64, limit int) (Swept, error)
}

// Change is one committed change of a delivery. Seq grows by one with each
// change of this opening of the store.
type Change struct {
	Seq       uint64
	AtMS      int64
	Delivery  DeliveryID
	Event     EventID
	Target    Target
	State     State
	Code      string
	Execution ExecutionID // 0 when none is involved
	Outcome   Outcome     // of the execution that the change ended
	Attempts  int
	DueMS     int64 // for Pending
}

// TargetInfo is the stored state of a target.
type TargetInfo struct {
	Target  Target
	Slots   int
	Busy    int   // leases held
	Open    int   // deliveries that are not final
	ReadyMS int64 // when something is claimable; 0 = nothing is
	Stall   Stall
	Stalled DeliveryID // the delivery that the stall names
	Version int64
}

// HandlerInfo is the state of a handler.
type HandlerInfo struct {
	Name     string
	Gate     Gate
	GateCode string
	ResumeMS int64 // for GatePaused
	Revision string
	Version  int64

	Rate        Rate
	RateReadyMS int64   // until when the rate limit lets nothing be claimed; 0 = it does not hold anything up
	Episode     Episode // BeganMS 0 = its other side does not fail
}

// At is the handler as it is at a time: a gate whose pause is over is on. The
// end of a pause is no write.
func (h HandlerInfo) At(nowMS int64) HandlerInfo {
	if h.Gate == GatePaused && h.ResumeMS <= nowMS {
		h.Gate, h.GateCode, h.ResumeMS = GateOn, "", 0
	}
	return h
}

// DeliveryFilter selects deliveries for a page. Zero fields select all.
type DeliveryFilter struct {
	State   State
	Handler string
	Target  *Target
	Code    string
	Event   EventID
	// Type, Source and Subject are those of the event.
	Type, Source, Subject string
	SinceMS, UntilMS      int64 // accepted at or after, and before
	Newest                bool  // only those of which no redrive has made another
	// Before is the keyset cursor: ids below this one. For one target and a
	// state that waits (held, pending, blocked) it is by place in line.
	Before DeliveryID
	Limit  int // 1..MaxPage, 0 = DefaultPage
}

// TargetFilter selects targets for a page.
type TargetFilter struct {
	Handler     string
	OnlyStalled bool
	Stall       Stall  // only targets that are stalled by this
	OnlyOpen    bool   // only targets with deliveries that are not final
	After       Target // keyset cursor: targets after this one, by handler and key
	Limit       int    // 1..MaxPage, 0 = DefaultPage
}

// Facts is all that explains why a delivery is where it is.
type Facts struct {
	Delivery Delivery
	Target   TargetInfo
	Handler  HandlerInfo
	Lease    *Lease      // the lease on the delivery, or for a strict target the one on the target; nil when none
	Head     *Delivery   // first open delivery of a strict line, nil when it is this one; for an unordered delivery that of the line it waits for since ordering was changed
	Ahead    int         // open deliveries of that line before it, counted up to 1000
	Last     *Execution  // the latest execution, nil when none
	Newer    DeliveryID  // the generation that a redrive made of it, 0 when none
	Held     int         // deliveries of the handler that live owners hold
	Doubted  bool        // the clock is doubted
	OnHold   *Loss       // nothing is dispatched because of it; nil when all is well
	Decision *Decision   // how a person decided it after it was blocked, nil when none did
	Fault    string      // why the route fails on the event, of a delivery with route_error; "" when not known. No store knows it, see Engine.RouteFault
	Uplink   UplinkState // of the handler; Name "" = it has none. No store knows it, see Engine.UplinkOf
}

// Decision is a person's stored decision on a blocked delivery.
type Decision struct {
	As     ResolveAs
	Reason string
	By     string
	AtMS   int64
}

// Violation is a broken invariant.
type Violation struct {
	Rule   string // short name of the invariant
	Detail string
}

// Reader answers questions. Reads have a deadline and never hold up writers.
type Reader interface {
	Delivery(ctx context.Context, id DeliveryID) (Delivery, error)
	// Deliveries returns a page, newest first. It looks until the page is full
	// or nothing is left, in short reads; for people, ListDeliveries is better.
	Deliveries(ctx context.Context, f DeliveryFilter) ([]Delivery, error)
	// ListDeliveries returns a page, newest first, after looking at a bounded
	// number of rows.
	ListDeliveries(ctx context.Context, f DeliveryFilter) (DeliveryPage, error)
	// ListEvents returns a page of events without their data, newest first,
	// after looking at a bounded number of rows.
	ListEvents(ctx context.Context, f EventFilter) (EventPage, error)
	Event(ctx context.Context, id EventID) (Event, error)
	Executions(ctx context.Context, id DeliveryID) ([]Execution, error) // oldest first
	Facts(ctx context.Context, id DeliveryID) (Facts, error)
	Targets(ctx context.Context, f TargetFilter) ([]TargetInfo, error) // by handler and key
	// ListTargets is Targets after looking at a bounded number of rows.
	ListTargets(ctx context.Context, f TargetFilter) (TargetPage, error)
	// Backlog says what waits longest, n targets at most, and how fast work is
	// done; it never counts rows.
	Backlog(ctx context.Context, n int) (Backlog, error)
	Handlers(ctx context.Context) ([]HandlerInfo, error) // by name
	Counters(ctx context.Context) (map[string]int64, error)
	// Check reports every broken invariant; full also compares each stored
	// body with its SHA-256.
	Check(ctx context.Context, full bool) ([]Violation, error)
}
