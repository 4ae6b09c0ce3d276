package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"fencepost/edge"
	"fencepost/edge/api"
	"fencepost/edge/config"
	"fencepost/edge/node"
	"fencepost/edge/route"

	"github.com/spf13/cobra"
)

func (a *app) configGroup() *cobra.Command {
	return group("config", "Look at a configuration without starting anything", a.configCheck())
}

func (a *app) configCheck() *cobra.Command {
	var event string
	var strict bool
	c := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Say what is wrong with a configuration, and what will surprise",
		Long: "Judge a configuration as a start would, without opening or changing anything. Every fault is\n" +
			"reported at once, with file, line, column, key and what is allowed (exit code 2). A good file\n" +
			"gets a summary and warnings: what is allowed and yet not what most people want. Some of them\n" +
			"look at this host as who runs the check: programs, secrets, files.\n\n" +
			"With --event the answer also says what becomes of an example event: which routes take it, to\n" +
			"which target, what its handler cannot make of it, and why the others do not. FILE is --config\n" +
			"by default; - is standard input.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage("give one configuration file")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			path := a.configPath()
			if len(args) == 1 {
				path = args[0]
			}
			return a.runConfigCheck(path, event, strict)
		},
	}
	c.Flags().StringVar(&event, "event", "", "a CloudEvent in a JSON file, or an array of them; - is standard input")
	c.Flags().BoolVar(&strict, "strict", false, "end with exit code 1 when there are warnings")
	return c
}

func (a *app) runConfigCheck(path, event string, strict bool) error {
	k, err := node.CheckFile(path)
	if err != nil {
		return a.notGood(path, err)
	}
	var plans []node.Plan
	if event != "" {
		text, err := a.readEvent(event)
		if err != nil {
			return err
		}
		if plans, err = k.Plans(text); err != nil {
			return badEvents(event, err)
		}
	}
	if a.json {
		err = printJSON(a.Out, checkedJSON(k, plans))
	} else {
		err = a.showChecked(k, plans)
	}
	if err == nil && strict && len(k.Warnings) > 0 {
		return &quietError{api.ExitFailed}
	}
	return err
}

// badEvents is the answer to example events that are no events: every fault.
func badEvents(path string, err error) error {
	text := err.Error()
	var p *api.Problem
	if errors.As(err, &p) && len(p.Errors) > 1 {
		lines := make([]string, len(p.Errors))
		for i, f := range p.Errors {
			lines[i] = f.String()
		}
		text = strings.Join(lines, "\n--event "+path+": ")
	}
	return usage("--event %s: %s; it must be a CloudEvent in its JSON format, or an array of them", path, text)
}

// notGood is the answer to a file that is refused.
func (a *app) notGood(path string, err error) error {
	var faults config.Errors
	switch {
	case errors.As(err, &faults) && a.json:
		out := checkedAnswer{File: path, Faults: []placeJSON{}, Warnings: []placeJSON{}}
		for _, f := range faults {
			out.Faults = append(out.Faults, placeOf(f, ""))
		}
		if err := printJSON(a.Out, out); err != nil {
			return err
		}
		return &quietError{api.ExitUsage}
	case errors.Is(err, os.ErrNotExist):
		return usage("there is no configuration at %s: name the file, as in fencepost config check FILE", path)
	}
	return asUsage(err)
}

// maxEvent bounds the text of example events.
const maxEvent = 16 << 20

func (a *app) readEvent(path string) ([]byte, error) {
	in := a.In
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, usage("--event: %w", err)
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxEvent+1))
	if err != nil {
		return nil, fmt.Errorf("--event %s: %w", path, err)
	}
	if len(text) > maxEvent {
		return nil, usage("--event %s: more than %d bytes", path, maxEvent)
	}
	return text, nil
}

// checkedAnswer is the JSON of config check.
type checkedAnswer struct {
	File     string      `json:"file"`
	Good     bool        `json:"good"`
	Faults   []placeJSON `json:"faults"`
	Warnings []placeJSON `json:"warnings"`
	Handlers int         `json:"handlers"`
	Routes   int         `json:"routes"`
	Events   []planJSON  `json:"events,omitempty"`
}

// placeJSON is a fault or a warning.
type placeJSON struct {
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Key     string `json:"key,omitempty"`
	Code    string `json:"code,omitempty"` // of a warning
	Problem string `json:"problem"`
	Allowed string `json:"allowed,omitempty"` // the way out
}

func placeOf(f config.Fault, code string) placeJSON {
	return placeJSON{Line: f.Line, Column: f.Column, Key: f.Key, Code: code, Problem: f.Problem, Allowed: f.Allowed}
}

