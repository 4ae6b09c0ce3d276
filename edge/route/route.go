// Package route decides which targets an event is owed to: matching of patterns,
// conditions, and making of target keys.
//
// A [Router] is made once from the rules of the configuration and asked for each
// event. It never changes, so it may be used from many goroutines.
package route

import (
	"fmt"
	"time"

	"fencepost/edge"
	"fencepost/edge/expression"
)

// Rule is one route.
type Rule struct {
	Name    string // required, unique among the rules
	Type    string // pattern of the event's type; "" = "*"
	Source  string // pattern of the source; "" = "*"
	Subject string // pattern of the subject, which is "" when absent; "" = "*"
	// When is a condition, see package expression; "" and "true" = always. It is asked
	// after the patterns. When it fails, that is a fault and not false.
	When    string
	Handler string // required
	// Key names the attribute that becomes the target's key, or is a template
	// with ${...}; "" = one line for the whole handler; nil =
	// [edge.DefaultKey].
	Key *string
	TTL time.Duration // the delivery expires this long after accept; 0 = never
}

// Router holds compiled rules.
type Router struct {
	routes []compiled
}

type compiled struct {
	name, handler              string
	eventType, source, subject pattern
	when                       *expression.Expr // nil = always
	whenText                   string
	key                        *string
	keyText                    *expression.Template // in place of key
	ttlMS                      int64
}

// New compiles rules. Their order decides which of two routes to one target
// counts: the first. No rule at all is valid. An error names the rule, wraps
// [edge.ErrInvalid], and is that of the first rule that is wrong.
func New(rules []Rule) (*Router, error) {
	r := &Router{routes: make([]compiled, 0, len(rules))}
	names := make(map[string]bool, len(rules))
	for i, rule := range rules {
		if rule.Name == "" {
			return nil, fmt.Errorf("%w: route %d: the name is missing", edge.ErrInvalid, i+1)
		}
		if names[rule.Name] {
			return nil, fmt.Errorf("%w: route %q: the name is given twice", edge.ErrInvalid, rule.Name)
		}
		names[rule.Name] = true
		c, err := compileRule(rule)
		if err != nil {
			return nil, fmt.Errorf("%w: route %q: %w", edge.ErrInvalid, rule.Name, err)
		}
		r.routes = append(r.routes, c)
	}
	return r, nil
}

func compileRule(rule Rule) (compiled, error) {
	c := compiled{name: rule.Name, handler: rule.Handler, ttlMS: rule.TTL.Milliseconds()}
	if rule.Handler == "" {
		return c, fmt.Errorf("the handler is missing")
	}
	if rule.TTL < 0 || rule.TTL > 0 && c.ttlMS == 0 {
		return c, fmt.Errorf("ttl %v: at least 1 ms, or 0 for never", rule.TTL)
	}
	for _, p := range [...]struct {
		what, text string
		to         *pattern
	}{
		{"type", rule.Type, &c.eventType},
		{"source", rule.Source, &c.source},
		{"subject", rule.Subject, &c.subject},
	} {
		if p.text == "" {
			p.text = "*"
		}
		if err := CheckPattern(p.text); err != nil {
			return c, fmt.Errorf("%s: %w", p.what, err)
		}
		*p.to = compile(p.text)
	}
	return c, c.compile(rule)
}

// compile makes what a condition and a key need.
func (c *compiled) compile(rule Rule) (err error) {
	if rule.When != "" && rule.When != "true" {
		if c.when, err = expression.CompileCondition(rule.When); err != nil {
			return fmt.Errorf("when: %w", err)
		}
		c.whenText = rule.When
	}
	switch {
	case rule.Key == nil:
	case expression.IsTemplate(*rule.Key):
		if c.keyText, err = expression.CompileTemplate(*rule.Key, expression.Key); err != nil {
			return fmt.Errorf("key: %w", err)
		}
	default:
		if err := CheckKey(*rule.Key); err != nil {
			return fmt.Errorf("key: %w", err)
		}
		key := *rule.Key
		c.key = &key
	}
	return nil
}

// Route lists the targets that e is owed to, in the order of the rules; nil when
// no rule matches. Two routes to one target make one entry, that of the first. A
// route whose condition or key fails on e makes an entry with the reason as its
// Fault, once for each handler, and does not touch the others. The data is decoded
// once, and only if a condition or key asks for it.
func (r *Router) Route(e *edge.Event) []edge.Routed {
	var out []edge.Routed
	var env *expression.Env
	for i := range r.routes {
		c := &r.routes[i]
		if !c.eventType.match(e.Type) || !c.source.match(e.Source) || !c.subject.match(e.Subject) {
			continue
		}
		var key, fault string
		if c.when == nil && c.keyText == nil {
			key, fault = render(c.key, e)
		} else {
			if env == nil {
				env = expression.NewEnv(e)
			}
			var owes bool
			if key, fault, owes = c.decide(e, env); !owes {
				continue
			}
		}
		routed := edge.Routed{Route: c.name, Handler: c.handler, Key: key, TTLMS: c.ttlMS, Fault: fault}
		if !owed(out, routed) {
			out = append(out, routed)
		}
	}
	return out
}

// decide asks the condition and makes the key. A fault owes too: it is kept where
// people see it.
func (c *compiled) decide(e *edge.Event, env *expression.Env) (key, fault string, owes bool) {
	if c.when != nil {
		switch ok, err := c.when.Bool(env); {
		case err != nil:
			return "", "when: " + err.Error(), true
		case !ok:
			return "", "", false
		}
	}
	if c.keyText == nil {
		key, fault = render(c.key, e)
		return key, fault, true
	}
	key, err := c.keyText.Render(env)
	if err != nil {
		return "", "key: " + err.Error(), true
	}
	key, fault = bounded("key", key)
	return key, fault, true
}

// owed reports whether the target of to is among those found. All faults of one
// handler share its reserved target.
func owed(found []edge.Routed, to edge.Routed) bool {
	for _, f := range found {
		if f.Handler == to.Handler && (f.Fault != "") == (to.Fault != "") && f.Key == to.Key {
			return true
		}
	}
	return false
}
