package edge

import (
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"slices"
	"strconv"
	"strings"
)

// Trace is a place in a distributed trace (W3C Trace Context): the values of the
// headers traceparent and tracestate. The zero value is none.
type Trace struct {
	Parent string // traceparent of version 00, such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
	State  string // tracestate, "" for none
}

// Parts of a traceparent of version 00, and limits of a tracestate.
const (
	traceParentLen   = 55
	traceIDEnd       = 3 + 32
	traceFlags       = 0x03 // sampled, random; the other bits have no meaning yet
	maxTraceMembers  = 32
	maxTraceMember   = 256 // of a key, and of a value
	maxTraceState    = 512 // of the whole, which is the least that must be passed on
	largeTraceMember = 128 // larger members go first
)

// ParseTrace reads the values of the headers traceparent and tracestate. What the
// specification wants to begin a new trace is the zero value: no traceparent or
// more than one, a version ff, upper-case or other digits, ids of zeros only, or
// text after a version 00. Of a later version the part that version 00 has is
// used. A tracestate that is malformed, or comes without a valid traceparent, is
// dropped; of a long one the first members are kept.
func ParseTrace(parents, states []string) Trace {
	if len(parents) != 1 {
		return Trace{}
	}
	parent := parseTraceParent(strings.Trim(parents[0], " \t"))
	if parent == "" {
		return Trace{}
	}
	return Trace{Parent: parent, State: parseTraceState(states)}
}

// ID is the trace id: 32 hexadecimal digits; "" of no trace.
func (t Trace) ID() string {
	if len(t.Parent) != traceParentLen {
		return ""
	}
	return t.Parent[3:traceIDEnd]
}

// parseTraceParent returns s as version 00, "" when it is none.
func parseTraceParent(s string) string {
	if len(s) < traceParentLen || len(s) > traceParentLen && (s[:2] == "00" || s[traceParentLen] != '-') {
		return ""
	}
	s = s[:traceParentLen]
	for i, c := range []byte(s) {
		if dash := i == 2 || i == traceIDEnd || i == traceIDEnd+17; dash != (c == '-') || !dash && !lowerHex(c) {
			return ""
		}
	}
	trace, span := s[3:traceIDEnd], s[traceIDEnd+1:traceIDEnd+17]
	if s[:2] == "ff" || strings.Trim(trace, "0") == "" || strings.Trim(span, "0") == "" {
		return ""
	}
	flags, _ := strconv.ParseUint(s[traceParentLen-2:], 16, 8) // the digits were looked at
	return traceParent(trace, span, byte(flags))
}

func traceParent(trace, span string, flags byte) string {
	return "00-" + trace + "-" + span + "-" + hex.EncodeToString([]byte{flags & traceFlags})
}

func lowerHex(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' }

// parseTraceState joins the members of the headers, "" when one is malformed.
func parseTraceState(values []string) string {
	var members, keys []string
	for _, value := range values {
		for m := range strings.SplitSeq(value, ",") {
			if m = strings.Trim(m, " \t"); m == "" {
				continue
			}
			key, text, ok := strings.Cut(m, "=")
			if !ok || !traceKey(key) || !traceValue(text) || slices.Contains(keys, key) || len(members) == maxTraceMembers {
				return ""
			}
			members, keys = append(members, m), append(keys, key)
		}
	}
	return boundTraceState(members)
}

// boundTraceState leaves out large members, and then the last ones, until the
// rest is short enough.
func boundTraceState(members []string) string {
	size := func() int { return len(strings.Join(members, ",")) }
	for i := len(members) - 1; i >= 0 && size() > maxTraceState; i-- {
		if len(members[i]) > largeTraceMember {
			members = slices.Delete(members, i, i+1)
		}
	}
	for size() > maxTraceState {
		members = members[:len(members)-1]
	}
	return strings.Join(members, ",")
}

// traceKey accepts a simple key, or tenant@system.
func traceKey(key string) bool {
	if key == "" || len(key) > maxTraceMember || strings.Count(key, "@") > 1 {
		return false
	}
	for i, c := range []byte(key) {
		letter := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !letter && (i == 0 || strings.IndexByte("_-*/@", c) < 0) {
			return false
		}
	}
	return !strings.HasSuffix(key, "@") && !strings.Contains(key, "@_") && !strings.Contains(key, "@-")
}

func traceValue(s string) bool {
	if s == "" || len(s) > maxTraceMember || s[len(s)-1] == ' ' {
		return false
	}
	for _, c := range []byte(s) {
		if c < ' ' || c > '~' || c == ',' || c == '=' {
			return false
		}
	}
	return true
}

// TraceOf is the trace that e belongs to: that of the request which brought it,
// else the one of its CloudEvents extensions traceparent and tracestate, else a
// new one that follows from publicID, the event's public id. The last is not
// stored: it is the same whenever it is asked for.
func (e *Event) TraceOf(publicID string) Trace {
	if e.Trace.ID() != "" {
		return e.Trace
	}
	if p, ok := e.Extensions["traceparent"]; ok {
		if t := ParseTrace([]string{p}, []string{e.Extensions["tracestate"]}); t.Parent != "" {
			return t
		}
	}
	sum := sha256.Sum256([]byte("fencepost trace " + publicID))
	return Trace{Parent: traceParent(hex.EncodeToString(sum[:16]), hex.EncodeToString(sum[16:24]), 1)}
}

// Trace is what the attempt tells its other side: the trace of the event, with a
// parent id that belongs to this execution alone.
func (c *Claim) Trace() Trace {
	t := c.Event.TraceOf(c.EventID)
	sum := sha256.Sum256([]byte("fencepost span " + c.DeliveryID + " " + strconv.FormatInt(int64(c.Fence), 10)))
	t.Parent = t.Parent[:traceIDEnd+1] + hex.EncodeToString(sum[:8]) + t.Parent[traceIDEnd+17:]
	return t
}

// traceAttr is the trace id of a claim, worked out only when it is logged.
type traceAttr struct{ c *Claim }

// LogValue is the trace id.
func (a traceAttr) LogValue() slog.Value {
	return slog.StringValue(a.c.Event.TraceOf(a.c.EventID).ID())
}
