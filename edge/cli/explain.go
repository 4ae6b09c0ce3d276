package cli

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"fencepost/edge/api"

	"github.com/spf13/cobra"
)

func (a *app) explain() *cobra.Command {
	c := &cobra.Command{
		Use:   "explain ID",
		Short: "Say why a delivery is where it is, and what can be done",
		Long: "Say in sentences why a delivery is where it is, since when and until when, who holds it, what\n" +
			"happens next, and what a person can do: each command stands on a line of its own, to be pasted.",
		Example: "  fencepost explain 42",
		Args:    oneID,
		RunE: func(cmd *cobra.Command, args []string) error {
			return call(cmd.Context(), a, func(ctx context.Context, n *api.Client) (api.Explanation, error) {
				return n.Explain(ctx, args[0])
			}, func(x api.Explanation) error {
				for _, line := range x.Text {
					if _, err := fmt.Fprintln(a.Out, safe(localTimes(line))); err != nil {
						return err
					}
				}
				if a.offline {
					_, err := fmt.Fprintln(a.Out, "No node runs: each of these commands needs one, and a start may change what is said here. To start one: fencepost serve")
					return err
				}
				return nil
			})
		},
	}
	a.offlineFlag(c)
	return c
}

// stamped is a time as [edge.Explain] writes it, with its distance from now.
var stamped = regexp.MustCompile(`(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) (\((?:in [0-9hms.µ]+|[0-9hms.µ]+ ago|now)\))`)

// localTimes writes the times of an explanation in the zone of the host.
func localTimes(line string) string {
	return stamped.ReplaceAllStringFunc(line, func(text string) string {
		m := stamped.FindStringSubmatch(text)
		t, err := time.Parse(time.RFC3339Nano, m[1])
		if err != nil {
			return text
		}
		return when(api.Stamp(t.UnixMilli())) + " " + m[2]
	})
}
