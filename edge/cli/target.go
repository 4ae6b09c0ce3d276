package cli

import (
	"context"
	"fmt"

	"fencepost/edge/api"

	"github.com/spf13/cobra"
)

func (a *app) target() *cobra.Command {
	return listGroup("target", "List targets; let a stopped line go on", a.targetList(), a.targetResume(), a.targetSkip())
}

func oneTarget(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usage("give one target, as handler:key")
	}
	return nil
}

func (a *app) targetList() *cobra.Command {
	var f api.ListTargets
	c := &cobra.Command{
		Use:   "list",
		Short: "List targets by handler and key",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return call(cmd.Context(), a, func(ctx context.Context, n *api.Client) (api.TargetPage, error) {
				return n.Targets(ctx, f)
			}, a.showTargets)
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.Handler, "handler", "", "only targets of this handler")
	fl.BoolVar(&f.Stalled, "stalled", false, "only targets whose line is stopped")
	fl.StringVar(&f.After, "after", "", "only those after this target: the next page")
	fl.IntVar(&f.Limit, "limit", api.DefaultPage, fmt.Sprintf("length of the page, 1 to %d", api.MaxPage))
	return c
}

func (a *app) showTargets(page api.TargetPage) error {
	if len(page.Targets) == 0 {
		_, err := fmt.Fprintln(a.Out, "no targets")
		return err
	}
	t := table{header: []string{"TARGET", "OPEN", "BUSY", "READY", "STALL", "BY"}, limits: []int{36, 0, 0, 0, 0, 0}}
	for _, x := range page.Targets {
		t.add(x.Target, fmt.Sprint(x.Open), fmt.Sprintf("%d/%d", x.Busy, x.Slots), short(x.ReadyAt), string(x.Stall), number(x.Stalled))
	}
	if err := t.print(a.Out); err != nil {
		return err
	}
	if page.Next != "" {
		_, err := fmt.Fprintf(a.Out, "more: add --after %s\n", shellWord(page.Next))
		return err
	}
	return nil
}

func (a *app) showTarget(x api.Target) error {
	return a.showTargets(api.TargetPage{Targets: []api.Target{x}})
}

func (a *app) targetResume() *cobra.Command {
	return &cobra.Command{
		Use:   "resume TARGET",
		Short: "End a halt: the line goes on after the delivery that failed",
		Args:  oneTarget,
		RunE: func(cmd *cobra.Command, args []string) error {
			return call(cmd.Context(), a, func(ctx context.Context, n *api.Client) (api.Target, error) {
				return n.ResumeTarget(ctx, args[0])
			}, a.showTarget)
		},
	}
}

func (a *app) targetSkip() *cobra.Command {
	var req api.TargetRequest
	c := &cobra.Command{
		Use:   "skip TARGET --version N --reason TEXT",
		Short: "Let the line go past the delivery that stops it",
		Long: "Let the line go past the delivery that stops it: a held one is cancelled, a blocked one\n" +
			"failed, a halt ended. --version is that of this delivery as you saw it.",
		Args: oneTarget,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkDecision(req.Version, req.Reason, "fencepost target list --stalled, then fencepost delivery on the one that stops it"); err != nil {
				return err
			}
			req.Target = args[0]
			return call(cmd.Context(), a, func(ctx context.Context, n *api.Client) (api.Target, error) {
				return n.SkipTarget(ctx, req)
			}, a.showTarget)
		},
	}
	f := c.Flags()
	f.Int64Var(&req.Version, "version", 0, "version of the delivery that was looked at")
	f.StringVar(&req.Reason, "reason", "", "why; kept with the decision")
	f.StringVar(&req.By, "by", who(), "who decides")
	return c
}
