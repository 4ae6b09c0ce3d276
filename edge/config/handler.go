package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"fencepost/edge"
)

// kindKeys are the keys that belong to one kind only.
var kindKeys = map[Kind][]string{
	KindWebhook: {"url", "secrets", "headers", "body", "content_type", "permanent_status", "success_409", "allow_addresses"},
	KindCommand: {"argv", "dir", "env", "stdin", "success_exit", "retry_exit"},
	KindLog:     {},
}

// maxOnceAttempts is the most attempts of a handler whose effect is once.
const maxOnceAttempts = 16

const secondsPerDay = 24 * 60 * 60

func readHandler(t *table) Handler {
	name := readName(t)
	kind, ok := t.oneOf("kind", string(KindWebhook), string(KindCommand), string(KindLog))
	if !t.has("kind") {
		t.fault("", "kind is missing", "one of "+quoteAll([]string{string(KindWebhook), string(KindCommand), string(KindLog)}))
	}
	h := defaultHandler(Kind(kind))
	h.Name = name
	h.Line = t.doc.line(t.path)
	readEffort(t, &h)
	readOrdering(t, &h)
	readRetry(t, &h)
	readEndpoint(t, &h)
	switch h.Kind {
	case KindWebhook:
		readWebhook(t, h.Webhook)
	case KindCommand:
		readCommand(t, h.Command)
	case KindLog:
	}
	foreignKeys(t, h.Kind, ok)
	t.unknown()
	return h
}

// foreignKeys notes the keys of other kinds. When the kind itself is not known
// they are passed over: that is one fault, not many.
func foreignKeys(t *table, kind Kind, ok bool) {
	for _, other := range []Kind{KindWebhook, KindCommand} {
		if other == kind {
			continue
		}
		for _, key := range kindKeys[other] {
			if !t.has(key) {
				continue
			}
			t.known = append(t.known, key)
			if ok {
				t.fault(key, "belongs to kind "+string(other), "this handler is of kind "+string(kind)+"; remove the key or change the kind")
			}
		}
	}
}

// readEffort reads what bounds an execution.
func readEffort(t *table, h *Handler) {
	if s, ok := t.oneOf("effect", string(edge.Idempotent), string(edge.Once)); ok {
		h.Effect = edge.Effect(s)
	}
	if n, ok := t.number("concurrency", 1, 1024); ok {
		h.Concurrency = n
	}
	if d, ok := t.duration("timeout_s", time.Second, 1, secondsPerDay); ok {
		h.Timeout = d
	}
	if n, ok := t.number("max_losses", 1, 1000); ok {
		h.MaxLosses = n
	}
}

// readOrdering reads ordering, slots and on_failure, which depend on each other.
func readOrdering(t *table, h *Handler) {
	ordering, ok := t.oneOf("ordering", "strict", "none")
	unknown := t.has("ordering") && !ok // one fault, not several
	if ordering == "none" {
		h.Slots = 4
	}
	if n, ok := t.number("slots", 1, 64); ok {
		switch {
		case unknown:
		case ordering == "none" && n == 1:
			t.fault("slots", "one at a time is strict order", `2 to 64, or ordering = "strict"`)
		case ordering != "none" && n > 1:
			t.fault("slots", "more than one at a time is not in order", `1, or ordering = "none"`)
		default:
			h.Slots = n
		}
	}
	onFailure, ok := t.oneOf("on_failure", "continue", "halt")
	h.Halt = onFailure == "halt"
	if ok && h.Halt && ordering == "none" {
		t.fault("on_failure", "there is no line to halt", `"continue", or ordering = "strict"`)
	}
}

