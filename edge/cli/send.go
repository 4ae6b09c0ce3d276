package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"fencepost/edge"
	"fencepost/edge/api"

	"github.com/spf13/cobra"
)

// sendSource is the source of an event that is sent without one.
const sendSource = "/cli"

type sendFlags struct {
	event      edge.Event
	key        string
	data       string
	file       string
	extensions []string
	hasData    bool
	batch      string
	wait       time.Duration
}

func (a *app) send() *cobra.Command {
	var f sendFlags
	c := &cobra.Command{
		Use:   "send --type TYPE [--data TEXT | --file PATH] | send --batch FILE",
		Short: "Hand in one event, or a file of them",
		Long: "Hand in one event. It is stored when this returns. Sending the same source and id\n" +
			"again changes nothing and says so; give --id or --key when a script may be run twice.\n\n" + batchHelp,
		Example: "  fencepost send --type greeting.hello --subject bob --data '{\"text\":\"hi\"}'\n" +
			"  tar c /etc | fencepost send --type backup.made --key \"$(date +%F)\" --file -\n" +
			"  fencepost send --batch orders.jsonl\n" +
			"  jq -c '.[]' export.json | fencepost send --batch - --type order.made --source /shop",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.batch != "" {
				return a.sendBatch(cmd, f)
			}
			if cmd.Flags().Changed("wait") {
				return usage("--wait is for --batch")
			}
			f.hasData = cmd.Flags().Changed("data")
			if cmd.Flags().Changed("id") && f.event.ID == "" || cmd.Flags().Changed("key") && f.key == "" {
				return usage("an id or key must not be empty; leave the flag out to get a random one")
			}
			return a.sendEvent(cmd.Context(), f)
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.event.Type, "type", "", "type of the event, such as greeting.hello (required); with --batch, of events that have none")
	fl.StringVar(&f.event.Source, "source", sendSource, "where it comes from, a URI-reference; with --batch, of events that have none")
	fl.StringVar(&f.event.Subject, "subject", "", "what it is about; by default also the key of its target")
	fl.StringVar(&f.event.ID, "id", "", "unique within the source (default random)")
	fl.StringVar(&f.key, "key", "", "idempotency key; the same as --id")
	fl.StringVar(&f.event.Time, "time", "", "when it happened, RFC 3339")
	fl.StringVar(&f.event.ContentType, "content-type", "", "type of the data (default: guessed from it)")
	fl.StringArrayVar(&f.extensions, "ext", nil, "extension attribute as name=value; may be repeated")
	fl.StringVar(&f.data, "data", "", "data of the event")
	fl.StringVar(&f.file, "file", "", "file with the data; - is standard input")
	c.MarkFlagsMutuallyExclusive("id", "key")
	c.MarkFlagsMutuallyExclusive("data", "file")
	fl.StringVar(&f.batch, "batch", "", "file of events, JSON lines or a JSON array; - is standard input")
	f.wait = 10 * time.Minute
	fl.Var((*spanValue)(&f.wait), "wait", "with --batch: how long to wait for a node that is full, busy or away, each time")
	c.MarkFlagsOneRequired("type", "batch")
	return c
}

func (a *app) sendEvent(ctx context.Context, f sendFlags) error {
	limit, err := a.dataLimit()
	if err != nil {
		return err
	}
	ev, err := a.event(f, limit)
	if err != nil {
		return err
	}
	ev.Trace = ownTrace()
	return call(ctx, a, func(ctx context.Context, n *api.Client) (api.Receipt, error) {
		rc, err := n.Send(ctx, ev)
		if err != nil {
			return rc, fmt.Errorf("send event %q: %w", ev.ID, err)
		}
		return rc, nil
	}, a.showReceipt)
}

// ownTrace is the trace that this command runs in, as the program that started
// it put it into the environment; none when it did not.
func ownTrace() edge.Trace {
	return edge.ParseTrace([]string{os.Getenv("TRACEPARENT")}, []string{os.Getenv("TRACESTATE")})
}

// event makes the event that the flags describe.
func (a *app) event(f sendFlags, limit int) (edge.Event, error) {
	ev := f.event
	if f.key != "" {
		ev.ID = f.key
	}
	if ev.ID == "" {
		ev.ID = edge.NewName()
	}
	for _, x := range f.extensions {
		name, value, ok := strings.Cut(x, "=")
		if !ok {
			return ev, usage("--ext %q: write it as name=value", x)
		}
		if ev.Extensions == nil {
			ev.Extensions = map[string]string{}
		}
		ev.Extensions[name] = value
	}
	var err error
	if ev.Data, err = a.readData(f, limit); err != nil {
		return ev, err
	}
	if ev.ContentType == "" {
		ev.ContentType = guessType(ev.Data)
	}
	return ev, ev.Validate(limit)
}

func (a *app) readData(f sendFlags, limit int) ([]byte, error) {
	in := a.In
	switch {
	case f.hasData || f.file == "":
		return []byte(f.data), nil
	case f.file != "-":
		file, err := os.Open(f.file)
		if err != nil {
			return nil, usage("--file: %w", err)
		}
		defer func() { _ = file.Close() }() // only read from
		in = file
	}
	data, err := io.ReadAll(io.LimitReader(in, int64(limit)+1))
	if err != nil {
		return nil, fmt.Errorf("read the data: %w", err)
	}
	if len(data) > limit {
		return nil, usage("the data has more than %d bytes, the limit (http.max_body_bytes)", limit)
	}
	return data, nil
}

// guessType is the content type of data that came without one.
func guessType(data []byte) string {
	switch {
	case len(data) == 0:
		return ""
	case json.Valid(data):
		return "application/json"
	case utf8.Valid(data) && !bytes.ContainsRune(data, 0):
		return "text/plain; charset=utf-8"
	}
	return "application/octet-stream"
}

func (a *app) showReceipt(rc api.Receipt) error {
	what := "accepted"
	if rc.Existing {
		what = "existing, nothing changed:"
	}
	if _, err := fmt.Fprintf(a.Out, "%s %s, owed to %s\n", what, rc.ID, plural(rc.Targets, "target", "targets")); err != nil {
		return err
	}
	for _, d := range rc.Deliveries {
		if _, err := fmt.Fprintf(a.Out, "  delivery %s to %s: %s\n", number(d.ID), safe(d.Target), d.State); err != nil {
			return err
		}
	}
	if rc.Targets == 0 && !rc.Existing {
		_, err := fmt.Fprintln(a.Out, "  no route of the node takes it; add one to the configuration if it should go somewhere")
		return err
	}
	return nil
}
