package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"fencepost/edge"
	"fencepost/edge/config"
	"fencepost/edge/node"
	"fencepost/edge/service"
	"fencepost/handlers/command"

	"github.com/spf13/cobra"
)

func (a *app) serve() *cobra.Command {
	var share bool
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run a node until it is told to stop (SIGTERM, Ctrl-C)",
		Long: "Run a node: take events, route them and deliver them. The log goes to standard error.\n" +
			"SIGTERM or Ctrl-C stops it in stages: no more claims, running work may end within\n" +
			"shutdown_grace_s, then it is cut and accounted for. A second signal ends it at once.\n" +
			"SIGHUP reads the configuration again, as fencepost reload does.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.runNode(cmd.Context(), node.Options{Share: share})
		},
	}
	c.Flags().BoolVar(&share, "share", false, "let several nodes work on one database file (slower; each needs its own listen and socket)")
	return c
}

// runNode runs the node of the configuration; the program's own options are
// filled in.
func (a *app) runNode(ctx context.Context, o node.Options) error {
	c, err := a.load(node.Addresses)
	if err != nil {
		return err
	}
	hup, stopCatching := catch()
	defer stopCatching()
	level := &slog.LevelVar{}
	level.Set(c.Node.LogLevel)
	log := newLogger(a.Err, c.Node, level)
	if err := service.KeepToItself(); err != nil {
		log.Warn("the memory of the process is open to other processes of this user", "err", err)
	}
	if err := command.AdoptOrphans(); err != nil {
		log.Warn("a process that a command leaves behind may live on", "err", err)
	}
	tell, err := service.NewNotifier()
	if err != nil {
		log.Warn("the service manager is not told of anything", "err", err)
	}
	defer func() { _ = tell.Close() }()
	warnOfOpenConfig(log, c.File)
	tell.Status("opening the database")
	o.Logger, o.LogLevel, o.Notify = log, level, tell
	o.Version, o.EarliestMS = programVersion(), builtMS()
	for told := false; ; told = true {
		err := serveOnce(ctx, c, o, hup)
		if !errors.Is(err, edge.ErrLowSpace) {
			return err
		}
		if !told {
			log.Error("the disk is full: the node starts when there is space", "err", err)
			tell.Status("waits for space on the disk")
		}
		if !awaitSpace(ctx) {
			return nil
		}
	}
}

// serveOnce makes a node and runs it to its end. When the start finds a full disk
// the error wraps [edge.ErrLowSpace]: once it runs, the node sees to that itself.
func serveOnce(ctx context.Context, c config.Config, o node.Options, hup hangups) error {
	n, err := node.New(c, o)
	if err != nil {
		return err
	}
	defer hup.reload(n)()
	_, err = n.Run(ctx)
	return err
}

// spaceAgain is how long a start waits before it looks again for space.
const spaceAgain = 5 * time.Second

// awaitSpace waits; false when the node was told to stop meanwhile. A supervisor
// that starts the node again and again would give up long before a person comes.
func awaitSpace(ctx context.Context) bool {
	t := time.NewTimer(spaceAgain)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

func newLogger(w io.Writer, n config.Node, level slog.Leveler) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if n.LogFormat == config.LogJSON {
		return slog.New(slog.NewJSONHandler(jsonEscaper{w}, o))
	}
	if f, ok := w.(*os.File); ok && service.ToJournal(f) {
		return slog.New(service.NewJournalHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// warnOfOpenConfig tells of a configuration that others can write: who can write
// it says what commands the node runs.
func warnOfOpenConfig(log *slog.Logger, path string) {
	fi, err := os.Stat(path)
	if err == nil && fi.Mode().Perm()&0o022 != 0 && runtime.GOOS != "windows" {
		log.Warn("the configuration can be written by others, who could make the node run their commands: chmod go-w it", "path", path, "mode", fmt.Sprintf("%04o", fi.Mode().Perm()))
	}
}

// builtMS is the time of the commit that this program was built from; 0 when it
// is not known.
func builtMS() int64 {
	if seconds, err := strconv.ParseInt(built, 10, 64); err == nil {
		return seconds * 1000
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return 0
	}
	for _, s := range info.Settings {
		if s.Key != "vcs.time" {
			continue
		}
		if t, err := time.Parse(time.RFC3339, s.Value); err == nil {
			return t.UnixMilli()
		}
	}
	return 0
}
