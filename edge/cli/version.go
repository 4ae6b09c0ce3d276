package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version, and built as seconds UTC of the commit, are set by the linker (Makefile,
// .ci/release/build).
var version, built string

// programVersion is the version, else what the build knows of itself.
func programVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

// versionText is the version for people.
func versionText() string {
	return fmt.Sprintf("fencepost %s (%s, %s/%s)\n", programVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func (a *app) version() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := struct {
				Version string `json:"version"`
				Go      string `json:"go"`
				System  string `json:"system"`
			}{programVersion(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			if a.json {
				return printJSON(a.Out, v)
			}
			_, err := fmt.Fprint(a.Out, versionText())
			return err
		},
	}
}
