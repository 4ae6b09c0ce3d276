package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"fencepost/edge"
	"fencepost/edge/api"
	"fencepost/edge/config"
	"fencepost/edge/service"
	"fencepost/edge/sqlite"

	"github.com/spf13/cobra"
)

// DefaultConfig is the configuration file when neither --config nor
// FENCEPOST_CONFIG names one; where it is not there, that of the installed
// service is used ([service.ConfigPath]).
const DefaultConfig = "fencepost.toml"

// configVariable names the configuration file in the environment.
const configVariable = "FENCEPOST_CONFIG"

// Streams are the standard streams of a command.
type Streams struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
}

// app is one run of the program.
type app struct {
	Streams
	config  string // --config
	json    bool   // --json
	offline bool   // --offline
	reads   bool   // the command only reads: it has --offline
	help    *notingWriter
	ran     bool // the arguments were understood and a command began
}

// Main runs the command that args name and returns the exit code. It ends soon
// after ctx is done.
func Main(ctx context.Context, args []string, s Streams) int {
	a := &app{Streams: s}
	root := a.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil && a.help.err != nil { // what cobra prints, it prints without looking
		a.ran, err = true, a.help.err
	}
	if err == nil {
		return api.ExitOK
	}
	if !a.ran {
		a.json = a.json || slices.Contains(args, "--json") // which was not read when another flag before it was wrong
		err = fmt.Errorf("%w; run it with --help to see what it takes", asUsage(oneLine(err)))
	}
	code := exitCode(err)
	a.printError(err, code)
	return code
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "fencepost",
		Short:         "Durable events, ordered and fenced deliveries, for small hosts",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(a.In)
	a.help = &notingWriter{w: plainWriter{a.Out}} // what cobra prints may have a name from outside in it
	root.SetOut(a.help)
	root.SetErr(plainWriter{a.Err})
	root.CompletionOptions.DisableDefaultCmd = true
	root.Version = programVersion()
	root.SetVersionTemplate(versionText())
	root.Flags().Bool("version", false, "print the version")
	root.PersistentFlags().StringVar(&a.config, "config", "", "configuration file (default $"+configVariable+", else ./"+DefaultConfig+", else "+service.ConfigPath+")")
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print JSON: times in UTC, public ids")
	root.AddCommand(
		a.demo(), a.serve(), a.reload(), a.configGroup(), a.send(), a.listen(),
		a.deliveries(), a.delivery(), a.explain(), a.cancel(), a.redrive(), a.retryNow(), a.resolve(),
		a.events(), a.oneEvent(), a.target(), a.handler(), a.tail(), a.status(), a.check(), a.clock(), a.backup(), a.restore(), a.acceptLoss(), a.resume(),
		a.completion(), a.man(),
		a.schema(), a.bench(), a.version(), a.installService(),
	)
	describe(root)
	a.noteRuns(root)
	return root
}

// noteRuns makes each command note that it began: an error before that is a
// fault in the arguments.
func (a *app) noteRuns(c *cobra.Command) {
	if run := c.RunE; run != nil {
		c.RunE = func(c *cobra.Command, args []string) error {
			a.ran = true
			a.reads = c.Flags().Lookup("offline") != nil
			return run(c, args)
		}
	}
	for _, sub := range c.Commands() {
		a.noteRuns(sub)
	}
}

// group is a command that only has commands of its own.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error {
		return usage("%s needs one of its commands: run fencepost %s --help", c.Name(), c.Name())
	}}
	c.AddCommand(commands...)
	return c
}

// listGroup is a group that lists when none of its commands is named.
func listGroup(use, short string, list *cobra.Command, others ...*cobra.Command) *cobra.Command {
	c := group(use, short, append([]*cobra.Command{list}, others...)...)
	c.Long = short + ". Without a command of its own it lists: fencepost " + use + " is\nfencepost " + use + " list."
	c.RunE = list.RunE
	c.Flags().AddFlagSet(list.Flags())
	return c
}

// usage is a fault in how a command was called.
func usage(format string, args ...any) error { return asUsage(fmt.Errorf(format, args...)) }

func asUsage(err error) error { return &usageError{err} }

// usageError is ErrInvalid with nothing but its own text.
type usageError struct{ cause error }

func (e *usageError) Error() string   { return e.cause.Error() }
func (e *usageError) Unwrap() []error { return []error{e.cause, edge.ErrInvalid} }

// oneLine is an error of the arguments without the layout that cobra gives it.
func oneLine(err error) error {
	head, meant, found := strings.Cut(err.Error(), "Did you mean this?")
	if !found {
		return errors.New(strings.Join(strings.Fields(head), " "))
	}
	return fmt.Errorf("%s: did you mean %s?", strings.Join(strings.Fields(head), " "), strings.Join(strings.Fields(meant), " or "))
}

// exitCode is the exit code of an error: that of its class.
func exitCode(err error) int {
	var faults config.Errors
	if errors.As(err, &faults) {
		return api.ExitUsage
	}
	var quiet *quietError
	if errors.As(err, &quiet) {
		return quiet.code
	}
	return api.ClassOf(err).Exit
}

// quietError ends a command whose output has said everything.
type quietError struct{ code int }

func (e *quietError) Error() string { return "" }

