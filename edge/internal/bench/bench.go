// Package bench measures the engine on a real file system against a naive form
// of itself in the same run: the same schema and statements, but one commit for
// each accept, claim, start and settle. Contestants alternate, and medians are
// compared, so that a noisy machine does not decide. An absolute figure says
// little; the ratios are what to read.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Options of Run.
type Options struct {
	Dir    string // where the databases are made; a real file system
	N      int    // deliveries of one round
	Rounds int    // rounds of each contestant
	All    bool   // also what takes minutes: large backlogs, memory, idle
	Large  int    // rows of a large backlog, with All
	JSON   bool
	// Program is the fencepost binary whose memory is measured; "" leaves
	// that out.
	Program string
}

// bytes is about the most that a run has on disk at once: files are kept to its
// end.
func (o Options) bytes() int64 {
	const (
		delivery  = 1 << 10
		databases = 10 // of one round of each contestant, and the other steps
		log       = 16 << 20
	)
	n := int64(o.N) * int64(o.Rounds+1) * databases * delivery
	if o.All {
		n += 4 * int64(o.Large) * delivery
	}
	return n + databases*int64(o.Rounds+1)*log
}

// Row is one measured line. Want is the promise beside the value; "" when there
// is none.
type Row struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Want  string  `json:"want,omitempty"`
	OK    *bool   `json:"ok,omitempty"`
}

// Report is all that a run found.
type Report struct {
	Rows []Row `json:"rows"`
	out  io.Writer
	json bool
}

func (r *Report) add(name string, value float64, unit string) {
	r.put(Row{Name: name, Value: value, Unit: unit})
}

// atLeast adds a value with the least that is promised.
func (r *Report) atLeast(name string, value, want float64, unit string) {
	ok := value >= want
	r.put(Row{Name: name, Value: value, Unit: unit, Want: fmt.Sprintf(">= %g", want), OK: &ok})
}

// atMost adds a value with the most that is promised.
func (r *Report) atMost(name string, value, want float64, unit string) {
	ok := value <= want
	r.put(Row{Name: name, Value: value, Unit: unit, Want: fmt.Sprintf("<= %.4g", want), OK: &ok})
}

func (r *Report) put(row Row) {
	r.Rows = append(r.Rows, row)
	if r.json {
		return
	}
	verdict := ""
	if row.OK != nil {
		verdict = "ok"
		if !*row.OK {
			verdict = "MISSED"
		}
	}
	fmt.Fprintf(r.out, "  %-66s %12.4g %-14s %-12s %s\n", row.Name, row.Value, row.Unit, row.Want, verdict)
}

// Missed counts the promises that were not kept.
func (r *Report) Missed() int {
	n := 0
	for _, row := range r.Rows {
		if row.OK != nil && !*row.OK {
			n++
		}
	}
	return n
}

// Run measures and prints to out as it goes.
func Run(ctx context.Context, o Options, out io.Writer) (*Report, error) {
	dir, err := os.MkdirTemp(o.Dir, "fencepost-bench-*")
	if err != nil {
		return nil, err
	}
	need := o.bytes()
	free, known := freeBytes(dir)
	if !o.JSON {
		fmt.Fprintf(out, "writes up to %d MiB under %s, which is removed at the end", need>>20, dir)
		if known {
			fmt.Fprintf(out, "; %d MiB are free there", free>>20)
		}
		fmt.Fprintln(out)
	}
	if known && free < 2*need {
		return nil, errors.Join(fmt.Errorf("%d MiB are free under %s, and half of that must be enough for %d MiB: choose --dir, or a smaller --n", free>>20, dir, need>>20), os.RemoveAll(dir))
	}
	defer os.RemoveAll(dir)
	r := &Report{out: out, json: o.JSON}
	b := &bench{Options: o, dir: dir, r: r}
	steps := []struct {
		title string
		run   func(context.Context) error
	}{
		{"the disk", b.disk},
		{"mixed: 64 producers, 64 workers, 10,000 targets", b.mixedAll},
		{"durable accepts by 64 producers", b.accepts},
		{"one strict target", b.oneTarget},
		{"pick-up on an idle engine", b.pickUp},
		{"size", b.size},
		{"over HTTP on loopback", b.overHTTP},
		{"memory", b.memory},
	}
	if o.All {
		steps = append(steps, []struct {
			title string
			run   func(context.Context) error
		}{
			{"large backlogs", b.backlogs},
			{"idle", b.idle},
		}...)
	}
	for _, s := range steps {
		if ctx.Err() != nil {
			return r, context.Cause(ctx)
		}
		if !o.JSON {
			fmt.Fprintln(out, s.title)
		}
		if err := s.run(ctx); err != nil {
			return r, fmt.Errorf("%s: %w", s.title, err)
		}
	}
	return r, nil
}

// bench is one run.
type bench struct {
	Options
	dir   string
	r     *Report
	files int
	sync  quantiles // of the disk's own fdatasync
}

// file names a fresh database.
func (b *bench) file() string {
	b.files++
	return filepath.Join(b.dir, fmt.Sprintf("%d.db", b.files))
}

type quantiles struct{ p50, p99 time.Duration }

func quantilesOf(ds []time.Duration) quantiles {
	slices.Sort(ds)
	at := func(q float64) time.Duration { return ds[min(int(q*float64(len(ds))), len(ds)-1)] }
	return quantiles{at(0.5), at(0.99)}
}

func median(xs []float64) float64 {
	slices.Sort(xs)
	return xs[len(xs)/2]
}
