package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func (a *app) man() *cobra.Command {
	var dir string
	var markdown bool
	c := &cobra.Command{
		Use:   "man --dir DIR | man --markdown",
		Short: "Write the manual pages, one for each command",
		Long: "Write the manual pages into a directory, one for each command, such as fencepost-send.1. They\n" +
			"say what --help says. --markdown prints the same as one page instead.",
		Example: "  fencepost man --dir /usr/local/share/man/man1",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if markdown {
				page := &notingWriter{w: a.Out}
				reference(page, cmd.Root())
				return page.err
			}
			if dir == "" {
				return usage("name the directory for the pages with --dir, or print one page with --markdown")
			}
			if fi, err := os.Stat(dir); err != nil || !fi.IsDir() {
				return usage("--dir %q is not a directory: make it first", dir)
			}
			n := 0
			for _, c := range commands(cmd.Root()) {
				var page bytes.Buffer
				manPage(&page, c)
				name := filepath.Join(dir, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1")
				if err := renameio.WriteFile(name, page.Bytes(), 0o644); err != nil {
					return err
				}
				n++
			}
			if a.json {
				return printJSON(a.Out, map[string]any{"dir": dir, "pages": n})
			}
			_, err := fmt.Fprintf(a.Out, "%d pages written to %s\n", n, safe(dir))
			return err
		},
	}
	c.Flags().StringVar(&dir, "dir", "", "directory for the pages")
	c.Flags().BoolVar(&markdown, "markdown", false, "print one page of Markdown")
	return c
}

// commands are all commands that people see, c first.
func commands(c *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" {
			all = append(all, commands(sub)...)
		}
	}
	return all
}

// manPage writes one page in the language of man(7).
func manPage(w io.Writer, c *cobra.Command) {
	name := strings.ReplaceAll(c.CommandPath(), " ", "-")
	fmt.Fprintf(w, ".TH %q 1 \"\" \"fencepost\" \"fencepost\"\n", strings.ToUpper(name))
	fmt.Fprintf(w, ".SH NAME\n%s \\- %s\n", roff(name), roff(c.Short))
	fmt.Fprintf(w, ".SH SYNOPSIS\n.B %s\n", roff(c.UseLine()))
	fmt.Fprintf(w, ".SH DESCRIPTION\n%s\n", roffText(longOf(c)))
	if subs := subcommands(c); len(subs) > 0 {
		fmt.Fprintln(w, ".SH COMMANDS")
		for _, s := range subs {
			fmt.Fprintf(w, ".TP\n.B %s\n%s\n", roff(s.Name()), roff(s.Short))
		}
	}
	manFlags(w, "OPTIONS", c.NonInheritedFlags())
	manFlags(w, "OPTIONS OF ALL COMMANDS", c.InheritedFlags())
	if c.Example != "" {
		fmt.Fprintf(w, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roffText(c.Example))
	}
	fmt.Fprintf(w, ".SH EXIT STATUS\n%s\n", roff(exitCodes))
	if c.HasParent() {
		fmt.Fprintf(w, ".SH SEE ALSO\n.BR %s (1)\n", roff(strings.ReplaceAll(c.Parent().CommandPath(), " ", "-")))
	}
}

const exitCodes = "0 ok, 1 failed, 2 usage or configuration, 3 not found, 4 conflict, 5 no node, 6 storage."

func manFlags(w io.Writer, head string, fs *pflag.FlagSet) {
	first := true
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		if first {
			fmt.Fprintln(w, ".SH "+head)
			first = false
		}
		fmt.Fprintf(w, ".TP\n.B %s\n%s\n", roff(flagHead(f)), roff(f.Usage))
	})
}

// flagHead is a flag with the kind of its value.
func flagHead(f *pflag.Flag) string {
	head := "--" + f.Name
	if f.Shorthand != "" {
		head = "-" + f.Shorthand + ", " + head
	}
	if kind := f.Value.Type(); kind != "bool" {
		head += " " + kind
	}
	return head
}

func longOf(c *cobra.Command) string {
	if c.Long != "" {
		return c.Long
	}
	return c.Short + "."
}

func subcommands(c *cobra.Command) []*cobra.Command {
	var subs []*cobra.Command
	for _, s := range c.Commands() {
		if s.IsAvailableCommand() && s.Name() != "help" {
			subs = append(subs, s)
		}
	}
	return subs
}

var roffEscaper = strings.NewReplacer(`\`, `\e`, "-", `\-`)

func roff(s string) string { return roffText(strings.ReplaceAll(s, "\n", " ")) }

// roffText escapes what man(7) would take for its own, line by line.
func roffText(s string) string {
	lines := strings.Split(roffEscaper.Replace(s), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
		if line == "" {
			lines[i] = ".PP"
		}
	}
	return strings.Join(lines, "\n")
}
