package cli

import (
	"context"
	"strings"
	"time"

	"fencepost/edge/api"

	"github.com/spf13/cobra"
)

func (a *app) completion() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print what makes a shell complete commands, flags and names",
		Long: "Print a script that makes a shell complete commands and flags, states, and the names of handlers\n" +
			"and targets, which the running node is asked for. Load it at the start of the shell. That for bash needs\n" +
			"the package bash-completion to be installed and loaded: without it bash says\n" +
			"_get_comp_words_by_ref: command not found.",
		Example: "  source <(fencepost completion bash)\n" +
			"  fencepost completion zsh > ~/.zfunc/_fencepost\n" +
			"  fencepost completion fish > ~/.config/fish/completions/fencepost.fish",
		ValidArgs: []string{"bash", "zsh", "fish"},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage("name one shell: bash, zsh or fish")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				return cmd.Root().GenBashCompletionV2(a.Out, true)
			case "zsh":
				return cmd.Root().GenZshCompletion(a.Out)
			case "fish":
				return cmd.Root().GenFishCompletion(a.Out, true)
			}
			return usage("%q: the shells are bash, zsh and fish", args[0])
		},
	}
}

// completer proposes values that begin with what was typed.
type completer func(ctx context.Context, typed string) []string

// complete makes the values of a flag complete.
func (a *app) complete(c *cobra.Command, name string, fn completer) {
	_ = c.RegisterFlagCompletionFunc(name, func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return fn(cmd.Context(), typed), cobra.ShellCompDirectiveNoFileComp
	}) // the flag exists
}

// firstArg makes the only argument complete.
func (a *app) firstArg(fn completer) func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return fn(cmd.Context(), typed), cobra.ShellCompDirectiveNoFileComp
	}
}

func fixed(names ...string) completer {
	return func(_ context.Context, typed string) []string {
		var out []string
		for _, n := range names {
			if strings.HasPrefix(n, typed) {
				out = append(out, n)
			}
		}
		return out
	}
}

// completionTime bounds what a person at the prompt waits for the node.
const completionTime = time.Second

// ask runs fn on the node; a node that is not there proposes nothing.
func (a *app) ask(ctx context.Context, fn func(context.Context, *api.Client) ([]string, error)) []string {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	client, err := a.dial(ctx)
	if err != nil {
		return nil
	}
	defer client.Close()
	names, err := fn(ctx, client)
	if err != nil {
		return nil
	}
	return names
}

func (a *app) handlerNames(ctx context.Context, typed string) []string {
	return a.ask(ctx, func(ctx context.Context, n *api.Client) (names []string, err error) {
		hs, err := n.Handlers(ctx)
		for _, h := range hs {
			if strings.HasPrefix(h.Name, typed) {
				names = append(names, h.Name)
			}
		}
		return names, err
	})
}

// targetNames proposes the targets whose line is stopped, and of one handler all
// on the first page.
func (a *app) targetNames(ctx context.Context, typed string) []string {
	return a.ask(ctx, func(ctx context.Context, n *api.Client) (names []string, err error) {
		handler, _, named := strings.Cut(typed, ":")
		f := api.ListTargets{Limit: api.MaxPage, Stalled: !named}
		if named {
			f.Handler = handler
		}
		page, err := n.Targets(ctx, f)
		for _, t := range page.Targets {
			if strings.HasPrefix(t.Target, typed) && escape(t.Target) == t.Target {
				names = append(names, t.Target)
			}
		}
		return names, err
	})
}
