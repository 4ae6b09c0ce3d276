package cli

import (
	"context"
	"fmt"
	"time"

	"fencepost/edge"
	"fencepost/edge/api"

	"github.com/spf13/cobra"
)

func (a *app) deliveries() *cobra.Command {
	var flags deliveryFlags
	limit := api.DefaultPage
	c := &cobra.Command{
		Use:   "deliveries",
		Short: "List deliveries, newest first",
		Long: "List deliveries, newest first. The filters are taken together. What failed, was cancelled or\n" +
			"expired, is blocked, or waits on one target is found by an index; other filters look at a\n" +
			"bounded number of rows, and say where to go on.\n" +
			"TIME is when it ended, or is due, or was accepted.",
		Example: "  fencepost deliveries --state blocked\n" +
			"  fencepost deliveries --state failed --handler billing --since 6h --newest\n" +
			"  fencepost deliveries --target hello:bob --limit 10",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := flags.read()
			if err != nil {
				return err
			}
			f.Limit = limit
			return call(cmd.Context(), a, func(ctx context.Context, n *api.Client) (api.DeliveryPage, error) {
				return fullPage(ctx, n, f)
			}, func(p api.DeliveryPage) error { return a.showDeliveries(p, f) })
		},
	}
	flags.add(a, c)
	a.offlineFlag(c)
	c.Flags().IntVar(&limit, "limit", limit, fmt.Sprintf("length of the page, 1 to %d", api.MaxPage))
	return c
}

// patience is how long a listing goes on by itself when its pages come out short.
const patience = 5 * time.Second

// fullPage reads on until the page is full, nothing is left, or it took long.
func fullPage(ctx context.Context, n *api.Client, f api.ListDeliveries) (api.DeliveryPage, error) {
	began := time.Now()
	all := api.DeliveryPage{Deliveries: []api.Delivery{}}
	limit := f.Limit
	for {
		page, err := n.Deliveries(ctx, f)
		if err != nil {
			return all, err
		}
		all.Deliveries = append(all.Deliveries, page.Deliveries...)
		all.Next, all.Partial = page.Next, page.Partial
		if !page.Partial || time.Since(began) > patience {
			return all, nil
		}
		f.Before, f.Limit = page.Next, limit-len(all.Deliveries)
	}
}

func (a *app) showDeliveries(page api.DeliveryPage, f api.ListDeliveries) error {
	if len(page.Deliveries) > 0 {
		t := newTable("ID", "STATE", "TARGET…", "CODE…", "TRIES", zoned("TIME"))
		for _, d := range page.Deliveries {
			t.add(number(d.ID), string(d.State), d.Target, d.Code, fmt.Sprint(d.Executions), short(timeOf(d)))
		}
		if err := t.print(a.Out); err != nil {
			return err
		}
	} else if !page.Partial {
		_, err := fmt.Fprintln(a.Out, "no deliveries")
		return err
	}
	if page.Next == "" {
		return nil
	}
	f.Before = number(page.Next)
	command := "fencepost deliveries " + echo(f)
	if f.Limit != api.DefaultPage {
		command += fmt.Sprintf(" --limit %d", f.Limit)
	}
	return a.more(page.Partial, command)
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
