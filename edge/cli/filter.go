package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"fencepost/edge"
	"fencepost/edge/api"

	"github.com/spf13/cobra"
)

// spanFlags are --since and --until.
type spanFlags struct{ since, until string }

func (s *spanFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&s.since, "since", "", "accepted at or after: a span such as 90m or 2d, or a time such as 2026-01-31T12:00:00Z or '2026-01-31 12:00'")
	c.Flags().StringVar(&s.until, "until", "", "accepted before: as --since")
}

func (s *spanFlags) stamps() (since, until api.Stamp, err error) {
	if since, err = moment("--since", s.since); err == nil {
		until, err = moment("--until", s.until)
	}
	if err == nil && until != 0 && since >= until {
		err = usage("--since %s is not before --until %s: nothing could match", s.since, s.until)
	}
	return since, until, err
}

// moment reads a span before now, or a time; without a zone it is that of the
// host.
func moment(flag, s string) (api.Stamp, error) {
	if s == "" {
		return 0, nil
	}
	if d, ok := span(s); ok {
		return api.Stamp(time.Now().Add(-d).UnixMilli()), nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, s, time.Local); err == nil && t.UnixMilli() > 0 {
			return api.Stamp(t.UnixMilli()), nil
		}
	}
	return 0, usage("%s %q: write a span such as 90m, 6h or 2d, or a time such as 2026-01-31T12:00:00Z or '2026-01-31 12:00'", flag, s)
}

// span reads a duration; d for days is known too.
func span(s string) (time.Duration, bool) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		var n int
		if _, err := fmt.Sscanf(days, "%d", &n); err == nil && n >= 0 && n <= 36500 && fmt.Sprint(n) == days {
			return time.Duration(n) * 24 * time.Hour, true
		}
		return 0, false
	}
	d, err := time.ParseDuration(s)
	return d, err == nil && d >= 0
}

// spanValue is a flag with a duration in which d for days is known too, as in
// --since.
type spanValue time.Duration

// Set reads a span.
func (v *spanValue) Set(s string) error {
	d, ok := span(s)
	if !ok {
		return errors.New("write a span that is not negative, such as 90s, 30m, 6h or 2d")
	}
	*v = spanValue(d)
	return nil
}

// Type is what help calls the value.
func (v *spanValue) Type() string { return "duration" }

// String is the span as its default is shown.
func (v *spanValue) String() string { return time.Duration(*v).String() }

// deliveryFlags are the filters of deliveries.
type deliveryFlags struct {
	f    api.ListDeliveries
	span spanFlags
}

func (d *deliveryFlags) add(a *app, c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&d.f.State, "state", "", fmt.Sprintf("one of %v", edge.States))
	fl.StringVar(&d.f.Handler, "handler", "", "name of a handler")
	fl.StringVar(&d.f.Target, "target", "", "handler:key")
	fl.StringVar(&d.f.Code, "code", "", "result code")
	fl.StringVar(&d.f.Event, "event", "", "id of an event")
	fl.StringVar(&d.f.Type, "type", "", "type of the event")
	fl.StringVar(&d.f.Source, "source", "", "source of the event")
	fl.StringVar(&d.f.Subject, "subject", "", "subject of the event")
	d.span.add(c)
	fl.BoolVar(&d.f.Newest, "newest", false, "leave out those that were redriven since")
	fl.StringVar(&d.f.Before, "before", "", "only those before this delivery: the next page")
	a.complete(c, "state", fixed(stateNames()...))
	a.complete(c, "handler", a.handlerNames)
	a.complete(c, "target", a.targetNames)
}

func stateNames() []string {
	names := make([]string, len(edge.States))
	for i, s := range edge.States {
		names[i] = string(s)
	}
	return names
}

// read checks the filters and returns them.
func (d *deliveryFlags) read() (api.ListDeliveries, error) {
	var err error
	if d.f.Since, d.f.Until, err = d.span.stamps(); err != nil {
		return d.f, err
	}
	if s := d.f.State; s != "" && !slices.Contains(stateNames(), s) {
		return d.f, usage("--state %q is no state: the states are %s", s, strings.Join(stateNames(), ", "))
	}
	return d.f, nil
}

// echo writes filters as the flags that a person would type.
func echo(f api.ListDeliveries) string {
	return words("--state", f.State, "--handler", f.Handler, "--target", f.Target, "--code", f.Code, "--event", f.Event,
		"--type", f.Type, "--source", f.Source, "--subject", f.Subject, "--since", f.Since.String(), "--until", f.Until.String(),
		"--newest", flagWord(f.Newest), "--before", f.Before)
}

// words writes flags and values, those that are empty left out.
func words(pairs ...string) string {
	var out []string
	for i := 0; i+1 < len(pairs); i += 2 {
		switch value := pairs[i+1]; value {
		case "":
		case onlyFlag:
			out = append(out, pairs[i])
		default:
			out = append(out, pairs[i]+" "+shellWord(value))
		}
	}
	return strings.Join(out, " ")
}

// onlyFlag stands for a flag without a value.
const onlyFlag = "\x00"

func flagWord(b bool) string {
	if b {
		return onlyFlag
	}
	return ""
}

// more prints the command for the next page. partial says that the page is short
// because enough was looked at.
func (a *app) more(partial bool, command string) error {
	text := "more: "
	if partial {
		text = "looked far enough for one page, and there may be more: "
	}
	if a.config != "" {
		command += " --config " + shellWord(a.config)
	}
	_, err := fmt.Fprintln(a.Out, text+command)
	return err
}
