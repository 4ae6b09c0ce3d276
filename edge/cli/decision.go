package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"fencepost/edge"
	"fencepost/edge/api"
	"fencepost/edge/config"
	"fencepost/edge/sqlite"

	"github.com/spf13/cobra"
)

// decision is a command with which a person decides about a loss or a hold:
// through the node, or on the file while none runs.
func (a *app) decision(c *cobra.Command, ask func(context.Context, *api.Client, api.DecisionRequest) (api.Loss, error),
	do func(context.Context, *sqlite.Store, edge.Decided) (edge.Loss, error), open func(config.Config) (*sqlite.Store, error), next string) *cobra.Command {
	req := api.DecisionRequest{}
	c.Args = cobra.NoArgs
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if req.Reason == "" {
			return usage("--reason is missing: say why; it is kept with the decision")
		}
		loss, err := a.decide(cmd.Context(), req, ask, do, open)
		if err != nil {
			return err
		}
		if a.json {
			return printJSON(a.Out, loss)
		}
		if err := a.showLoss(loss); err != nil {
			return err
		}
		_, err = fmt.Fprintln(a.Out, next)
		return err
	}
	c.Flags().StringVar(&req.Reason, "reason", "", "why; kept with the decision")
	c.Flags().StringVar(&req.By, "by", who(), "who decides")
	return c
}

func (a *app) decide(ctx context.Context, req api.DecisionRequest, ask func(context.Context, *api.Client, api.DecisionRequest) (api.Loss, error),
	do func(context.Context, *sqlite.Store, edge.Decided) (edge.Loss, error), open func(config.Config) (*sqlite.Store, error)) (api.Loss, error) {
	c, err := a.load()
	if err != nil {
		return api.Loss{}, err
	}
	if c.HTTP.Socket != "" {
		client, err := api.Dial(ctx, c.HTTP.Socket)
		if err == nil {
			defer client.Close()
			return ask(ctx, client, req)
		}
		if !errors.Is(err, api.ErrNoNode) {
			return api.Loss{}, err
		}
	}
	if _, err := os.Lstat(c.Node.Data); errors.Is(err, os.ErrNotExist) {
		return api.Loss{}, fmt.Errorf("%w: there is no database at %s", edge.ErrNotFound, c.Node.Data)
	}
	store, err := open(c)
	if err != nil {
		return api.Loss{}, err
	}
	loss, err := do(ctx, store, edge.Decided{By: req.By, Reason: req.Reason})
	return api.LossOf(loss), errors.Join(err, store.Close())
}

// openAnyway opens a database whatever it has lost, and writes down what that is.
func openAnyway(c config.Config) (*sqlite.Store, error) { return openOnLoss(c, sqlite.LossHold) }

// openUnlost refuses a database that has lost something of which no start has told
// yet, and leaves it as it is: what is missing may be put back.
func openUnlost(c config.Config) (*sqlite.Store, error) {
	store, err := openOnLoss(c, sqlite.LossRefuse)
	var loss *sqlite.LossError
	switch {
	case !errors.As(err, &loss):
		return store, err
	case loss.Loss.Lost:
		return nil, fmt.Errorf("%w: %s; nothing was changed. Put back what is missing or restore a backup, or say first that work goes on without it: fencepost accept-loss --reason TEXT",
			edge.ErrConflict, loss.Loss.Detail)
	}
	return openAnyway(c)
}

func openOnLoss(c config.Config, what sqlite.OnLoss) (*sqlite.Store, error) {
	return sqlite.Open(c.Node.Data, sqlite.Options{
		Durability: sqlite.Durability(c.Node.Durability), OnLoss: what, Logger: slog.New(slog.DiscardHandler),
	})
}

func (a *app) acceptLoss() *cobra.Command {
	return a.decision(&cobra.Command{
		Use:   "accept-loss --reason TEXT",
		Short: "Say that work goes on with what is there, after commits were lost",
		Long: "Say that work goes on with what is there, after the database and its side file disagreed at a\n" +
			"start: acknowledged events may be gone, and only their producers can send them again. The\n" +
			"decision is kept. Nothing is delivered yet: that is for fencepost resume. While no node runs, it\n" +
			"is written into the file, which is how a node with on_loss = \"refuse\" can be started again.",
		Example: "  fencepost status\n  fencepost accept-loss --reason 'the disk was replaced; producers send again'",
	}, func(ctx context.Context, n *api.Client, r api.DecisionRequest) (api.Loss, error) {
		return n.AcceptLoss(ctx, r)
	},
		func(ctx context.Context, s *sqlite.Store, d edge.Decided) (edge.Loss, error) {
			return s.AcceptLoss(ctx, d)
		},
		openAnyway, "accepted; nothing is delivered until: fencepost resume --reason TEXT")
}

func (a *app) resume() *cobra.Command {
	return a.decision(&cobra.Command{
		Use:   "resume --reason TEXT",
		Short: "End the hold of a node: deliver again",
		Long: "End the hold of a node, which takes events and delivers nothing since its database was found to\n" +
			"be older, another, a copy or a restored one. Look first that no other node works on the same\n" +
			"database: both would deliver the same work. A loss must be accepted first.",
		Example: "  fencepost status\n  fencepost resume --reason 'the old machine is off'",
	}, func(ctx context.Context, n *api.Client, r api.DecisionRequest) (api.Loss, error) {
		return n.Resume(ctx, r)
	},
		func(ctx context.Context, s *sqlite.Store, d edge.Decided) (edge.Loss, error) { return s.Resume(ctx, d) },
		openUnlost, "the hold has ended: deliveries are dispatched")
}

func (a *app) showLoss(l api.Loss) error {
	f := facts{w: a.Out}
	f.line("found", fmt.Sprintf("%s (%s)", when(l.FoundAt), l.Kind))
	f.line("detail", safe(l.Detail))
	f.line("accepted", decided(l.AcceptedAt, l.AcceptedBy, l.AcceptedReason))
	f.line("resumed", decided(l.ResumedAt, l.ResumedBy, l.ResumedReason))
	return f.err
}

func decided(at api.Stamp, by, reason string) string {
	if at == 0 {
		return ""
	}
	return fmt.Sprintf("%s by %s: %s", when(at), safe(by), safe(reason))
}

// holdText says why a node delivers nothing, and what to do.
func holdText(l *api.Loss) string {
	if l == nil {
		return ""
	}
	do := "fencepost resume --reason TEXT"
	if l.Lost && l.AcceptedAt == 0 {
		do = "restore a backup (fencepost restore), or fencepost accept-loss --reason TEXT"
	}
	return fmt.Sprintf("since %s nothing is delivered: %s. To go on: %s", when(l.FoundAt), safe(l.Detail), do)
}

var endings = map[string]string{
	"clean": "in good order", "killed": "cut off (killed, or a crash)", "power_loss": "with the machine (a power loss, or a restart that did not wait for it)",
}

// recoveryText says what became of the work that the process before had begun.
func recoveryText(r *api.Recovery) string {
	if r == nil || r.Owners+r.Left+r.InFlight+r.NotStarted == 0 {
		return ""
	}
	text := fmt.Sprintf("%d under way and %d not begun when their process ended: %d tried again, %d wait for a person, %d final",
		r.InFlight, r.NotStarted, r.Retried, r.Waiting, r.Ended)
	if r.Killed > 0 {
		text += fmt.Sprintf("; %d programs left running were ended", r.Killed)
	}
	if r.Left > 0 {
		text += fmt.Sprintf("; the work of %s could not be settled yet", plural(r.Left, "process", "processes"))
	}
	return text
}
