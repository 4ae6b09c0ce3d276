package cli

import (
	"context"

	"fencepost/edge/api"

	"github.com/spf13/cobra"
)

func (a *app) clock() *cobra.Command {
	return group("clock", "Vouch for the clock of this host", &cobra.Command{
		Use:   "confirm",
		Short: "Say that the clock is right: what stood still because it was doubted goes on",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return call(cmd.Context(), a, func(ctx context.Context, n *api.Client) (api.Status, error) {
				return n.ConfirmClock(ctx)
			}, a.showStatus)
		},
	})
}
