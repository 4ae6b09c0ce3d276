package edge

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sort"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of an event. They hold at every door (HTTP, command line, library),
// because [Event.Validate] is the only place that judges an event.
const (
	MaxNameBytes     = 512     // id, source, type, subject and target key, each
	MaxDataBytes     = 1 << 20 // default limit of an event's data
	MaxAttributes    = 64      // context attributes, extensions included
	MaxBatchEvents   = 1000    // events in one Accept
	MaxBatchBytes    = 4 << 20 // bytes of one batch
	MaxFollowUps     = 100     // follow-up events of one settle
	MaxFollowUpDepth = 16      // length of a chain of follow-ups
)

// EventID is an event's number in its store. It is never used twice.
type EventID int64

// Event is an immutable fact, accepted once. The attributes are those of
// CloudEvents 1.0. Source and ID together identify the event: accepting the
// same pair again changes nothing.
type Event struct {
	ID          string            // required, unique within Source
	Source      string            // required, a URI-reference
	Type        string            // required
	Subject     string            // optional
	Time        string            // optional, RFC 3339, kept exactly as received
	ContentType string            // datacontenttype of Data, optional
	Extensions  map[string]string // extension attributes in canonical text form
	Data        []byte            // the bytes exactly as received; nil when pruned

	// Trace is that of the request that brought the event, kept apart from
	// the extensions traceparent and tracestate, which tell of its origin. It
	// is stored with the event and is no part of its identity.
	Trace Trace

	N          EventID // number in the store; 0 before accept
	AcceptedMS int64   // when it was committed, milliseconds UTC; 0 before accept
	Depth      int     // 0, or the length of the chain of follow-ups that led here
}

// Digest is the SHA-256 over type, subject, content type and data, each with
// its length in front, so that no two different events share one input. Two
// accepts of the same (source, id) with different digests conflict.
func (e *Event) Digest() [sha256.Size]byte {
	h := sha256.New()
	var n [8]byte
	for _, part := range [...]string{e.Type, e.Subject, e.ContentType} {
		binary.BigEndian.PutUint64(n[:], uint64(len(part)))
		h.Write(n[:])
		h.Write([]byte(part))
	}
	binary.BigEndian.PutUint64(n[:], uint64(len(e.Data)))
	h.Write(n[:])
	h.Write(e.Data)
	var sum [sha256.Size]byte
	h.Sum(sum[:0])
	return sum
}

// Validate reports the first fault of e as a [*FieldError], which names the
// field and its limit. maxData is the limit of Data in bytes; 0 means
// [MaxDataBytes].
func (e *Event) Validate(maxData int) error {
	if maxData <= 0 {
		maxData = MaxDataBytes
	}
	for _, f := range [...]struct {
		name, value string
		required    bool
	}{
		{"id", e.ID, true},
		{"source", e.Source, true},
		{"type", e.Type, true},
		{"subject", e.Subject, false},
		{"time", e.Time, false},
		{"datacontenttype", e.ContentType, false},
	} {
		if f.required && strings.TrimSpace(f.value) == "" {
			return fieldFault(f.name, "must not be empty")
		}
		if err := validText(f.name, f.value); err != nil {
			return err
		}
	}
	if detail := notReference(e.Source); detail != "" {
		return fieldFault("source", "%q is no URI-reference: %s", e.Source, detail)
	}
	if e.Time != "" {
		if _, err := time.Parse(time.RFC3339Nano, e.Time); err != nil {
			return fieldFault("time", "%q is not an RFC 3339 time, such as 2026-01-31T08:00:00Z", e.Time)
		}
	}
	if len(e.Data) > maxData {
		return fieldFault("data", "%d bytes, the limit is %d", len(e.Data), maxData)
	}
	return e.validateExtensions()
}

// notReference says what keeps s from being a URI-reference (RFC 3986), "" when
// nothing does. Letters outside ASCII are let through, as an IRI has them.
func notReference(s string) string {
	for i, c := range []byte(s) {
		switch {
		case c == ' ' || strings.IndexByte(`"<>\^{|}`+"`", c) >= 0:
			return fmt.Sprintf("percent-encode the character %q", c)
		case c == '%' && (i+2 >= len(s) || !hexDigit(s[i+1]) || !hexDigit(s[i+2])):
			return "a % needs two hexadecimal digits after it"
		}
	}
	return ""
}

func hexDigit(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func (e *Event) validateExtensions() error {
	const core = 7 // id, source, type, specversion, subject, time, datacontenttype
	if n := len(e.Extensions) + core; n > MaxAttributes {
		return fieldFault("attributes", "%d, the limit is %d", n, MaxAttributes)
	}
	names := make([]string, 0, len(e.Extensions))
	for name := range e.Extensions {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if !validExtensionName(name) {
			return fieldFault("extensions", "%q: a name has 1 to 20 lower-case letters and digits and is none of the CloudEvents attributes", name)
		}
		if err := validText(name, e.Extensions[name]); err != nil {
			return err
		}
	}
	return nil
}

func validText(field, s string) error {
	if len(s) > MaxNameBytes {
		return fieldFault(field, "%d bytes, the limit is %d", len(s), MaxNameBytes)
	}
	if !utf8.ValidString(s) {
		return fieldFault(field, "not valid UTF-8")
	}
	for _, r := range s {
		if r < 0x20 || r >= 0x7f && r <= 0x9f {
			return fieldFault(field, "control character %U is not allowed", r)
		}
	}
	return nil
}

func fieldFault(field, format string, args ...any) error {
	return &FieldError{Field: field, Detail: fmt.Sprintf(format, args...)}
}

func validExtensionName(name string) bool {
	switch name {
	case "", "id", "source", "type", "specversion", "subject", "time", "datacontenttype", "data":
		return false
	}
	if len(name) > 20 {
		return false
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// Routed says that an event is owed to one target: what a route decided.
type Routed struct {
	Route   string // the route's name
	Handler string // the handler's name
	Key     string // the target's key; "" is one line for the whole handler
	// TTLMS: the delivery expires this long after accept; 0 = never, below 0 =
	// that time has passed already, so it is accepted and never claimed.
	TTLMS int64
	// Fault is the reason why the route's expression or key failed on this
	// event; "" when it did not. The delivery is then accepted as blocked
	// with code route_error on the reserved target handler:!route.
	Fault string
}

// DefaultKey is the target key of an event for which the route names none: the
// extension partitionkey, else the subject, else one line for the handler.
func DefaultKey(e *Event) string {
	if k := e.Extensions["partitionkey"]; k != "" {
		return k
	}
	return e.Subject
}

// Submission is an event with the targets it is owed to.
type Submission struct {
	Event  Event
	Routes []Routed // two routes to one target make one delivery
	Exempt bool     // from the bound of the backlog: the node's own
}

// Accepted is the answer to one accepted event.
type Accepted struct {
	Event      EventID
	Existing   bool          // the event was there already; nothing changed
	Deliveries []DeliveryRef // those of the event's first generation
	Err        error         // ErrConflict or ErrInvalid for this event alone; nothing was stored
}

// DeliveryRef names a delivery and its state.
type DeliveryRef struct {
	ID     DeliveryID
	Target Target
	State  State
}
