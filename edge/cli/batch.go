package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"fencepost/edge"
	"fencepost/edge/api"

	"github.com/spf13/cobra"
)

const batchHelp = "With --batch, hand in a file of events: one JSON object per line, or one JSON array, each\n" +
	"object in the JSON format of CloudEvents. specversion may be absent; --type and --source\n" +
	"stand in for events without their own. An event without an id gets one made of its line\n" +
	"number and its content. So running the same command again never doubles anything: what is\n" +
	"stored already is counted as existing. Events go in order, in chunks of at most 1,000\n" +
	"events and 4 MiB. At a line that is wrong it stops, names it, and has handed in what stands\n" +
	"before; mend the line and run the same command again. Events that conflict (other content\n" +
	"under the same source and id) are named at the end, and the exit code is 4. When the node is\n" +
	"full, busy or restarts, it says so and waits."

// keptConflicts bounds the conflicts that are named at the end.
const keptConflicts = 20

// batchReport is what became of a file of events.
type batchReport struct {
	File      string          `json:"file"`
	Events    int             `json:"events"`    // handed in
	New       int             `json:"new"`       // stored by this run
	Existing  int             `json:"existing"`  // stored before
	Conflicts int             `json:"conflicts"` // refused: other content under their source and id
	Targets   int             `json:"targets"`   // deliveries made of the new ones
	Refused   []batchConflict `json:"refused"`   // the first conflicts
	WaitedS   int             `json:"waited_s"`  // for the node
}

// batchConflict is one conflict.
type batchConflict struct {
	Line   int    `json:"line"`
	ID     string `json:"id"`
	Source string `json:"source"`
	Detail string `json:"detail"`
}

// batchRun hands in one file.
type batchRun struct {
	*app
	client *api.Client
	flags  sendFlags
	limit  int
	lines  *eventLines
	chunk  batchChunk
	report batchReport
	bar    progressBar
}

// sendBatch hands in the file of --batch.
func (a *app) sendBatch(cmd *cobra.Command, f sendFlags) error {
	for _, other := range [...]string{"subject", "id", "key", "time", "content-type", "ext", "data", "file"} {
		if cmd.Flags().Changed(other) {
			return usage("--%s is for one event: with --batch each event has its own", other)
		}
	}
	in, size, closeFile, err := a.openBatch(f.batch)
	if err != nil {
		return err
	}
	defer closeFile()
	limit, err := a.dataLimit()
	if err != nil {
		return err
	}
	client, err := a.dial(cmd.Context())
	if err != nil {
		return err
	}
	defer client.Close()
	r := &batchRun{
		app: a, client: client, flags: f, limit: limit,
		lines: newEventLines(in, limit), report: batchReport{File: f.batch, Refused: []batchConflict{}},
		bar: progressBar{w: a.Err, size: size, quiet: a.json},
	}
	err = r.run(cmd.Context())
	r.bar.clear()
	if shown := r.show(); err == nil {
		err = shown
	}
	if err == nil && r.report.Conflicts > 0 {
		return &quietError{api.ExitConflict}
	}
	return err
}

// openBatch opens the file; size is 0 when it is not known.
func (a *app) openBatch(path string) (in io.Reader, size int64, closeFile func(), err error) {
	if path == "-" {
		return a.In, 0, func() {}, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, 0, nil, usage("--batch: %w", err)
	}
	if fi, err := file.Stat(); err == nil && fi.Mode().IsRegular() {
		size = fi.Size()
	}
	return file, size, func() { _ = file.Close() }, nil // only read from
}

// run reads events and hands them in, up to the end or the first line that is
// wrong. What stands before that line is handed in first.
func (r *batchRun) run(ctx context.Context) error {
	for {
		line, err := r.lines.next()
		if errors.Is(err, io.EOF) {
			return r.flush(ctx)
		}
		var ev edge.Event
		if err == nil {
			ev, err = r.event(line)
		}
		if err != nil {
			if ferr := r.flush(ctx); ferr != nil {
				return ferr
			}
			return r.badLine(line.number, err)
		}
		body := api.AppendEvent(nil, &ev)
		if r.chunk.full(len(body)) {
			if err := r.flush(ctx); err != nil {
				return err
			}
		}
		r.chunk.add(line.number, ev, body)
		if ctx.Err() != nil {
			return r.stopped(context.Cause(ctx))
		}
	}
}

// event makes the event of a line. An id that it lacks follows from the line, so
// that the same file has the same ids whenever it is sent.
func (r *batchRun) event(line eventLine) (edge.Event, error) {
	defaults := edge.Event{Type: r.flags.event.Type, Source: r.flags.event.Source, ID: line.id()}
	return api.ParseEvent(line.object, defaults, r.limit)
}

// badLine is a fault of one line: what was before it is stored.
func (r *batchRun) badLine(number int, err error) error {
	return usage("%s: line %d: %w: nothing from this line on was handed in; mend it and run the same command again", r.name(), number, err)
}

