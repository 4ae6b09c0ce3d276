package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"fencepost/edge/api"

	"github.com/spf13/cobra"
)

func (a *app) tail() *cobra.Command {
	var f api.ListChanges
	var reconnect bool
	c := &cobra.Command{
		Use:   "tail",
		Short: "Show what changes, as it is committed",
		Long: "Show every change of a delivery as it is committed, until Ctrl-C. With --json each is one line of\n" +
			"JSON. A reader that is too slow is told of the gap, and goes on with what comes after. When the\n" +
			"node stops it ends with exit code 5; --reconnect waits for the node to come back instead.",
		Example: "  fencepost tail --handler billing --state failed\n  fencepost tail --json | jq -r .delivery",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := a.follow(cmd.Context(), f, reconnect)
			if cmd.Context().Err() != nil {
				return nil // Ctrl-C
			}
			return err
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.Handler, "handler", "", "name of a handler")
	fl.StringVar(&f.Target, "target", "", "handler:key")
	fl.StringVar(&f.State, "state", "", "the state that is reached")
	fl.StringVar(&f.Code, "code", "", "result code")
	fl.StringVar(&f.Event, "event", "", "id of an event")
	fl.StringVar(&f.Delivery, "delivery", "", "id of a delivery")
	fl.BoolVar(&reconnect, "reconnect", false, "wait for the node to come back when it stops")
	a.complete(c, "state", fixed(stateNames()...))
	a.complete(c, "handler", a.handlerNames)
	a.complete(c, "target", a.targetNames)
	return c
}

// again is how long tail waits before it looks for the node once more.
const again = time.Second

func (a *app) follow(ctx context.Context, f api.ListChanges, reconnect bool) error {
	said := false
	for {
		err := a.followOnce(ctx, f, func() {
			if said {
				fmt.Fprintln(a.Err, "fencepost: the node is back; what changed meanwhile is not shown: look with fencepost deliveries")
			}
			said = false
		})
		if !reconnect || !errors.Is(err, api.ErrNoNode) {
			return err
		}
		if !said {
			fmt.Fprintln(a.Err, "fencepost: the node is gone; waiting for it")
			said = true
		}
		select {
		case <-time.After(again):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (a *app) followOnce(ctx context.Context, f api.ListChanges, subscribed func()) error {
	client, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	return client.Changes(ctx, f, subscribed, a.showChange)
}

func (a *app) showChange(c api.Change) error {
	if a.json {
		text, err := json.Marshal(c)
		if err == nil {
			_, err = a.Out.Write(append(escapeJSON(text), '\n'))
		}
		return err
	}
	if c.Gap != "" {
		_, err := fmt.Fprintln(a.Out, "-- gap: "+safe(c.Gap)+" (fencepost deliveries)")
		return err
	}
	line := fmt.Sprintf("%s  %s  %s  %s", time.UnixMilli(int64(c.At)).Local().Format("15:04:05.000 MST"), number(c.Delivery), safe(c.Target), c.State)
	for _, x := range []struct{ name, value string }{
		{"", safe(c.Code)}, {"outcome ", string(c.Outcome)}, {"due ", short(c.DueAt)},
	} {
		if x.value != "" && (x.name != "due " || c.DueAt > c.At) {
			line += "  " + x.name + x.value
		}
	}
	_, err := fmt.Fprintln(a.Out, line)
	return err
}
