package cli

import (
	"context"

	"fencepost/edge/api"

	"github.com/spf13/cobra"
)

func (a *app) redrive() *cobra.Command {
	var req api.RedriveRequest
	c := &cobra.Command{
		Use:   "redrive ID",
		Short: "Try a failed, cancelled or expired delivery again, as a new generation",
		Args:  oneID,
		RunE: func(cmd *cobra.Command, args []string) error {
			return call(cmd.Context(), a, func(ctx context.Context, n *api.Client) (api.Delivery, error) {
				return n.Redrive(ctx, args[0], req)
			}, a.showDelivery)
		},
	}
	c.Flags().BoolVar(&req.Again, "again", false, "also when it succeeded: the effect happens again")
	c.Flags().BoolVar(&req.NewKey, "new-key", false, "with a new idempotency key, so that the receiver takes it for new")
	return c
}
