package cli

import (
	"context"
	"fmt"

	"fencepost/edge"
	"fencepost/edge/api"

	"github.com/spf13/cobra"
)

func (a *app) resolve() *cobra.Command {
	var as string
	req := api.ResolveRequest{}
	c := &cobra.Command{
		Use:   "resolve ID --as succeeded|failed|retry --version N --reason TEXT",
		Short: "Decide a blocked delivery, after looking at what really happened",
		Long: "Decide a blocked delivery. --version is that of the delivery as you saw it (fencepost\n" +
			"delivery ID): the decision is refused when it has changed since. retry fails it and puts\n" +
			"a new generation in its place in line.",
		Args: oneID,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch req.As = edge.ResolveAs(as); req.As {
			case edge.ResolveSucceeded, edge.ResolveFailed, edge.ResolveRetry:
			default:
				return usage("--as %q: it is succeeded, failed or retry", as)
			}
			if err := checkDecision(req.Version, req.Reason, fmt.Sprintf("fencepost delivery %s", args[0])); err != nil {
				return err
			}
			return call(cmd.Context(), a, func(ctx context.Context, n *api.Client) (api.Delivery, error) {
				return n.Resolve(ctx, args[0], req)
			}, a.showDelivery)
		},
	}
	f := c.Flags()
	f.StringVar(&as, "as", "", "succeeded (it happened), failed (it did not, or is given up) or retry")
	f.Int64Var(&req.Version, "version", 0, "version of the delivery that was looked at")
	f.StringVar(&req.Reason, "reason", "", "why; kept with the decision")
	f.StringVar(&req.By, "by", who(), "who decides")
	return c
}

// checkDecision wants what a person's decision needs.
func checkDecision(version int64, reason, look string) error {
	switch {
	case version < 1:
		return usage("--version is missing: run %s, and give the version that you saw", look)
	case reason == "":
		return usage("--reason is missing: say why; it is kept with the decision")
	}
	return nil
}
