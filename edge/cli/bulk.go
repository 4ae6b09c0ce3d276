package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"fencepost/edge"
	"fencepost/edge/api"

	"github.com/spf13/cobra"
)

// bulkFlags are those of a verb that can be done to many deliveries.
type bulkFlags struct {
	deliveryFlags
	verb   edge.BulkVerb
	state  string // which state is meant when none is named
	done   string // what the verb makes of a delivery
	dryRun bool
	yes    bool
	most   int
	again  *bool // the verb's own flags; nil = none
	newKey *bool
}

// bulkFilters are the flags that ask for many.
var bulkFilters = []string{
	"state", "handler", "target", "code", "event", "type", "source", "subject", "since", "until", "newest", "before", "dry-run", "yes", "max",
}

func (b *bulkFlags) add(a *app, c *cobra.Command) {
	b.deliveryFlags.add(a, c)
	c.Flags().BoolVar(&b.dryRun, "dry-run", false, "with filters: count and show what would be done, and do nothing")
	c.Flags().BoolVar(&b.yes, "yes", false, "with filters: do it without asking")
	c.Flags().IntVar(&b.most, "max", 0, "with filters: at most so many (0 = all that match)")
}

// many reports whether filters were given instead of an id; both are refused.
func (b *bulkFlags) many(c *cobra.Command, args []string) (bool, error) {
	for _, name := range bulkFilters {
		if !c.Flags().Changed(name) {
			continue
		}
		if len(args) > 0 {
			return false, usage("an id and --%s do not go together: give the id alone, or filters alone", name)
		}
		return true, nil
	}
	return false, oneID(c, args)
}

// run does the verb to one delivery, or to all that the filters select.
func (b *bulkFlags) run(a *app, one func(context.Context, string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		many, err := b.many(c, args)
		switch {
		case err != nil:
			return err
		case many:
			return a.runBulk(c, b)
		}
		return one(c.Context(), args[0])
	}
}

// bulkReport is what became of all.
type bulkReport struct {
	Verb     edge.BulkVerb  `json:"verb"`
	Filter   string         `json:"filter"`
	DryRun   bool           `json:"dry_run"`
	Matched  int            `json:"matched"`
	Done     int            `json:"done"`
	Skipped  int            `json:"skipped"` // moved since, or refused; of a dry run those that would be, as far as their state tells
	Reasons  map[string]int `json:"reasons,omitempty"`
	Examples []string       `json:"examples,omitempty"`
	Next     string         `json:"next,omitempty"` // cursor to go on from, when it did not come to the end
}

// keptExamples and keptReasons bound what a report has of each.
const (
	keptExamples = 5
	keptReasons  = 8
)

func (a *app) runBulk(cmd *cobra.Command, b *bulkFlags) error {
	f, err := b.read()
	switch {
	case err != nil:
		return err
	case b.most < 0:
		return usage("--max %d: it must not be negative", b.most)
	case f.Handler == "" && f.Target == "" && f.Code == "" && f.Event == "" && f.Type == "" && f.Source == "" && f.Subject == "" && f.Since == 0 && f.State == "":
		return usage("name what is meant: one id, or a filter such as --handler, --target, --code or --since; --state alone takes all in that state")
	}
	if f.State == "" {
		f.State = b.state
	}
	f.Newest = f.Newest || b.verb == edge.BulkRedrive
	client, err := a.dial(cmd.Context())
	if err != nil {
		return err
	}
	defer client.Close()
	run := &bulkRun{app: a, flags: b, client: client, filter: f, report: bulkReport{Verb: b.verb, Filter: echo(f), DryRun: b.dryRun, Reasons: map[string]int{}}}
	if b.dryRun || !b.yes {
		if err := run.count(cmd.Context()); err != nil {
			return err
		}
		if b.dryRun {
			return run.showCount()
		}
		if err := run.confirm(); err != nil {
			return err
		}
	}
	return run.finish(cmd.Context(), run.do(cmd.Context()))
}

// bulkRun is one run of a verb over all that matches.
type bulkRun struct {
	*app
	flags  *bulkFlags
	client *api.Client
	filter api.ListDeliveries
	report bulkReport
	told   time.Time
}