// planJSON is what becomes of one event.
type planJSON struct {
	ID      string        `json:"id"`
	Source  string        `json:"source"`
	Type    string        `json:"type"`
	Refused string        `json:"refused,omitempty"`
	Routes  []verdictJSON `json:"routes"`
}

type verdictJSON struct {
	Route   string `json:"route"`
	Handler string `json:"handler"`
	Takes   bool   `json:"takes"`
	Target  string `json:"target,omitempty"`
	TTLMS   int64  `json:"ttl_ms,omitempty"`         // 0 = never expires
	Fault   string `json:"fault,omitempty"`          // blocked with route_error, and why
	Blocked string `json:"template_fault,omitempty"` // blocked with template_error, and why
	Why     string `json:"why,omitempty"`            // why not, or the twin
}

func checkedJSON(k *node.Checked, plans []node.Plan) checkedAnswer {
	out := checkedAnswer{
		File: k.Config.File, Good: true, Faults: []placeJSON{}, Warnings: []placeJSON{},
		Handlers: len(k.Config.Handlers), Routes: len(k.Config.Routes),
	}
	for _, w := range k.Warnings {
		out.Warnings = append(out.Warnings, placeOf(w.Fault, w.Code))
	}
	for _, p := range plans {
		plan := planJSON{ID: p.Event.ID, Source: p.Event.Source, Type: p.Event.Type, Refused: p.Refused, Routes: []verdictJSON{}}
		for _, v := range p.Routes {
			plan.Routes = append(plan.Routes, verdictJSON{
				Route: v.Route, Handler: v.Handler, Takes: v.Takes, Target: targetOf(v), TTLMS: v.To.TTLMS, Fault: v.To.Fault,
				Blocked: p.Blocked[v.Handler], Why: v.Why,
			})
		}
		out.Events = append(out.Events, plan)
	}
	return out
}

// targetOf is where a verdict leads; "" when nowhere.
func targetOf(v route.Verdict) string {
	if !v.Takes || v.To.Fault != "" {
		return ""
	}
	return edge.Target{Handler: v.Handler, Key: v.To.Key}.String()
}

func (a *app) showChecked(k *node.Checked, plans []node.Plan) error {
	for _, w := range k.Warnings {
		fmt.Fprintf(a.Out, "warning: %s\n", safe(w.Error()))
	}
	c := k.Config
	_, err := fmt.Fprintf(a.Out, "%s is good: %s, %s, %s\n", safe(c.File), plural(len(c.Handlers), "handler", "handlers"),
		plural(len(c.Routes), "route", "routes"), plural(len(k.Warnings), "warning", "warnings"))
	for _, p := range plans {
		if err == nil {
			err = a.showPlan(p)
		}
	}
	return err
}

func (a *app) showPlan(p node.Plan) error {
	fmt.Fprintf(a.Out, "\nevent %s of %s, type %s\n", safe(p.Event.ID), safe(p.Event.Source), safe(p.Event.Type))
	if p.Refused != "" {
		_, err := fmt.Fprintf(a.Out, "the node would refuse it: %s\n", safe(p.Refused))
		return err
	}
	t := newTable("ROUTE…", "TAKES IT", "HANDLER…", "TARGET…", "EXPIRES", "WHY…")
	deliveries := 0
	for _, v := range p.Routes {
		takes, expires, why := "no", "", v.Why
		switch {
		case v.To.Fault != "":
			takes, why = "blocked", "route_error: "+v.To.Fault
		case v.Takes && v.Why == "" && p.Blocked[v.Handler] != "":
			takes, why = "blocked", "template_error: "+p.Blocked[v.Handler]
		case v.Takes:
			takes, expires = "yes", "never"
			if v.To.TTLMS > 0 {
				expires = "after " + (time.Duration(v.To.TTLMS) * time.Millisecond).String()
			}
		}
		if v.Takes && v.Why == "" {
			deliveries++
		}
		t.add(v.Route, takes, v.Handler, targetOf(v), expires, why)
	}
	if len(p.Routes) > 0 {
		if err := t.print(a.Out); err != nil {
			return err
		}
	}
	note := ""
	if deliveries == 0 {
		note = "no route takes it: it would be stored and go nowhere"
	} else {
		note = plural(deliveries, "delivery", "deliveries")
	}
	if s := p.Event.Extensions["expirytime"]; s != "" && deliveries > 0 {
		note += "; its own expirytime " + safe(s) + " counts where it is earlier"
	}
	_, err := fmt.Fprintln(a.Out, note)
	return err
}