// stopped says how to go on after an end in the middle.
func (r *batchRun) stopped(cause error) error {
	return fmt.Errorf("%s: stopped before line %d: run the same command again, what is stored is not stored twice: %w", r.name(), r.chunk.firstLine(), cause)
}

func (r *batchRun) name() string {
	if r.flags.batch == "-" {
		return "standard input"
	}
	return r.flags.batch
}

// flush hands the chunk in, again and again while the node cannot take it.
func (r *batchRun) flush(ctx context.Context) error {
	began := time.Now()
	for len(r.chunk.lines) > 0 {
		items, err := r.chunk.send(ctx, r.client)
		if err == nil {
			err = r.settle(items)
		}
		if err == nil {
			break
		}
		pause, wait := pauseFor(err)
		if ctx.Err() != nil || !wait || time.Since(began)+pause > r.flags.wait {
			return r.failed(err)
		}
		r.bar.say("line %d: %s; waiting %s", r.chunk.firstLine(), safe(err.Error()), pause)
		if !sleep(ctx, pause) {
			return r.stopped(context.Cause(ctx))
		}
		r.report.WaitedS += int(pause / time.Second)
	}
	r.bar.show(r.report.Events, r.lines.read())
	return nil
}

// settle counts the answers. Events that the node could not take stay in the
// chunk, and the error says why.
func (r *batchRun) settle(items []api.BatchItem) error {
	sent := r.chunk
	if len(items) != len(sent.lines) {
		return errors.New("the node answered for another number of events; are both of one version?")
	}
	r.chunk = batchChunk{}
	var again, bad error
	for i, it := range items {
		switch {
		case it.Problem == nil:
			r.count(it)
		case errors.Is(it.Problem, edge.ErrConflict):
			r.conflict(sent.lines[i], it.Problem)
		case errors.Is(it.Problem, edge.ErrUnavailable):
			r.chunk.add(sent.lines[i].number, sent.lines[i].event, sent.lines[i].body)
			again = it.Problem
		case bad == nil:
			bad = r.badLine(sent.lines[i].number, it.Problem)
		}
	}
	if bad != nil {
		return bad
	}
	return again
}

func (r *batchRun) count(it api.BatchItem) {
	r.report.Events++
	if it.Existing {
		r.report.Existing++
		return
	}
	r.report.New++
	r.report.Targets += it.Targets
}

func (r *batchRun) conflict(l chunkLine, p *api.Problem) {
	r.report.Events++
	r.report.Conflicts++
	if len(r.report.Refused) < keptConflicts {
		r.report.Refused = append(r.report.Refused, batchConflict{l.number, l.event.ID, l.event.Source, p.Error()})
	}
}

// failed is an error of the node or of a whole chunk.
func (r *batchRun) failed(err error) error {
	var usage *usageError
	if errors.As(err, &usage) {
		return err
	}
	var p *api.Problem
	if errors.As(err, &p) && errors.Is(err, edge.ErrInvalid) && len(p.Errors) > 0 {
		if i, ok := chunkPlace(p.Errors[0].Pointer); ok && i < len(r.chunk.lines) {
			return r.badLine(r.chunk.lines[i].number, err)
		}
	}
	return r.stopped(err)
}

func (r *batchRun) show() error {
	if r.json {
		return printJSON(r.Out, r.report)
	}
	x := r.report
	owed := ""
	if x.New > 0 {
		owed = "; of the new ones came " + plural(x.Targets, "delivery", "deliveries")
	}
	_, err := fmt.Fprintf(r.Out, "%s: %s handed in: %d new, %d existing, %d conflicting%s\n",
		safe(r.name()), plural(x.Events, "event", "events"), x.New, x.Existing, x.Conflicts, owed)
	for _, c := range x.Refused {
		fmt.Fprintf(r.Out, "  line %d: source %s id %s: %s\n", c.Line, safe(c.Source), safe(c.ID), safe(c.Detail))
	}
	if more := x.Conflicts - len(x.Refused); more > 0 {
		fmt.Fprintf(r.Out, "  and %s more\n", plural(more, "conflict", "conflicts"))
	}
	if x.New > 0 && x.Targets == 0 {
		_, err = fmt.Fprintln(r.Out, "  no route of the node takes them; add one to the configuration if they should go somewhere")
	}
	return err
}

// pauseFor is how long to wait before the same chunk is sent again, and whether
// that can help: the node is full, busy, closing or away.
func pauseFor(err error) (time.Duration, bool) {
	const otherwise = 2 * time.Second
	var p *api.Problem
	if errors.As(err, &p) {
		busy := p.Status == 429 || p.Status == 503 || p.Status == 507
		if p.RetryAfter == 0 {
			return otherwise, busy && !errors.Is(err, edge.ErrStorage)
		}
		return p.RetryAfter, busy
	}
	return otherwise, !errors.Is(err, edge.ErrInvalid) // nobody listens, or the connection broke
}

// sleep waits, and reports whether ctx let it.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
