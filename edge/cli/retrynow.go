package cli

import (
	"context"
	"fmt"

	"fencepost/edge"
	"fencepost/edge/api"

	"github.com/spf13/cobra"
)

func (a *app) retryNow() *cobra.Command {
	b := bulkFlags{verb: edge.BulkRetryNow, state: string(edge.Pending), done: "due now"}
	c := &cobra.Command{
		Use:   "retry-now ID | retry-now FILTERS",
		Short: "Try a waiting retry now, instead of when it is due",
		Long: "Make a waiting retry due now. Nothing is charged, and the line and the gate of its handler\n" +
			"still hold it: fencepost explain says what it waits for then. With filters instead of an id it\n" +
			"does so to all that match and wait (see fencepost redrive for --dry-run and --yes).",
		Example: "  fencepost retry-now 42\n  fencepost retry-now --handler billing --yes",
		RunE: b.run(a, func(ctx context.Context, id string) error {
			return call(ctx, a, func(ctx context.Context, n *api.Client) (api.Delivery, error) {
				return n.RetryNow(ctx, id)
			}, func(d api.Delivery) error {
				if err := a.showDelivery(d); err != nil {
					return err
				}
				_, err := fmt.Fprintf(a.Out, "it is taken as soon as its line and a worker are free; to see why it waits: fencepost explain %s\n", number(d.ID))
				return err
			})
		}),
	}
	b.add(a, c)
	return c
}
