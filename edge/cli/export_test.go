package cli

import (
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// RootForTest is the command line.
func RootForTest() *cobra.Command {
	a := &app{Streams: Streams{Out: io.Discard, Err: io.Discard}}
	return a.root()
}

// CommandsForTest are all commands that people see.
func CommandsForTest(root *cobra.Command) []*cobra.Command { return commands(root) }

// FlagUsagesForTest are the descriptions of a command's own flags.
func FlagUsagesForTest(c *cobra.Command) (usages []string) {
	c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) { usages = append(usages, f.Usage) })
	return usages
}

// TableForTest prints rows in a width.
func TableForTest(w io.Writer, width int, header []string, rows ...[]string) error {
	t := newTable(header...)
	for _, r := range rows {
		t.add(r...)
	}
	return t.printIn(w, width)
}

// ShellWordForTest writes a word for a shell.
func ShellWordForTest(s string) string { return shellWord(s) }