// pages gives fn page after page of what matches.
func (r *bulkRun) pages(ctx context.Context, size int, fn func([]api.Delivery) (stop bool, err error)) error {
	f := r.filter
	f.Limit = size
	for {
		page, err := r.client.Deliveries(ctx, f)
		if err != nil {
			return err
		}
		if stop, err := fn(page.Deliveries); err != nil || stop {
			return err
		}
		if page.Next == "" {
			r.report.Next = ""
			return nil
		}
		f.Before, r.report.Next = page.Next, page.Next
		r.progress()
	}
}

func (r *bulkRun) count(ctx context.Context) error {
	err := r.pages(ctx, api.MaxPage, func(ds []api.Delivery) (bool, error) {
		for i := range ds {
			d := &ds[i]
			r.report.Matched++
			if why := r.flags.refuses(d); why != "" {
				r.skip(why)
			} else if len(r.report.Examples) < keptExamples {
				r.report.Examples = append(r.report.Examples, fmt.Sprintf("%s %s %s %s", number(d.ID), d.State, d.Target, d.Code))
			}
			if r.report.Matched == r.flags.most {
				return true, nil
			}
		}
		return false, nil
	})
	r.report.Next = ""
	r.clear()
	return err
}

func (r *bulkRun) do(ctx context.Context) error {
	r.report.Matched, r.report.Skipped, r.report.Reasons = 0, 0, map[string]int{}
	return r.pages(ctx, edge.MaxBulk, func(ds []api.Delivery) (bool, error) {
		if most := r.flags.most; most > 0 && len(ds) > most-r.report.Matched {
			ds = ds[:most-r.report.Matched]
		}
		if len(ds) == 0 {
			return r.flags.most > 0 && r.report.Matched >= r.flags.most, nil
		}
		req := api.BulkRequest{Verb: r.flags.verb, Items: make([]api.BulkItem, len(ds))}
		if r.flags.again != nil {
			req.Again, req.NewKey = *r.flags.again, *r.flags.newKey
		}
		for i, d := range ds {
			req.Items[i] = api.BulkItem{ID: d.ID, Version: d.Version}
		}
		answer, err := r.client.Bulk(ctx, req)
		if err != nil {
			return false, err
		}
		r.report.Matched += len(ds)
		for i, res := range answer.Results {
			r.note(&ds[i], res)
		}
		return r.flags.most > 0 && r.report.Matched >= r.flags.most, nil
	})
}

// refuses says why the verb does nothing to a delivery as it was seen, as far as
// its state tells; "" when it does. The node judges for good.
func (b *bulkFlags) refuses(d *api.Delivery) string {
	switch final := d.State.Final(); b.verb {
	case edge.BulkCancel:
		switch {
		case final:
			return fmt.Sprintf("it is %s already: nothing to call off", d.State)
		case d.State == edge.Blocked:
			return "it is blocked: decide it with fencepost resolve"
		}
	case edge.BulkRedrive:
		switch {
		case !final:
			return fmt.Sprintf("it is %s: only a final delivery is redriven", d.State)
		case d.State == edge.Succeeded && !*b.again:
			return "it has succeeded; to let the effect happen once more, ask for it: --again"
		}
	case edge.BulkRetryNow:
		if d.State != edge.Pending {
			return fmt.Sprintf("it is %s: only a delivery that waits is tried sooner", d.State)
		}
	}
	return ""
}

// note counts what became of a delivery; seen is it as it was before.
func (r *bulkRun) note(seen *api.Delivery, res api.BulkResult) {
	reason := r.flags.refuses(seen)
	switch {
	case reason != "":
	case res.Delivery != nil:
		r.report.Done++
		return
	default:
		reason = res.Detail
	}
	r.skip(reason)
}

