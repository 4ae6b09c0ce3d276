package cli

import (
	"context"
	"fmt"

	"fencepost/edge/api"
	"fencepost/edge/node"

	"github.com/spf13/cobra"
)

// offlineFlag adds --offline to a command that only reads.
func (a *app) offlineFlag(c *cobra.Command) {
	c.Flags().BoolVar(&a.offline, "offline", false, "read the database file while no node runs; nothing is written")
}

// client connects to the node, or with --offline opens the file. close ends it.
func (a *app) client(ctx context.Context) (c *api.Client, close func(), err error) {
	if !a.offline {
		c, err := a.dial(ctx)
		if err != nil {
			return nil, nil, err
		}
		return c, c.Close, nil
	}
	cfg, err := a.load()
	if err != nil {
		return nil, nil, err
	}
	file, err := node.OpenOffline(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	if !a.json {
		fmt.Fprintln(a.Err, "fencepost: read from the file: no node runs; what is leased or running was so when the node ended")
	}
	return api.NewHandlerClient(file.Handler()), func() { _ = file.Close() }, nil // only read from
}
