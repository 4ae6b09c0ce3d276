package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

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
		Long: "List targets by handler and key: OPEN deliveries that are not final, BUSY of its slots, when it\n" +
			"is READY to be taken, and what STALLs its line.",
		Example: "  fencepost target list --stalled\n  fencepost target list --handler hello --open",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains([]string{"", "held", "blocked", "halted"}, f.Stall) {
				return usage("--stall %q: it is held, blocked or halted", f.Stall)
			}
			return call(cmd.Context(), a, func(ctx context.Context, n *api.Client) (api.TargetPage, error) {
				return fullTargetPage(ctx, n, f)
			}, func(p api.TargetPage) error { return a.showTargets(p, f) })
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.Handler, "handler", "", "only targets of this handler")
	fl.BoolVar(&f.Stalled, "stalled", false, "only targets whose line is stopped")
	fl.StringVar(&f.Stall, "stall", "", "only targets whose line is stopped by this: blocked, halted, or held (reserved: nothing is held yet)")
	fl.BoolVar(&f.Open, "open", false, "only targets with deliveries that are not final")
	fl.StringVar(&f.After, "after", "", "only those after this target: the next page")
	fl.IntVar(&f.Limit, "limit", api.DefaultPage, fmt.Sprintf("length of the page, 1 to %d", api.MaxPage))
	a.offlineFlag(c)
	a.complete(c, "handler", a.handlerNames)
	a.complete(c, "stall", fixed("held", "blocked", "halted"))
	return c
}

func fullTargetPage(ctx context.Context, n *api.Client, f api.ListTargets) (api.TargetPage, error) {
	began := time.Now()
	all := api.TargetPage{Targets: []api.Target{}}
	limit := f.Limit
	for {
		page, err := n.Targets(ctx, f)
		if err != nil {
			return all, err
		}
		all.Targets = append(all.Targets, page.Targets...)
		all.Next, all.Partial = page.Next, page.Partial
		if !page.Partial || time.Since(began) > patience {
			return all, nil
		}
		f.After, f.Limit = page.Next, limit-len(all.Targets)
	}
}

func (a *app) showTargets(page api.TargetPage, f api.ListTargets) error {
	if len(page.Targets) == 0 && !page.Partial {
		_, err := fmt.Fprintln(a.Out, "no targets")
		return err
	}
	t := newTable("TARGET…", "OPEN", "BUSY", zoned("READY"), "STALL", "BY")
	for _, x := range page.Targets {
		t.add(x.Target, fmt.Sprint(x.Open), fmt.Sprintf("%d/%d", x.Busy, x.Slots), short(x.ReadyAt), string(x.Stall), number(x.Stalled))
	}
	if err := t.print(a.Out); err != nil {
		return err
	}
	if page.Next == "" {
		return nil
	}
	command := "fencepost target list " + words("--handler", f.Handler, "--stalled", flagWord(f.Stalled), "--stall", f.Stall,
		"--open", flagWord(f.Open), "--after", page.Next)
	if f.Limit != api.DefaultPage {
		command += fmt.Sprintf(" --limit %d", f.Limit)
	}
	return a.more(page.Partial, command)
}

func (a *app) showTarget(x api.Target) error {
	return a.showTargets(api.TargetPage{Targets: []api.Target{x}}, api.ListTargets{})
}

func (a *app) targetResume() *cobra.Command {
	return &cobra.Command{
		Use:   "resume TARGET",
		Short: "End a halt: the line goes on after the delivery that failed",
		Long: "End a halt, which a handler with on_failure = \"halt\" asks for when a delivery fails: the line\n" +
			"goes on after it. To try that delivery again in its place instead: fencepost redrive.",
		Example:           "  fencepost target resume hello:bob",
		Args:              oneTarget,
		ValidArgsFunction: a.firstArg(a.targetNames),
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
		Long: "Let the line go past the delivery that stops it: a blocked one is failed, a halt ended, a held\n" +
			"one (reserved: nothing is held yet) cancelled. --version is that of this delivery as you saw it.",
		Example:           "  fencepost target skip hello:bob --version 3 --reason 'the order was withdrawn'",
		Args:              oneTarget,
		ValidArgsFunction: a.firstArg(a.targetNames),
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
