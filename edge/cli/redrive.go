package cli

import (
	"context"

	"fencepost/edge"
	"fencepost/edge/api"

	"github.com/spf13/cobra"
)

func (a *app) redrive() *cobra.Command {
	var req api.RedriveRequest
	b := bulkFlags{verb: edge.BulkRedrive, state: string(edge.Failed), done: "redriven", again: &req.Again, newKey: &req.NewKey}
	c := &cobra.Command{
		Use:   "redrive ID | redrive FILTERS",
		Short: "Try failed, cancelled or expired deliveries again, as a new generation",
		Long: "Try a delivery again that failed, was cancelled or expired (one that succeeded: with --again).\n" +
			"A new generation is made, with an id of its own, and goes to the end of its target's line; when\n" +
			"the line is halted by this delivery, it takes its place and the halt ends. The idempotency key is\n" +
			"kept, so that a receiver that had it already can tell, unless --new-key is given.\n" +
			"Only the newest generation can be tried again. What waits goes on by itself (sooner with\n" +
			"fencepost retry-now); for what is blocked there is fencepost resolve.\n\n" +
			"With filters instead of an id it does so to all that match, failed ones unless --state says\n" +
			"otherwise: --dry-run counts them; a terminal is asked; a script needs --yes. Each is done as it\n" +
			"was seen: one that moved meanwhile is skipped and counted, and the exit code is 4. It can be\n" +
			"interrupted and run again.",
		Example: "  fencepost redrive 42\n" +
			"  fencepost redrive --handler billing --code http_503 --since 6h --dry-run\n" +
			"  fencepost redrive --handler billing --code http_503 --since 6h --yes",
		RunE: b.run(a, func(ctx context.Context, id string) error {
			return call(ctx, a, func(ctx context.Context, n *api.Client) (api.Delivery, error) {
				return n.Redrive(ctx, id, req)
			}, a.showDelivery)
		}),
	}
	c.Flags().BoolVar(&req.Again, "again", false, "also when it succeeded: the effect happens again")
	c.Flags().BoolVar(&req.NewKey, "new-key", false, "with a new idempotency key, so that the receiver takes it for new")
	b.add(a, c)
	return c
}