// readRetry reads when to try again and when to give up.
func readRetry(t *table, h *Handler) {
	schedule, hasSchedule := t.numbers("retry_schedule_s", 1, 30*secondsPerDay, false)
	base, hasBase := t.duration("retry_base_s", time.Second, 1, secondsPerDay)
	limit, hasLimit := t.duration("retry_max_s", time.Second, 1, 30*secondsPerDay)
	switch {
	case len(schedule) > 0:
		h.Retry = edge.RetryPolicy{Schedule: seconds(schedule), GiveUpAfter: day}
		for _, key := range []string{"retry_base_s", "retry_max_s"} {
			if t.has(key) {
				t.fault(key, "excludes retry_schedule_s", "give one of the two")
			}
		}
	case hasSchedule || hasBase || hasLimit:
		h.Retry = edge.RetryPolicy{Base: time.Second, Max: time.Minute, MaxAttempts: 5}
		if hasBase {
			h.Retry.Base = base
			h.Retry.Max = max(base, h.Retry.Max)
		}
		if hasLimit {
			h.Retry.Max = limit
		}
		if h.Retry.Max < h.Retry.Base {
			t.fault("retry_max_s", "is less than retry_base_s", "at least retry_base_s")
		}
	}
	if n, ok := t.number("max_attempts", 1, 1000); ok {
		h.Retry.MaxAttempts = n
	}
	if d, ok := t.duration("give_up_after_h", time.Hour, 1, 365*24); ok {
		h.Retry.GiveUpAfter = d
	}
	if h.Effect != edge.Once {
		return
	}
	if h.Retry.MaxAttempts > maxOnceAttempts {
		t.fault("max_attempts", fmt.Sprintf("%d is out of range", h.Retry.MaxAttempts), fmt.Sprintf(`1 to %d when effect is "once"`, maxOnceAttempts))
	}
	if h.Retry.MaxAttempts == 0 {
		h.Retry.MaxAttempts = maxOnceAttempts
	}
}

func seconds(list []int) []time.Duration {
	out := make([]time.Duration, len(list))
	for i, n := range list {
		out[i] = time.Duration(n) * time.Second
	}
	return out
}

// readName reads the required name of a handler or route.
func readName(t *table) string {
	const form = "lower-case letters, digits, _ . - and a letter or digit first, at most 64"
	name, _ := t.text("name", func(s string) (string, string) {
		if !validName(s) {
			return "not a name", form
		}
		return "", ""
	})
	if !t.has("name") {
		t.fault("", "name is missing", form)
	}
	return name
}

func validName(s string) bool {
	if s == "" || len(s) > MaxNameBytes {
		return false
	}
	for i, c := range []byte(s) {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
		case i > 0 && strings.IndexByte("_.-", c) >= 0:
		default:
			return false
		}
	}
	return true
}

// checkNames notes names given twice and routes to handlers that do not exist.
func checkNames(d *document, c *Config) {
	names := make([]string, 0, len(c.Handlers))
	lines := map[string]int{}
	for i, h := range c.Handlers {
		noteName(d, lines, h.Name, elemPath("handler", i+1))
		names = append(names, h.Name)
	}
	known := lines
	lines = map[string]int{}
	for i, r := range c.Routes {
		at := elemPath("route", i+1)
		noteName(d, lines, r.Name, at)
		if r.Handler == "" || known[r.Handler] > 0 {
			continue
		}
		allowed := "there is no handler in this file"
		if len(d.faults) > MaxFaults {
			allowed = "the name of a [[handler]] of this file" // a search for each would take long
		} else if near := nearest(r.Handler, names); near != "" {
			allowed = "did you mean " + near + "?"
		} else if i := slices.IndexFunc(names, func(s string) bool { return s != "" }); i >= 0 {
			allowed = "the name of a [[handler]], such as " + names[i]
		}
		d.add(childPath(at, "handler"), "no handler is named "+printable(r.Handler), allowed)
	}
}

func noteName(d *document, lines map[string]int, name, at string) {
	at = childPath(at, "name")
	if first := lines[name]; name != "" && first > 0 {
		d.add(at, fmt.Sprintf("%s is the name of line %d too", printable(name), first), "each name once")
		return
	}
	lines[name] = d.line(at)
}
