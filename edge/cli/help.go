package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helps are descriptions and examples of commands that have none beside them.
var helps = map[string]struct{ long, example string }{
	"fencepost": {
		long: "Take events, store them, and turn each into effects: in order per target, once per event and\n" +
			"consumer, fenced. Commands other than serve ask the node that runs, over its socket.\n" +
			"Exit codes: " + exitCodes,
		example: "  fencepost demo\n  fencepost serve --config fencepost.toml\n  fencepost status",
	},
	"fencepost bench":           {long: "Measure this build on this disk, against a naive form of itself: the same statements, one commit\nfor each step.", example: "  fencepost bench --n 5000 --dir /var/lib/fencepost"},
	"fencepost check":           {example: "  fencepost check\n  fencepost check --full --json"},
	"fencepost clock":           {long: "Vouch for the clock of this host, when the node doubts it.", example: "  fencepost clock confirm"},
	"fencepost clock confirm":   {example: "  fencepost clock confirm", long: "Say that the clock is right. While it is doubted nothing expires, is given up by time or is\npruned; that goes on then."},
	"fencepost config":          {long: "Look at configurations before a node does.", example: "  fencepost config check fencepost.toml"},
	"fencepost config check":    {example: "  fencepost config check fencepost.toml\n  fencepost config check --event event.json"},
	"fencepost demo":            {long: "Run the example: a node and a receiver together, and a first event, until Ctrl-C.", example: "  fencepost demo"},
	"fencepost handler":         {example: "  fencepost handler\n  fencepost handler pause hello --for 30m"},
	"fencepost install-service": {example: "  fencepost install-service\n  sudo fencepost install-service --apply"},
	"fencepost listen":          {long: "Receive webhooks and print them, for trying things out: the other side of a webhook handler.", example: "  fencepost listen --addr 127.0.0.1:9000"},
	"fencepost reload":          {example: "  fencepost config check fencepost.toml && fencepost reload"},
	"fencepost resolve": {example: "  fencepost delivery 42\n" +
		"  fencepost resolve 42 --as succeeded --version 3 --reason 'the bank shows the transfer'"},
	"fencepost schema":  {long: "Print the schema of a fresh database, documented: the first thing to read of the program.", example: "  fencepost schema"},
	"fencepost serve":   {example: "  fencepost serve --config /etc/fencepost/fencepost.toml"},
	"fencepost target":  {example: "  fencepost target --stalled\n  fencepost target resume hello:bob"},
	"fencepost version": {long: "Print the version, what built it and for what system.", example: "  fencepost version --json"},
}

// describe gives a command and those below it what helps has of them.
func describe(c *cobra.Command) {
	h := helps[c.CommandPath()]
	if c.Long == "" {
		c.Long = h.long
	}
	if c.Example == "" {
		c.Example = h.example
	}
	for _, sub := range c.Commands() {
		describe(sub)
	}
}

// reference writes what --help says of all commands as one page of Markdown.
func reference(w io.Writer, root *cobra.Command) {
	fmt.Fprint(w, "# The command line\n\nWritten by `fencepost man --markdown`; a test keeps it equal to the program.\n\n"+
		"All commands take the flags of [fencepost](#fencepost). Times are in the zone of the host, which they name; with `--json` they are UTC, RFC 3339.\n"+
		"Tables give way to the width of a terminal and are whole elsewhere. What is not printable is escaped.\n"+
		"Lists end with the command for the next page. Exit codes: "+exitCodes+"\n")
	for _, c := range commands(root) {
		fmt.Fprintf(w, "\n## %s\n\n%s\n\n```\n%s\n```\n", c.CommandPath(), longOf(c), c.UseLine())
		if subs := subcommands(c); len(subs) > 0 && c.HasParent() {
			fmt.Fprintln(w)
			for _, s := range subs {
				fmt.Fprintf(w, "- `%s`: %s\n", s.Name(), s.Short)
			}
		}
		flags := c.NonInheritedFlags()
		if flags.HasAvailableFlags() {
			fmt.Fprint(w, "\n| flag | meaning |\n|---|---|\n")
			flags.VisitAll(func(f *pflag.Flag) {
				if !f.Hidden {
					fmt.Fprintf(w, "| `%s` | %s%s |\n", flagHead(f), strings.ReplaceAll(f.Usage, "|", `\|`), defaultOf(f))
				}
			})
		}
		if c.Example != "" {
			fmt.Fprintf(w, "\n```sh\n%s\n```\n", unindent(c.Example))
		}
	}
}

func defaultOf(f *pflag.Flag) string {
	switch f.DefValue {
	case "", "false", "0", "[]", "0s":
		return ""
	}
	if f.Name == "by" {
		return "" // who runs it
	}
	return " (default " + f.DefValue + ")"
}

func unindent(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "  ")
	}
	return strings.Join(lines, "\n")
}
