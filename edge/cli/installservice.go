package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"fencepost/edge"
	"fencepost/edge/service"

	"github.com/spf13/cobra"
)

func (a *app) installService() *cobra.Command {
	var o installOptions
	c := &cobra.Command{
		Use:   "install-service",
		Short: "Say what makes this host run a node as a systemd service; with --apply do it",
		Long: "Say what makes this host run a node as a systemd service: its user, files, unit and\n" +
			"configuration, and the commands. Nothing is done without --apply, which needs root, may be\n" +
			"given again and again, and writes over nothing that a person has changed. --root lays the\n" +
			"files down below a directory, for an image, and runs no command.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runInstall(cmd, o) },
	}
	c.Flags().BoolVar(&o.apply, "apply", false, "do it")
	c.Flags().BoolVar(&o.uninstall, "uninstall", false, "say how to undo it")
	c.Flags().StringVar(&o.root, "root", "", "a directory in place of /, which is there")
	return c
}

type installOptions struct {
	apply, uninstall bool
	root             string
}

func (a *app) runInstall(cmd *cobra.Command, o installOptions) error {
	if o.apply && o.uninstall {
		return usage("--apply and --uninstall do not go together: --uninstall prints commands, run those that you want")
	}
	if o.uninstall {
		return a.printUninstall()
	}
	root, err := installRoot(o.root)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	plan, err := service.NewPlan(root, self)
	if err != nil {
		return fmt.Errorf("%w: %w", edge.ErrConflict, err)
	}
	if !o.apply {
		return a.printPlan(plan)
	}
	if root == "" && os.Geteuid() != 0 {
		return usage("--apply needs root: run it with sudo, or with --root DIR to look at the files")
	}
	return a.applyPlan(cmd, plan)
}

func installRoot(dir string) (string, error) {
	if dir == "" {
		return "", nil
	}
	root, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	switch fi, err := os.Stat(root); {
	case errors.Is(err, fs.ErrNotExist):
		return "", usage("--root %s: there is no such directory: make it first, with mkdir -p", dir)
	case err != nil:
		return "", usage("--root: %w", err)
	case !fi.IsDir():
		return "", usage("--root %s: not a directory", dir)
	}
	return strings.TrimSuffix(root, "/"), nil
}

func (a *app) applyPlan(cmd *cobra.Command, plan *service.Plan) error {
	if len(plan.Changed()) > 0 && !a.json {
		if err := a.printPlan(plan); err != nil {
			return err
		}
	}
	steps := []string{}
	err := plan.Apply(cmd.Context(), func(step string) {
		steps = append(steps, step)
		if !a.json {
			fmt.Fprintln(a.Out, step)
		}
	})
	if errors.Is(err, service.ErrChanged) {
		return fmt.Errorf("%w: %w", edge.ErrConflict, err)
	}
	if err != nil {
		return err
	}
	if a.json {
		return printJSON(a.Out, map[string]any{"done": steps, "next": plan.Next})
	}
	if len(steps) == 0 {
		fmt.Fprintln(a.Out, "all is there already")
	}
	printNext(a.Out, plan)
	return nil
}

func (a *app) printPlan(plan *service.Plan) error {
	if a.json {
		return printJSON(a.Out, plan)
	}
	fmt.Fprintf(a.Out, "This makes the host run a node as a service. Nothing is done without --apply.\n\nUser and group: %s, made by %s\n\nFiles:\n", service.User, service.SysusersPath)
	for _, f := range plan.Files {
		fmt.Fprintf(a.Out, "  %-*s %04o root:%-9s  %s\n", len(plan.Root)+38, safe(plan.Root+f.Path), f.Mode.Perm(), f.Group, stateText[f.State])
		for line := range strings.Lines(f.Diff) {
			fmt.Fprintf(a.Out, "      %s\n", safe(strings.TrimSuffix(line, "\n")))
		}
	}
	if plan.Root == "" {
		fmt.Fprintf(a.Out, "\nDirectories that the unit makes at each start: %s (0700), /run/fencepost (0755)\n\nCommands:\n", service.StatePath)
		for _, c := range plan.Commands {
			fmt.Fprintln(a.Out, "  "+strings.Join(c, " "))
		}
	}
	printNext(a.Out, plan)
	return nil
}

func printNext(w io.Writer, plan *service.Plan) {
	fmt.Fprint(w, "\nThen:\n")
	for _, n := range plan.Next {
		fmt.Fprintln(w, "  "+n)
	}
}

// stateText says what --apply does with a file in each state.
var stateText = map[string]string{
	service.Absent:   "is written",
	service.Same:     "is as it should be",
	service.Outdated: "of another version: is replaced",
	service.Kept:     "is there and stays as it is",
	service.Changed:  "CHANGED: --apply refuses; - is there, + would be",
}

func (a *app) printUninstall() error {
	steps := []string{
		"systemctl disable --now fencepost",
		"rm " + service.UnitPath + " " + service.SysusersPath + " " + service.BinaryPath,
		"systemctl daemon-reload",
	}
	rest := []string{
		"rm -r /etc/fencepost              # the configuration, and secrets that lie there",
		"rm -r " + service.StatePath + "          # the database: events and deliveries, also those not done",
		"userdel " + service.User,
	}
	if a.json {
		return printJSON(a.Out, map[string]any{"commands": steps, "commands_that_lose_data": rest})
	}
	fmt.Fprintf(a.Out, "To undo it, as root:\n  %s\n\nThat keeps configuration, database and user. To lose those too:\n  %s\n", strings.Join(steps, "\n  "), strings.Join(rest, "\n  "))
	return nil
}
