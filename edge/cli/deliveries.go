package cli

import (
	"context"
	"fmt"

	"fencepost/edge"
	"fencepost/edge/api"

	"github.com/spf13/cobra"
)

func (a *app) deliveries() *cobra.Command {
	var f api.ListDeliveries
	c := &cobra.Command{
		Use:     "deliveries",
		Short:   "List deliveries, newest first",
		Example: "  fencepost deliveries --state blocked\n  fencepost deliveries --target hello:bob --limit 10",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return call(cmd.Context(), a, func(ctx context.Context, n *api.Client) (api.DeliveryPage, error) {
				return n.Deliveries(ctx, f)
			}, a.showDeliveries)
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.State, "state", "", fmt.Sprintf("one of %v", edge.States))
	fl.StringVar(&f.Handler, "handler", "", "name of a handler")
	fl.StringVar(&f.Target, "target", "", "handler:key")
	fl.StringVar(&f.Code, "code", "", "result code")
	fl.StringVar(&f.Event, "event", "", "id of an event")
	fl.StringVar(&f.Before, "before", "", "only those before this delivery: the next page")
	fl.IntVar(&f.Limit, "limit", api.DefaultPage, fmt.Sprintf("length of the page, 1 to %d", api.MaxPage))
	return c
}

func (a *app) showDeliveries(page api.DeliveryPage) error {
	if len(page.Deliveries) == 0 {
		_, err := fmt.Fprintln(a.Out, "no deliveries")
		return err
	}
	t := table{header: []string{"ID", "STATE", "TARGET", "CODE", "TRIES", "TIME"}, limits: []int{0, 0, 24, 22, 0, 0}}
	for _, d := range page.Deliveries {
		t.add(number(d.ID), string(d.State), d.Target, d.Code, fmt.Sprint(d.Executions), short(timeOf(d)))
	}
	if err := t.print(a.Out); err != nil {
		return err
	}
	if page.Next != "" {
		_, err := fmt.Fprintf(a.Out, "more: add --before %s\n", number(page.Next))
		return err
	}
	return nil
}

// timeOf is the time that matters in a delivery's state: its end, or when it is
// due, or when it was accepted.
func timeOf(d api.Delivery) api.Stamp {
	switch {
	case d.FinishedAt != 0:
		return d.FinishedAt
	case d.State == edge.Pending && d.DueAt != 0:
		return d.DueAt
	}
	return d.AcceptedAt
}