func (a *app) printError(err error, code int) {
	if err.Error() == "" {
		return
	}
	if a.json {
		p := struct {
			Code   string           `json:"code"`
			Detail string           `json:"detail"`
			Exit   int              `json:"exit"`
			Errors []api.FieldFault `json:"errors,omitempty"`
		}{Code: api.ClassOf(err).Code, Detail: err.Error(), Exit: code}
		if code == api.ExitUsage {
			p.Code = api.CodeInvalid
		}
		var problem *api.Problem
		if errors.As(err, &problem) {
			p.Errors = problem.Errors
		}
		_ = printJSON(a.Err, p)
		return
	}
	said := map[string]bool{} // joined errors may say the same twice
	for line := range strings.Lines(err.Error()) {
		if line = safe(strings.TrimRight(line, "\n")); !said[line] {
			said[line] = true
			fmt.Fprintln(a.Err, "fencepost: "+line)
		}
	}
	switch api.ClassOf(err).Code {
	case api.CodeNotFound:
		if hint := whichThereAre(err.Error()); hint != "" {
			fmt.Fprintln(a.Err, "fencepost: to see which there are: "+hint)
		}
	case api.CodeNoNode:
		if a.reads && !a.offline {
			fmt.Fprintln(a.Err, "fencepost: to look at the database of a node that is down, add --offline")
		}
	case api.CodeUnavailable:
		fmt.Fprintln(a.Err, "fencepost: what was acknowledged is stored; the log of the node says why nothing more is: mend that (a full disk, a file that is locked), the node goes on by itself")
	case api.CodeStorageFault:
		var loss *sqlite.LossError
		if errors.As(err, &loss) {
			return // it has said what to do
		}
		fmt.Fprintln(a.Err, "fencepost: look at the disk and at the log of the node. If a file is malformed, keep a copy of it and its -wal and restore a backup; else start the node again and run fencepost check")
	}
}

// whichThereAre is the command that lists what was not found.
func whichThereAre(text string) string {
	for _, x := range [...]struct{ thing, command string }{
		{"delivery", "fencepost deliveries"}, {"event", "fencepost events"}, {"handler", "fencepost handler list"}, {"target", "fencepost target list"},
		{"dlv-", "fencepost deliveries"}, {"evt-", "fencepost events"},
	} {
		if strings.Contains(text, x.thing) && !strings.Contains(text, "database") {
			return x.command
		}
	}
	return ""
}

// load reads the configuration, and reports what more finds with all other faults.
func (a *app) load(more ...config.Judge) (config.Config, error) {
	path := a.configPath()
	c, err := config.Load(path, more...)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return config.Config{}, usage("there is no configuration at %s: write one (config.example.toml shows every key; an empty file is valid), or name it with --config or %s", path, configVariable)
	case errors.Is(err, fs.ErrPermission):
		return config.Config{}, usage("%w: run this with sudo, as the user of the node, or as a member of the group of the file", err)
	case err != nil:
		return config.Config{}, asUsage(err)
	}
	return *c, nil
}

func (a *app) configPath() string {
	if a.config != "" {
		return a.config
	}
	if path := os.Getenv(configVariable); path != "" {
		return path
	}
	if _, err := os.Lstat(DefaultConfig); errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(service.ConfigPath); err == nil {
			return service.ConfigPath
		}
	}
	return DefaultConfig
}

// dial connects to the node of the configuration.
func (a *app) dial(ctx context.Context) (*api.Client, error) {
	c, err := a.load()
	if err == nil {
		return dialNode(ctx, c)
	}
	// A node goes on with the file as it was: the socket may be found in one
	// that has faults by now.
	if socket := config.Socket(a.configPath()); socket != "" {
		if client, dialErr := api.Dial(ctx, socket); dialErr == nil {
			return client, nil
		}
	}
	return nil, err
}

// dataLimit is the limit of an event's data: the highest there is when the file
// has faults by now, so that only the node knows it.
func (a *app) dataLimit() (int, error) {
	c, err := a.load()
	if err != nil && config.Socket(a.configPath()) == "" {
		return 0, err
	}
	if err != nil {
		return config.MaxBodyBytes, nil
	}
	return c.HTTP.MaxBodyBytes, nil
}

func dialNode(ctx context.Context, c config.Config) (*api.Client, error) {
	if c.HTTP.Socket == "" {
		return nil, usage("%s: http.socket is empty, and the command line needs the socket: give it a path and restart the node", c.File)
	}
	client, err := api.Dial(ctx, c.HTTP.Socket)
	if errors.Is(err, api.ErrNoNode) {
		return nil, fmt.Errorf("%w\nthat is the place that %s gives by http.socket and node.data, or by their defaults; a node that was started when it gave another is still at that one%s", err, c.File, otherSockets(c))
	}
	return client, err
}

// otherSockets names the sockets beside the one of the configuration, and beside
// the file: one of them may be that of the node that is meant.
func otherSockets(c config.Config) string {
	var found []string
	for _, dir := range []string{filepath.Dir(c.HTTP.Socket), filepath.Dir(c.File)} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // it is only a hint
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			if e.Type() == fs.ModeSocket && path != c.HTTP.Socket && len(found) < 3 && !slices.Contains(found, path) {
				found = append(found, path)
			}
		}
	}
	if len(found) == 0 {
		return ""
	}
	return ": there is " + strings.Join(found, ", ")
}

// call connects to the node and prints what fn answers: as JSON, or by show.
func call[T any](ctx context.Context, a *app, fn func(context.Context, *api.Client) (T, error), show func(T) error) error {
	client, closeClient, err := a.client(ctx)
	if err != nil {
		return err
	}
	defer closeClient()
	v, err := fn(ctx, client)
	if err != nil {
		return err
	}
	if a.json {
		return printJSON(a.Out, v)
	}
	return show(v)
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(jsonEscaper{w})
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// who is the name of the person at the keyboard, for decisions.
func who() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return fmt.Sprintf("uid %d", os.Getuid())
}
