package cli

import (
	"context"

	"fencepost/edge/api"

	"github.com/spf13/cobra"
)

func (a *app) cancel() *cobra.Command {
	return &cobra.Command{
		Use:   "cancel ID",
		Short: "Call a delivery off; a running one is told, and what is observed is stored",
		Args:  oneID,
		RunE: func(cmd *cobra.Command, args []string) error {
			return call(cmd.Context(), a, func(ctx context.Context, n *api.Client) (api.Delivery, error) {
				return n.Cancel(ctx, args[0])
			}, a.showDelivery)
		},
	}
}
