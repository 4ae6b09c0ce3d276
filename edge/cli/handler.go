package cli

import (
	"context"
	"fmt"
	"time"

	"fencepost/edge"
	"fencepost/edge/api"

	"github.com/spf13/cobra"
)

func (a *app) handler() *cobra.Command {
	return listGroup("handler", "List handlers; pause and resume them", a.handlerList(), a.handlerPause(), a.handlerResume())
}

func oneHandler(_ *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return usage("give the name of one handler")
	}
	return nil
}

func (a *app) handlerList() *cobra.Command {
	c := &cobra.Command{
		Use:   "list",
		Short: "List handlers and their gates",
		Long: "List the handlers that the node knows, and their gates: on, off, paused until a time, or missing\n" +
			"when the configuration no longer names one.",
		Example: "  fencepost handler list",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return call(cmd.Context(), a, func(ctx context.Context, n *api.Client) ([]api.Handler, error) {
				return n.Handlers(ctx)
			}, a.showHandlers)
		},
	}
	a.offlineFlag(c)
	return c
}

func (a *app) showHandlers(hs []api.Handler) error {
	if len(hs) == 0 {
		_, err := fmt.Fprintln(a.Out, "no handlers; add some to the configuration, then: fencepost reload")
		return err
	}
	t := newTable("HANDLER…", "GATE", "CODE…", zoned("RESUMES"), "FAILING SINCE", "REVISION…")
	for _, h := range hs {
		code, resumes := h.Code, h.ResumeAt
		if h.Gate == edge.GateOn && h.RateReadyAt != 0 {
			code, resumes = "rate_limit", h.RateReadyAt
		}
		t.add(h.Name, string(h.Gate), code, short(resumes), short(h.FailingSince), h.Revision)
	}
	return t.print(a.Out)
}

func (a *app) showHandler(h api.Handler) error { return a.showHandlers([]api.Handler{h}) }

func (a *app) handlerPause() *cobra.Command {
	var d time.Duration
	c := &cobra.Command{
		Use:   "pause NAME",
		Short: "Start no more deliveries of a handler; running ones go on",
		Long: "Close the gate of a handler: nothing more of it is started, and running deliveries go on. What\n" +
			"is accepted meanwhile waits, uncharged. --for opens the gate again by itself.",
		Example:           "  fencepost handler pause hello --for 30m",
		Args:              oneHandler,
		ValidArgsFunction: a.firstArg(a.handlerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return call(cmd.Context(), a, func(ctx context.Context, n *api.Client) (api.Handler, error) {
				return n.PauseHandler(ctx, args[0], d)
			}, a.showHandler)
		},
	}
	c.Flags().Var((*spanValue)(&d), "for", "how long, such as 30m or 1d (default until it is resumed)")
	return c
}

func (a *app) handlerResume() *cobra.Command {
	return &cobra.Command{
		Use:   "resume NAME",
		Short: "Let a handler go on",
		Long: "Open the gate of a handler, whoever closed it: a person, or the node after 410 Gone or a long\n" +
			"failure. What waited is taken, in order, and a retry when it is due: what a receiver put off\n" +
			"with Retry-After stays put off, and what is ordered behind it too. To try that at once:\n" +
			"fencepost retry-now --handler NAME.",
		Example:           "  fencepost handler resume hello\n  fencepost retry-now --handler hello --dry-run",
		Args:              oneHandler,
		ValidArgsFunction: a.firstArg(a.handlerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return call(cmd.Context(), a, func(ctx context.Context, n *api.Client) (api.Handler, error) {
				return n.ResumeHandler(ctx, args[0])
			}, func(h api.Handler) error {
				if err := a.showHandler(h); err != nil {
					return err
				}
				_, err := fmt.Fprintf(a.Out, "retries are taken when they are due; to try them at once: fencepost retry-now --handler %s\n", h.Name)
				return err
			})
		},
	}
}
