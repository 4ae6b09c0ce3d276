package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"fencepost/edge"
	"fencepost/edge/api"
	"fencepost/edge/sqlite"

	"github.com/spf13/cobra"
)

func (a *app) check() *cobra.Command {
	var full bool
	c := &cobra.Command{
		Use:   "check",
		Short: "Check the invariants of the database",
		Long: "Check the invariants of the database: through the node while one runs, else on the file,\n" +
			"which is locked meanwhile. The exit code is 1 when something is broken.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runCheck(cmd.Context(), full) },
	}
	c.Flags().BoolVar(&full, "full", false, "also compare each stored body with its SHA-256")
	return c
}

func (a *app) runCheck(ctx context.Context, full bool) error {
	found, err := a.violations(ctx, full)
	if err != nil {
		return err
	}
	if a.json {
		err = printJSON(a.Out, api.CheckReport{Violations: found})
	} else {
		err = a.showViolations(found)
	}
	if err == nil && len(found) > 0 {
		return &quietError{api.ExitFailed}
	}
	return err
}

// violations asks the node, or when there is none the file itself.
func (a *app) violations(ctx context.Context, full bool) ([]api.Violation, error) {
	c, err := a.load()
	if err != nil {
		return nil, err
	}
	if c.HTTP.Socket != "" {
		client, err := api.Dial(ctx, c.HTTP.Socket)
		if err == nil {
			defer client.Close()
			return client.Check(ctx, full)
		}
		if !errors.Is(err, api.ErrNoNode) {
			return nil, err
		}
	}
	return checkFile(ctx, c.Node.Data, full)
}

func checkFile(ctx context.Context, path string, full bool) ([]api.Violation, error) {
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: there is no database at %s: a node makes it at its first start", edge.ErrNotFound, path)
	}
	store, err := sqlite.Open(path, sqlite.Options{OnLoss: sqlite.LossLook})
	if err != nil {
		return nil, err
	}
	found, err := store.Check(ctx, full)
	out := make([]api.Violation, len(found))
	for i, v := range found {
		out[i] = api.Violation(v)
	}
	return out, errors.Join(err, store.Close())
}

func (a *app) showViolations(found []api.Violation) error {
	if len(found) == 0 {
		_, err := fmt.Fprintln(a.Out, "ok: every invariant holds")
		return err
	}
	for _, v := range found {
		if _, err := fmt.Fprintf(a.Out, "%s: %s\n", safe(v.Rule), safe(v.Detail)); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(a.Out, "%s broken; keep a copy of the file before anything else writes to it\n", plural(len(found), "invariant is", "invariants are"))
	return err
}
