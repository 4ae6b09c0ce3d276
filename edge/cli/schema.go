package cli

import (
	"io"

	"fencepost/edge/sqlite"

	"github.com/spf13/cobra"
)

func (a *app) schema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the schema of a fresh database",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := sqlite.Schema(cmd.Context())
			if err != nil {
				return err
			}
			if a.json {
				return printJSON(a.Out, map[string]any{"version": sqlite.SchemaVersion(), "schema": text})
			}
			_, err = io.WriteString(a.Out, text)
			return err
		},
	}
}
