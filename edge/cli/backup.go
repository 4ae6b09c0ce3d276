package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"fencepost/edge"
	"fencepost/edge/api"
	"fencepost/edge/sqlite"

	"github.com/spf13/cobra"
)

func (a *app) backup() *cobra.Command {
	return &cobra.Command{
		Use:   "backup FILE",
		Short: "Copy the database of the running node to a new file, and check the copy",
		Long: "Copy the database of the running node to a new file on its host. The node goes on meanwhile.\n" +
			"The copy is checked (SQLite's integrity check, every invariant, each body) and synced before it\n" +
			"gets its name; it is readable by the node's user alone. All that was acknowledged before is in\n" +
			"it. A relative name is one of the present directory.",
		Example: "  fencepost backup /mnt/usb/fencepost-$(date +%F).db",
		Args:    oneFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			return call(cmd.Context(), a, func(ctx context.Context, n *api.Client) (api.Backup, error) {
				return n.Backup(ctx, path)
			}, func(b api.Backup) error {
				_, err := fmt.Fprintf(a.Out, "%s: %s, up to commit %d, checked, in %.1f s\n", safe(b.Path), size(b.Bytes), b.Commit, float64(b.TookMS)/1000)
				return err
			})
		},
	}
}

func oneFile(_ *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return usage("give the name of one file")
	}
	return nil
}

// restored is what a restore did.
type restored struct {
	Database       string   `json:"database"`
	From           string   `json:"from"`
	Commit         int64    `json:"commit"`
	ReplacedCommit int64    `json:"replaced_commit"` // last commit of the old database by its side file; -1 = not known
	Aside          []string `json:"aside"`           // where the old files are now
	Node           string   `json:"node"`
	Renamed        bool     `json:"renamed"`
}

func (a *app) restore() *cobra.Command {
	by := edge.Decided{}
	c := &cobra.Command{
		Use:   "restore FILE --reason TEXT",
		Short: "Put a backup in place of the database, while no node runs",
		Long: "Put a backup in place of the database, while no node runs. The backup is checked first; the old\n" +
			"files are moved aside and kept. The restored database is on hold: it takes events and delivers\n" +
			"nothing until fencepost resume, as what was delivered since the backup would be delivered again.\n" +
			"No id is given out twice. At a new place it gets a new node id for what comes from then on.",
		Example: "  fencepost restore /mnt/usb/fencepost-2026-12-01.db --reason 'the disk died'",
		Args:    oneFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			if by.Reason == "" {
				return usage("--reason is missing: say why; it is kept with the database")
			}
			return a.runRestore(cmd.Context(), args[0], by)
		},
	}
	c.Flags().StringVar(&by.Reason, "reason", "", "why; kept with the database")
	c.Flags().StringVar(&by.By, "by", who(), "who decides")
	return c
}

func (a *app) runRestore(ctx context.Context, from string, by edge.Decided) error {
	c, err := a.load()
	if err != nil {
		return err
	}
	r, err := sqlite.Restore(ctx, c.Node.Data, from, sqlite.RestoreOptions{Decided: by})
	if errors.Is(err, edge.ErrConflict) {
		return fmt.Errorf("%w; a restore needs the node stopped", err)
	}
	if err != nil {
		return err
	}
	if a.json {
		return printJSON(a.Out, restored{
			Database: r.Path, From: r.From, Commit: r.Commit, ReplacedCommit: r.ExpectedNo, Aside: append([]string{}, r.Aside...), Node: r.Node, Renamed: r.Renamed,
		})
	}
	f := facts{w: a.Out}
	f.line("restored", fmt.Sprintf("%s from %s, up to commit %d", safe(r.Path), safe(r.From), r.Commit))
	if r.ExpectedNo >= 0 {
		f.line("replaced", fmt.Sprintf("a database with %d commits", r.ExpectedNo))
	}
	for _, name := range r.Aside {
		f.line("kept", safe(name))
	}
	f.line("node", r.Node)
	if f.err == nil {
		_, f.err = fmt.Fprintln(a.Out, "start the node: it takes events and delivers nothing until fencepost resume --reason TEXT")
	}
	return f.err
}
