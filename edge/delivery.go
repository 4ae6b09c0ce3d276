package edge

import (
	"fmt"
	"strconv"
	"strings"
)

// DeliveryID is a delivery's number in its store. It is never used twice.
type DeliveryID int64

// State is the state of a delivery. Waiting for a retry is Pending with a later
// due time; a label such as "retrying" is computed for people (see [Explain]).
type State string

const (
	Held      State = "held"      // waits for consent, and for nothing else
	Pending   State = "pending"   // waits for its due time, its line or a worker
	Leased    State = "leased"    // claimed, not started
	Running   State = "running"   // started, under the lease of a live owner
	Blocked   State = "blocked"   // waits for evidence, for configuration or for a person
	Succeeded State = "succeeded" // final: the effect is done, once
	Failed    State = "failed"    // final: given up
	Cancelled State = "cancelled" // final: called off, denied or withdrawn
	Expired   State = "expired"   // final: too late to begin
)

// States are all states of a delivery, in the order in which people read them.
var States = [...]State{Held, Pending, Leased, Running, Blocked, Succeeded, Failed, Cancelled, Expired}

// Final reports whether s is final: a final delivery never changes again.
func (s State) Final() bool {
	switch s {
	case Succeeded, Failed, Cancelled, Expired:
		return true
	}
	return false
}

// Target is a handler and a key: the scope of order and of the lease.
type Target struct {
	Handler string
	Key     string
}

// String is the written form, handler:key.
func (t Target) String() string { return t.Handler + ":" + t.Key }

// ParseTarget reads the written form. The handler ends at the first colon.
func ParseTarget(s string) (Target, error) {
	h, k, ok := strings.Cut(s, ":")
	if !ok || h == "" {
		return Target{}, fmt.Errorf("%w: target %q: write it as handler:key", ErrInvalid, s)
	}
	return Target{Handler: h, Key: k}, nil
}

// RouteErrorKey is the key of the reserved unordered target that takes the
// deliveries whose route failed on their event.
const RouteErrorKey = "!route"

// Stall is what stops a strict target.
type Stall string

const (
	NoStall      Stall = ""
	StallHeld    Stall = "held"    // a held delivery is at the head
	StallBlocked Stall = "blocked" // a blocked delivery is at the head
	StallHalted  Stall = "halted"  // the head failed and the handler says on_failure = "halt"
)

// Delivery is one event owed to one target. Times are milliseconds UTC; 0 means
// not set.
type Delivery struct {
	ID           DeliveryID
	Event        EventID
	Target       Target
	Generation   int        // 1, and one more for each redrive
	RedriveOf    DeliveryID // the generation before, 0 for the first
	KeyOf        DeliveryID // the delivery whose id is the idempotency key
	Again        bool       // made to repeat an effect that succeeded
	Route        string
	Ordered      bool       // takes part in the strict line of its target
	Line         DeliveryID // place in line
	State        State
	DueMS        int64 // earliest next claim
	AcceptedMS   int64
	ExpiresMS    int64
	FirstStartMS int64
	Attempts     int // executions charged to the retry budget
	Losses       int // executions lost to crashes
	Executions   int // all executions, those no longer kept included
	Execution    ExecutionID
	Code         string // why it is in this state
	CancelMS     int64  // when cancelling was asked for
	FinishedMS   int64
	Version      int64 // grows with each change; what a human's decision names
}

// ID kinds of public ids.
const (
	KindDelivery = "dlv"
	KindEvent    = "evt"
)

// FormatID is the public form of a number: kind-node-n.
func FormatID(kind, node string, n int64) string {
	return kind + "-" + node + "-" + strconv.FormatInt(n, 10)
}

// ParseID reads a public id of this kind and node, or the bare number. An id of
// another node is [ErrNotFound]; anything else is [ErrInvalid].
func ParseID(kind, node, s string) (int64, error) {
	digits := s
	if rest, ok := strings.CutPrefix(s, kind+"-"); ok {
		other, n, ok := strings.Cut(rest, "-")
		if !ok {
			return 0, fmt.Errorf("%w: id %q: write it as %s-%s-<number> or as the bare number", ErrInvalid, s, kind, node)
		}
		if other != node {
			return 0, fmt.Errorf("%w: id %q belongs to another node (this one is %s)", ErrNotFound, s, node)
		}
		digits = n
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 1 || strconv.FormatInt(n, 10) != digits {
		return 0, fmt.Errorf("%w: id %q: write it as %s-%s-<number> or as the bare number", ErrInvalid, s, kind, node)
	}
	return n, nil
}
