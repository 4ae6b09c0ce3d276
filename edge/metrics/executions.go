package metrics

import (
	"sync"
	"sync/atomic"
	"time"

	"fencepost/edge"

	"github.com/prometheus/client_golang/prometheus"
)

// executions counts ended executions by handler. A handler's series are made when
// its first execution ends; handlers come from the configuration alone.
type executions struct {
	byHandler sync.Map // of *handlerSeries by name
}

type handlerSeries struct {
	outcomes sync.Map // of *atomic.Int64 by edge.Outcome
	took     histogram
}

// ExecutionEnded counts an execution; see [edge.Options].
func (m *Metrics) ExecutionEnded(handler string, outcome edge.Outcome, took time.Duration) {
	v, ok := m.executions.byHandler.Load(handler)
	if !ok {
		v, _ = m.executions.byHandler.LoadOrStore(handler, &handlerSeries{took: newHistogram(executionBuckets)})
	}
	h := v.(*handlerSeries)
	n, ok := h.outcomes.Load(outcome)
	if !ok {
		n, _ = h.outcomes.LoadOrStore(outcome, &atomic.Int64{})
	}
	n.(*atomic.Int64).Add(1)
	h.took.observe(took)
}

func (e *executions) collect(s sender) {
	e.byHandler.Range(func(name, v any) bool {
		h := v.(*handlerSeries)
		h.outcomes.Range(func(outcome, n any) bool {
			s.counter(executionsEnded, n.(*atomic.Int64).Load(), name.(string), string(outcome.(edge.Outcome)))
			return true
		})
		h.took.collect(s, executionDuration, name.(string))
		return true
	})
}

// Upper bounds in seconds.
var (
	executionBuckets = []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300}
	requestBuckets   = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5}
)

// histogram counts durations by atomic additions alone.
type histogram struct {
	bounds []float64
	counts []atomic.Uint64 // one more than bounds
	sumUS  *atomic.Uint64
}

func newHistogram(bounds []float64) histogram {
	return histogram{bounds: bounds, counts: make([]atomic.Uint64, len(bounds)+1), sumUS: &atomic.Uint64{}}
}

func (h *histogram) observe(d time.Duration) {
	seconds, i := d.Seconds(), 0
	for i < len(h.bounds) && seconds > h.bounds[i] {
		i++
	}
	h.counts[i].Add(1)
	h.sumUS.Add(uint64(max(d.Microseconds(), 0)))
}

func (h *histogram) collect(s sender, d *prometheus.Desc, labels ...string) {
	buckets := make(map[float64]uint64, len(h.bounds))
	n := uint64(0)
	for i := range h.counts {
		n += h.counts[i].Load()
		if i < len(h.bounds) {
			buckets[h.bounds[i]] = n
		}
	}
	sum := float64(h.sumUS.Load()) / float64(time.Second/time.Microsecond)
	s.ch <- prometheus.MustNewConstHistogram(d, n, sum, buckets, labels...)
}