// skip counts a delivery to which nothing is done.
func (r *bulkRun) skip(reason string) {
	r.report.Skipped++
	if before, after, ok := strings.Cut(reason, ": "); ok && strings.HasPrefix(before, "delivery ") {
		reason = after // without the number, so that equal reasons count together
	}
	if i := strings.Index(reason, ": version is"); i >= 0 {
		reason = reason[:i]
	}
	if i := strings.Index(reason, "; the newer generation is"); i >= 0 {
		reason = reason[:i]
	}
	if _, known := r.report.Reasons[reason]; !known && len(r.report.Reasons) >= keptReasons {
		reason = "other reasons"
	}
	r.report.Reasons[reason]++
}

// progress tells a person at a terminal how far it is.
func (r *bulkRun) progress() {
	if r.json || !isTerminal(r.Err) || time.Since(r.told) < 200*time.Millisecond {
		return
	}
	r.told = time.Now()
	fmt.Fprintf(r.Err, "\r%d matched, %d done, %d skipped ", r.report.Matched, r.report.Done, r.report.Skipped)
}

func (r *bulkRun) clear() {
	if !r.told.IsZero() {
		fmt.Fprint(r.Err, "\r\x1b[K")
		r.told = time.Time{}
	}
}

func (r *bulkRun) showCount() error {
	if r.json {
		return printJSON(r.Out, r.report)
	}
	would := r.would()
	fmt.Fprintf(r.Out, "%s would be %s: %s\n", plural(would, "delivery", "deliveries"), r.flags.done, safe(r.report.Filter))
	for _, x := range r.report.Examples {
		fmt.Fprintln(r.Out, "  "+safe(x))
	}
	if would > len(r.report.Examples) {
		fmt.Fprintf(r.Out, "  and %d more\n", would-len(r.report.Examples))
	}
	r.showReasons("would be skipped")
	_, err := fmt.Fprintln(r.Out, "nothing was done; run it without --dry-run to do it")
	return err
}

// would is how many the verb would be done to.
func (r *bulkRun) would() int { return r.report.Matched - r.report.Skipped }

func (r *bulkRun) showReasons(what string) {
	for _, reason := range slices.Sorted(maps.Keys(r.report.Reasons)) {
		fmt.Fprintf(r.Out, "  %d %s: %s\n", r.report.Reasons[reason], what, safe(reason))
	}
}

// confirm asks the person at the terminal; elsewhere --yes is needed.
func (r *bulkRun) confirm() error {
	if r.would() == 0 {
		return nil
	}
	in, out := isTerminal(r.In), isTerminal(r.Err)
	if !in || !out {
		return usage("%s would be %s (%s): look with --dry-run, and do it with --yes", plural(r.would(), "delivery", "deliveries"), r.flags.done, r.report.Filter)
	}
	for _, x := range r.report.Examples {
		fmt.Fprintln(r.Err, "  "+safe(x))
	}
	fmt.Fprintf(r.Err, "%s will be %s (%s). Type yes to go on: ", plural(r.would(), "delivery", "deliveries"), r.flags.done, safe(r.report.Filter))
	line, err := bufio.NewReader(r.In).ReadString('\n')
	if strings.TrimSpace(line) != "yes" || err != nil {
		return errors.New("nothing was done: yes was not typed")
	}
	return nil
}

// finish says what became of all, also when it was interrupted.
func (r *bulkRun) finish(ctx context.Context, err error) error {
	r.clear()
	resume := ""
	if err != nil && r.report.Done+r.report.Skipped > 0 {
		f := r.filter
		if r.report.Next != "" {
			f.Before = number(r.report.Next)
		}
		resume = "fencepost " + verbWord(r.flags.verb) + " " + echo(f)
	}
	if r.json {
		if perr := printJSON(r.Out, r.report); perr != nil {
			return perr
		}
	} else {
		fmt.Fprintf(r.Out, "%d %s, %d skipped, of %d that matched: %s\n", r.report.Done, r.flags.done, r.report.Skipped, r.report.Matched, safe(r.report.Filter))
		r.showReasons("skipped")
	}
	switch {
	case resume != "":
		return fmt.Errorf("%w: what is counted above is done; to go on: %s", err, resume)
	case err != nil:
		return err
	case r.report.Skipped > 0:
		return &quietError{api.ExitConflict}
	}
	return nil
}

func verbWord(v edge.BulkVerb) string { return strings.ReplaceAll(string(v), "_", "-") }
