package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"fencepost/edge/api"

	"github.com/spf13/cobra"
)

func (a *app) events() *cobra.Command {
	var f api.ListEvents
	var sp spanFlags
	c := &cobra.Command{
		Use:   "events",
		Short: "List events, newest first",
		Long: "List events as they were accepted, newest first, without their data. --source with --id\n" +
			"looks one up; the other filters look at a bounded number of rows and say where to go on.",
		Example: "  fencepost events --type order.paid --since 2d\n  fencepost events --source /orders --id 42\n  fencepost event 17",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if f.Since, f.Until, err = sp.stamps(); err != nil {
				return err
			}
			return call(cmd.Context(), a, func(ctx context.Context, n *api.Client) (api.EventPage, error) {
				return fullEventPage(ctx, n, f)
			}, func(p api.EventPage) error { return a.showEvents(p, f) })
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.Type, "type", "", "type of the event")
	fl.StringVar(&f.Source, "source", "", "its source")
	fl.StringVar(&f.Subject, "subject", "", "its subject")
	fl.StringVar(&f.ID, "id", "", "the producer's id")
	sp.add(c)
	fl.StringVar(&f.Before, "before", "", "only those before this event: the next page")
	fl.IntVar(&f.Limit, "limit", api.DefaultPage, fmt.Sprintf("length of the page, 1 to %d", api.MaxPage))
	a.offlineFlag(c)
	return c
}

func fullEventPage(ctx context.Context, n *api.Client, f api.ListEvents) (api.EventPage, error) {
	began := time.Now()
	all := api.EventPage{Events: []api.Event{}}
	limit := f.Limit
	for {
		page, err := n.Events(ctx, f)
		if err != nil {
			return all, err
		}
		all.Events = append(all.Events, page.Events...)
		all.Next, all.Partial = page.Next, page.Partial
		if !page.Partial || time.Since(began) > patience {
			return all, nil
		}
		f.Before, f.Limit = page.Next, limit-len(all.Events)
	}
}

func (a *app) showEvents(page api.EventPage, f api.ListEvents) error {
	if len(page.Events) > 0 {
		t := newTable("ID", "TYPE…", "SOURCE…", "EVENT ID…", "SUBJECT…", "BYTES", zoned("ACCEPTED"))
		for _, e := range page.Events {
			size := fmt.Sprint(e.DataBytes)
			if e.Pruned {
				size = "pruned"
			}
			at := e.Attributes
			t.add(number(e.ID), at["type"], at["source"], at["id"], at["subject"], size, short(e.AcceptedAt))
		}
		if err := t.print(a.Out); err != nil {
			return err
		}
	} else if !page.Partial {
		_, err := fmt.Fprintln(a.Out, "no events")
		return err
	}
	if page.Next == "" {
		return nil
	}
	command := "fencepost events " + words("--type", f.Type, "--source", f.Source, "--subject", f.Subject, "--id", f.ID,
		"--since", f.Since.String(), "--until", f.Until.String(), "--before", number(page.Next))
	if f.Limit != api.DefaultPage {
		command += fmt.Sprintf(" --limit %d", f.Limit)
	}
	return a.more(page.Partial, command)
}

func (a *app) oneEvent() *cobra.Command {
	var data bool
	c := &cobra.Command{
		Use:   "event ID",
		Short: "Show an event, its data and the deliveries owed of it",
		Long: "Show an event, the beginning of its data, and the deliveries owed of it. --data writes the\n" +
			"data alone, exactly as it was received; on a terminal what is not printable is escaped.",
		Example: "  fencepost event 17\n  fencepost event 17 --data > body.json",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return usage("give the id of one event: evt-<node>-<number>, or the number alone")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if data && a.json {
				return usage("--data writes bytes, and --json has them in base64: choose one")
			}
			return call(cmd.Context(), a, func(ctx context.Context, n *api.Client) (api.EventDetail, error) {
				return n.Event(ctx, args[0])
			}, func(x api.EventDetail) error {
				if data {
					return a.writeData(x)
				}
				return a.showEvent(x)
			})
		},
	}
	c.Flags().BoolVar(&data, "data", false, "write the data alone")
	a.offlineFlag(c)
	return c
}

func (a *app) writeData(x api.EventDetail) error {
	if x.Event.Pruned {
		return fmt.Errorf("the data of %s is no longer kept ([retention] says how long)", x.Event.ID)
	}
	if isTerminal(a.Out) {
		_, err := plainWriter{a.Out}.Write(append(x.Data, '\n'))
		return err
	}
	_, err := a.Out.Write(x.Data)
	return err
}

func (a *app) showEvent(x api.EventDetail) error {
	f := facts{w: a.Out}
	f.line("event", x.Event.ID)
	f.line("accepted", when(x.Event.AcceptedAt))
	f.line("trace", x.Event.Trace)
	names := make([]string, 0, len(x.Event.Attributes))
	for name := range x.Event.Attributes {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		f.line("  "+name, x.Event.Attributes[name])
	}
	const beginning = 500
	switch {
	case x.Event.Pruned:
		f.line("data", "no longer kept")
	case len(x.Data) > beginning:
		f.line("data", fmt.Sprintf("%d bytes: %s…", len(x.Data), x.Data[:beginning]))
	default:
		f.line("data", fmt.Sprintf("%d bytes: %s", len(x.Data), x.Data))
	}
	if f.err != nil {
		return f.err
	}
	if len(x.Deliveries) == 0 {
		_, err := fmt.Fprintln(a.Out, "no deliveries: no route took it, or they are no longer kept")
		return err
	}
	return a.showDeliveries(api.DeliveryPage{Deliveries: x.Deliveries}, api.ListDeliveries{})
}
