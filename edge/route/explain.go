package route

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"fencepost/edge"
	"fencepost/edge/expression"
)

// Verdict is what one rule makes of an event.
type Verdict struct {
	Route, Handler string
	// Takes reports whether the event is owed to the route's target. When the
	// route fails on the event, To.Fault says why: the delivery is then blocked
	// with route_error.
	Takes bool
	To    edge.Routed // when Takes
	// Why is, for people, what keeps the rule from taking the event; or, when
	// it takes it, the earlier route to the same target, with which it makes one
	// delivery. "" otherwise.
	Why string
}

// Explain says of each rule, in their order, what it makes of e. What is taken,
// twins left out, is what [Router.Route] answers.
func (r *Router) Explain(e *edge.Event) []Verdict {
	out := make([]Verdict, 0, len(r.routes))
	var found []edge.Routed
	env := expression.NewEnv(e)
	for i := range r.routes {
		c := &r.routes[i]
		v := Verdict{Route: c.name, Handler: c.handler}
		if v.Why = c.mismatch(e); v.Why == "" {
			key, fault, owes := c.decide(e, env)
			if !owes {
				v.Why = "when is false: " + quoted(c.whenText)
			} else {
				v.Takes = true
				v.To = edge.Routed{Route: c.name, Handler: c.handler, Key: key, TTLMS: c.ttlMS, Fault: fault}
				if owed(found, v.To) {
					v.Why = "route " + twin(found, v.To) + " leads to the same target: one delivery, of that route"
				} else {
					found = append(found, v.To)
				}
			}
		}
		out = append(out, v)
	}
	return out
}

// mismatch names the patterns that e does not fit.
func (c *compiled) mismatch(e *edge.Event) string {
	var why []string
	for _, p := range [...]struct {
		what, value string
		pattern     pattern
	}{{"type", e.Type, c.eventType}, {"source", e.Source, c.source}, {"subject", e.Subject, c.subject}} {
		switch {
		case p.pattern.match(p.value):
		case p.value == "":
			why = append(why, "the event has no "+p.what+", which must fit "+quoted(p.pattern.text))
		default:
			why = append(why, fmt.Sprintf("%s %s does not fit %s", p.what, quoted(p.value), quoted(p.pattern.text)))
		}
	}
	return strings.Join(why, "; ")
}

// twin is the route whose target to shares.
func twin(found []edge.Routed, to edge.Routed) string {
	i := slices.IndexFunc(found, func(f edge.Routed) bool { return owed([]edge.Routed{f}, to) })
	return found[i].Route
}

// quoted is a text for people, cut.
func quoted(s string) string {
	const limit = 80
	if r := []rune(s); len(r) > limit {
		return strconv.Quote(string(r[:limit])) + "..."
	}
	return strconv.Quote(s)
}

// Covers reports whether pattern a fits everything that pattern b fits. It is
// never true when that is not so.
func Covers(a, b string) bool {
	// A star of b is taken for a letter of its own: only a star of a fits it,
	// and that fits whatever b's star stands for.
	return compile(a).match(b)
}
