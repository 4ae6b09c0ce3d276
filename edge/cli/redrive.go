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
		Long: "Try a delivery again that failed, was cancelled or expired (one that succeeded: with --again).\n" +
			"A new generation is made, with an id of its own, and goes to the end of its target's line; when\n" +
			"the line is halted by this delivery, it takes its place and the halt ends. The idempotency key is\n" +
			"kept, so that a receiver that had it already can tell, unless --new-key is given.\n" +
			"Only the newest generation can be tried again. What waits goes on by itself; for what is\n" +
			"blocked there is fencepost resolve.",
		Args: oneID,
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
