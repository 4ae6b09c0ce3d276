package node

import (
	"fmt"
	"log/slog"
	"os"
	"time"

	"fencepost/edge"
	"fencepost/edge/api"
	"fencepost/edge/config"
	"fencepost/edge/route"
)

// Checked is a configuration that was judged without starting anything.
type Checked struct {
	Config   *config.Config
	Warnings []Warning // what will surprise, in the order of the file
	router   *route.Router
	contents map[string]eventChecker // handlers by name that put something of an event into what they do
}

// CheckFile judges the file at path as a start would: what it refuses is the
// error, all of it at once. What it warns of is allowed, and yet not what most
// people want; some of it looks at this host and this user: programs, secrets,
// files. Nothing is opened, made or changed.
func CheckFile(path string) (*Checked, error) {
	c, src, err := config.Read(path, Addresses)
	if err != nil {
		return nil, err
	}
	router, err := newRouter(c.Routes)
	if err != nil {
		return nil, err
	}
	n := &Node{log: slog.New(slog.DiscardHandler)}
	checks, contents := map[string]checker{}, map[string]eventChecker{}
	var faults []config.Fault
	for i := range c.Handlers {
		h := &c.Handlers[i]
		b, err := n.build(h, nil)
		if err != nil {
			faults = append(faults, src.Fault(fmt.Sprintf("handler[%d]", i+1), err.Error(), "see docs/configuration.md"))
			continue
		}
		b.use()
		defer b.drop()
		if k, ok := b.impl.(checker); ok {
			checks[h.Name] = k
		}
		if k, ok := b.impl.(eventChecker); ok {
			contents[h.Name] = k
		}
	}
	for i := range c.Uplinks {
		if _, err := newProbe(c, &c.Uplinks[i]); err != nil {
			faults = append(faults, src.Fault(fmt.Sprintf("uplink[%d].probe", i+1), err.Error(), "see docs/configuration.md"))
		}
	}
	if err := src.Finish(faults); err != nil {
		return nil, err
	}
	w := warner{c: c, src: src, checks: checks}
	return &Checked{Config: c, Warnings: w.all(), router: router, contents: contents}, nil
}

// Plan is what a configuration makes of an event.
type Plan struct {
	Event  edge.Event
	Routes []route.Verdict
	// Blocked says by handler why its delivery would be blocked with
	// template_error: what its ${...} cannot make of the event.
	Blocked map[string]string
	// Refused is why the node would not take the event at all; "" when it
	// would.
	Refused string
}

// eventChecker is a handler that can say what it cannot make of an event.
type eventChecker interface{ CheckEvent(e *edge.Event) error }

// Plans says what becomes of the events in text: one CloudEvent in its JSON
// format, or an array of them; specversion may be absent. The error says what is
// wrong with the text, with each event of it.
func (k *Checked) Plans(text []byte) ([]Plan, error) {
	events, err := api.ParseEvents(text, edge.Event{}, k.Config.HTTP.MaxBodyBytes)
	if err != nil {
		return nil, err
	}
	plans := make([]Plan, len(events))
	for i := range events {
		ev := &events[i]
		plans[i] = Plan{Event: *ev, Routes: k.router.Explain(ev), Refused: refusal(ev), Blocked: map[string]string{}}
		for _, v := range plans[i].Routes {
			h := k.contents[v.Handler]
			if !v.Takes || v.To.Fault != "" || h == nil {
				continue
			}
			if err := h.CheckEvent(ev); err != nil {
				plans[i].Blocked[v.Handler] = err.Error()
			}
		}
	}
	return plans, nil
}

// refusal is what the engine would refuse an event for that is well formed.
func refusal(ev *edge.Event) string {
	s, ok := ev.Extensions["expirytime"]
	if !ok {
		return ""
	}
	if _, err := time.Parse(time.RFC3339Nano, s); err != nil {
		return "expirytime is not an RFC 3339 time, such as 2026-01-31T08:00:00Z"
	}
	return ""
}

// Warning is something that is allowed and yet will surprise.
type Warning struct {
	config.Fault        // where it is, what it is, what to do
	Code         string // stable identifier
}

// mode is the permissions of a file; 0 when it cannot be seen.
func mode(path string) os.FileMode {
	fi, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return fi.Mode().Perm()
}
