package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"fencepost/edge/api"

	"github.com/spf13/cobra"
)

// nodeStatus is a node's status with its counters.
type nodeStatus struct {
	api.Status
	Counters map[string]int64 `json:"counters"`
}

func (a *app) status() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show what the node is and does, and its counters",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return call(cmd.Context(), a, func(ctx context.Context, n *api.Client) (nodeStatus, error) {
				s, err := n.Status(ctx)
				if err != nil {
					return nodeStatus{}, err
				}
				counters, err := n.Counters(ctx)
				return nodeStatus{s, counters}, err
			}, func(s nodeStatus) error {
				if err := a.showStatus(s.Status); err != nil {
					return err
				}
				f := facts{w: a.Out}
				for _, name := range slices.Sorted(maps.Keys(s.Counters)) {
					f.line(name, fmt.Sprint(s.Counters[name]))
				}
				return f.err
			})
		},
	}
}

func (a *app) showStatus(s api.Status) error {
	f := facts{w: a.Out}
	ready := "yes"
	if !s.Ready {
		ready = "no: " + s.NotReady
	}
	clock := when(s.Now)
	if s.Doubted {
		clock += ", doubted: nothing expires or is given up by time; if it is right: fencepost clock confirm"
	}
	f.line("node", fmt.Sprintf("%s, version %s", s.Node, s.Version))
	f.line("process", fmt.Sprintf("%d, owner %s", s.PID, s.Owner))
	f.line("ready", ready)
	f.line("started", when(s.StartedAt))
	f.line("clock", clock)
	f.line("database", fmt.Sprintf("%s, durability %s", s.Database, s.Durability))
	f.line("listens on", s.Listen)
	for _, u := range s.Uplinks {
		state := "up, as far as is known"
		if u.DownSince != 0 {
			state = "down since " + when(u.DownSince) + ": nothing of its handlers is attempted (" + u.Detail + ")"
		}
		f.line("uplink "+u.Name, state)
	}
	f.line("under way", fmt.Sprintf("%d (%d wait for the store, %d ignore their end)", s.Live, s.Held, s.Stubborn))
	return f.err
}
