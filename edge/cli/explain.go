package cli

import (
	"context"
	"fmt"

	"fencepost/edge/api"

	"github.com/spf13/cobra"
)

func (a *app) explain() *cobra.Command {
	return &cobra.Command{
		Use:   "explain ID",
		Short: "Say why a delivery is where it is, and what can be done",
		Args:  oneID,
		RunE: func(cmd *cobra.Command, args []string) error {
			return call(cmd.Context(), a, func(ctx context.Context, n *api.Client) (api.Explanation, error) {
				return n.Explain(ctx, args[0])
			}, func(x api.Explanation) error {
				for _, line := range x.Text {
					if _, err := fmt.Fprintln(a.Out, safe(line)); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}
