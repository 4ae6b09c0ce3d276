package cli

import (
	"context"
	"fmt"

	"fencepost/edge"
	"fencepost/edge/api"

	"github.com/spf13/cobra"
)

func (a *app) cancel() *cobra.Command {
	b := bulkFlags{verb: edge.BulkCancel, state: string(edge.Pending), done: "cancelled"}
	c := &cobra.Command{
		Use:   "cancel ID | cancel FILTERS",
		Short: "Call deliveries off; a running one is told, and what is observed is stored",
		Long: "Call a delivery off. Before its start it is cancelled at once; the handler of a running one is\n" +
			"told to stop, and what it answers is stored. A blocked one is decided with fencepost resolve.\n\n" +
			"With filters instead of an id it does so to all that match, pending ones unless --state says\n" +
			"otherwise (see fencepost redrive for --dry-run and --yes).",
		Example: "  fencepost cancel 42\n  fencepost cancel --target hello:bob --dry-run\n  fencepost cancel --handler billing --state pending --yes",
		RunE:    b.run(a, a.cancelOne),
	}
	b.add(a, c)
	return c
}

func (a *app) cancelOne(ctx context.Context, id string) error {
	var before api.DeliveryDetail
	return call(ctx, a, func(ctx context.Context, n *api.Client) (d api.Delivery, err error) {
		if before, err = n.Delivery(ctx, id); err != nil {
			return d, err
		}
		return n.Cancel(ctx, id)
	}, func(d api.Delivery) error {
		if err := a.showDelivery(d); err != nil {
			return err
		}
		if note := cancelNote(before, d); note != "" {
			_, err := fmt.Fprintln(a.Out, note)
			return err
		}
		return nil
	})
}

// cancelNote says what the record after a cancel does not; before is the
// delivery as it was.
func cancelNote(before api.DeliveryDetail, d api.Delivery) string {
	switch state := before.Delivery.State; {
	case state.Final():
		return fmt.Sprintf("it is %s already: nothing to call off", state)
	case d.State != edge.Running:
		return ""
	}
	note := "it runs: its handler is told to stop, and what it answers decides"
	n := len(before.Executions)
	if n == 0 || before.Executions[n-1].Effect != edge.Once {
		return note
	}
	note += "; its effect must not be repeated, so if the outcome is unknown it is blocked"
	if d.Ordered {
		note += ", and its line with it,"
	}
	return note + " until a person resolves it (fencepost explain says how)"
}
