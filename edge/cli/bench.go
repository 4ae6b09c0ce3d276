package cli

import (
	"fmt"
	"os"

	"fencepost/edge/api"
	"fencepost/edge/internal/bench"

	"github.com/spf13/cobra"
)

// maxBench bounds the rows of a measurement.
const maxBench = 100_000_000

func (a *app) bench() *cobra.Command {
	var o bench.Options
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure this build on this disk against the naive form of itself",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case o.N < 1 || o.N > maxBench:
				return usage("--n %d: it is 1 to %d", o.N, maxBench)
			case o.Rounds < 1 || o.Rounds > 100:
				return usage("--rounds %d: it is 1 to 100", o.Rounds)
			case o.Large < 1 || o.Large > maxBench:
				return usage("--large %d: it is 1 to %d", o.Large, maxBench)
			}
			o.JSON = a.json
			o.Program, _ = os.Executable() // without it the memory is left out
			report, err := bench.Run(cmd.Context(), o, a.Out)
			if err != nil {
				return fmt.Errorf("bench: %w", err)
			}
			if a.json {
				err = printJSON(a.Out, report)
			}
			if err == nil && report.Missed() > 0 {
				return &quietError{api.ExitFailed}
			}
			return err
		},
	}
	f := c.Flags()
	f.StringVar(&o.Dir, "dir", ".", "directory for the databases: on the disk that counts")
	f.IntVar(&o.N, "n", 5000, "deliveries of one round")
	f.IntVar(&o.Rounds, "rounds", 3, "rounds of each contestant")
	f.BoolVar(&o.All, "all", false, "also what takes minutes: large backlogs, memory, idle")
	f.IntVar(&o.Large, "large", 1_000_000, "rows of a large backlog, with --all")
	return c
}
