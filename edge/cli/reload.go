package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"fencepost/edge/api"
	"fencepost/edge/config"
	"fencepost/edge/node"

	"github.com/spf13/cobra"
)

func (a *app) reload() *cobra.Command {
	return &cobra.Command{
		Use:   "reload",
		Short: "Make the node read its configuration again",
		Long: "Make the node that runs read its configuration again: whole or not at all. On any fault\n" +
			"nothing changes and all faults are listed (exit code 2). Running deliveries end as they\n" +
			"began; the next ones use what is new. A changed key that needs a restart is named, and\n" +
			"then nothing else is changed either. To look at a file first: fencepost config check FILE.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asked := false
			err := call(cmd.Context(), a, func(ctx context.Context, n *api.Client) (api.Reloaded, error) {
				asked = true
				return n.Reload(ctx)
			}, a.showReloaded)
			var faults config.Errors
			if !asked && errors.As(err, &faults) { // not even the socket could be found in the file
				err = fmt.Errorf("the node was not asked, and nothing was changed:\n%w", err)
			}
			return err
		},
	}
}

func (a *app) showReloaded(r api.Reloaded) error {
	if len(r.Changes) == 0 {
		_, err := fmt.Fprintf(a.Out, "reloaded %s: it says what was in force already; work that was blocked for a configuration reason is tried again\n", safe(r.File))
		return err
	}
	fmt.Fprintf(a.Out, "reloaded %s\n", safe(r.File))
	t := newTable("KEY", "CHANGE…", "TAKES EFFECT")
	for _, c := range r.Changes {
		when := "now"
		if c.TakesEffect != "reload" {
			when = "with the " + c.TakesEffect
		}
		t.add(c.Key, c.What, when)
	}
	return t.print(a.Out)
}

// hangups are the SIGHUPs of a serving process: each asks for a reload.
type hangups chan os.Signal

// catch takes SIGHUP over, which would end the process otherwise, from before the
// node is made.
func catch() (h hangups, stop func()) {
	h = make(hangups, 1) // one that comes during a reload is not lost, more are one
	signal.Notify(h, syscall.SIGHUP)
	return h, func() { signal.Stop(h) }
}

// reload reloads at each one until the returned function is called. What is
// wrong is in the log of the node.
func (h hangups) reload(n *node.Node) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for {
			select {
			case <-h:
				_, _ = n.Reload(ctx)
			case <-ctx.Done():
				return
			}
		}
	})
	return func() { cancel(); done.Wait() }
}
