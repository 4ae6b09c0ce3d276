package cli

import (
	"context"
	"fmt"
	"slices"

	"fencepost/edge/api"

	"github.com/spf13/cobra"
)

// oneID wants the id of a delivery as the only argument.
func oneID(_ *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return usage("give the id of one delivery: dlv-<node>-<number>, or the number alone")
	}
	return nil
}

func (a *app) delivery() *cobra.Command {
	c := &cobra.Command{
		Use:   "delivery ID",
		Short: "Show a delivery, its event and its executions",
		Long: "Show a delivery, its event and the executions that are kept of it: the first three and the last\n" +
			"twenty. The version shown is what fencepost resolve and target skip ask for.",
		Example: "  fencepost delivery 42",
		Args:    oneID,
		RunE: func(cmd *cobra.Command, args []string) error {
			return call(cmd.Context(), a, func(ctx context.Context, n *api.Client) (api.DeliveryDetail, error) {
				return n.Delivery(ctx, args[0])
			}, a.showDetail)
		},
	}
	a.offlineFlag(c)
	return c
}

func (a *app) showDetail(x api.DeliveryDetail) error {
	if err := a.showDelivery(x.Delivery); err != nil {
		return err
	}
	f := facts{w: a.Out}
	if x.Event == nil {
		f.line("event", x.Delivery.Event+" (pruned)")
	} else {
		f.line("event", fmt.Sprintf("%s, %d bytes, accepted %s", x.Event.ID, x.Event.DataBytes, when(x.Event.AcceptedAt)))
		f.line("trace", x.Event.Trace)
		names := make([]string, 0, len(x.Event.Attributes))
		for name := range x.Event.Attributes {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			f.line("  "+name, x.Event.Attributes[name])
		}
	}
	if f.err != nil || len(x.Executions) == 0 {
		return f.err
	}
	t := newTable("FENCE", "ATTEMPT", zoned("STARTED"), "ENDED", "OUTCOME", "CODE…", "DETAIL…")
	for _, e := range x.Executions {
		outcome := string(e.Outcome)
		if e.LateOutcome != "" {
			outcome += " (late: " + string(e.LateOutcome) + ")"
		}
		t.add(fmt.Sprint(e.Fence), fmt.Sprint(e.Attempt), short(e.StartedAt), short(e.EndedAt), outcome, e.Code, e.Detail)
	}
	return t.print(a.Out)
}

// showDelivery prints one delivery: the answer of the commands that change one.
func (a *app) showDelivery(d api.Delivery) error {
	f := facts{w: a.Out}
	f.line("delivery", d.ID)
	f.line("state", string(d.State))
	f.line("code", d.Code)
	f.line("target", d.Target)
	f.line("route", d.Route)
	f.line("generation", fmt.Sprint(d.Generation))
	f.line("redrive of", d.RedriveOf)
	f.line("key", d.Key)
	f.line("tries", fmt.Sprintf("%s, %d charged, %d lost", plural(d.Executions, "execution", "executions"), d.Attempts, d.Losses))
	f.line("accepted", when(d.AcceptedAt))
	if !d.State.Final() {
		f.line("due", when(d.DueAt))
		f.line("expires", when(d.ExpiresAt))
	}
	f.line("cancel asked", when(d.CancelAt))
	f.line("finished", when(d.FinishedAt))
	f.line("version", fmt.Sprint(d.Version))
	return f.err
}
