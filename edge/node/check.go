package node

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
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
}

// CheckFile judges the file at path as a start would: what it refuses is the
// error, all of it at once. What it warns of is allowed, and yet not what most
// people want; some of it looks at this host and this user: programs, secrets,
// files. Nothing is opened, made or changed.
func CheckFile(path string) (*Checked, error) {
	c, src, err := config.Read(path)
	if err != nil {
		return nil, err
	}
	router, err := newRouter(c.Routes)
	if err != nil {
		return nil, err
	}
	n := &Node{log: slog.New(slog.DiscardHandler)}
	checks := map[string]checker{}
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
	return &Checked{Config: c, Warnings: w.all(), router: router}, nil
}

// Plan is what a configuration makes of an event.
type Plan struct {
	Event  edge.Event
	Routes []route.Verdict
	// Refused is why the node would not take the event at all; "" when it
	// would.
	Refused string
}

// Plans says what becomes of the events in text: one CloudEvent in its JSON
// format, or an array of them. The error says what is wrong with the text.
func (k *Checked) Plans(text []byte) ([]Plan, error) {
	form := "application/cloudevents+json"
	if bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("[")) {
		form = "application/cloudevents-batch+json"
	}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "/v1/events", bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", form)
	in, err := api.Decode(req, k.Config.HTTP.MaxBodyBytes) // as the node reads it
	if err != nil {
		return nil, err
	}
	plans := make([]Plan, len(in.Events))
	for i := range in.Events {
		ev := &in.Events[i]
		plans[i] = Plan{Event: *ev, Routes: k.router.Explain(ev), Refused: refusal(ev)}
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
