package metrics

import (
	"context"
	"net/http"
	"runtime"
	"time"

	"fencepost/edge"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Bounds of a scrape.
const (
	scrapeTimeout = 2 * time.Second // for what is read of the database
	maxScrapes    = 2               // at once; more are told 503
)

// Build describes the program.
type Build struct {
	Version   string
	StartedMS int64 // when the node was started, milliseconds UTC
}

// Metrics collects what happens, and answers scrapes. Make one with [New]. All
// methods may be called from many goroutines.
type Metrics struct {
	executions executions
	requests   requests
	source     Source
	build      Build
	registry   *prometheus.Registry
}

// New returns metrics that read from source when they are scraped.
func New(source Source, b Build) *Metrics {
	m := &Metrics{source: source, build: b, registry: prometheus.NewPedanticRegistry()}
	m.registry.MustRegister(m, collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handler answers GET /metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		DisableCompression: true, MaxRequestsInFlight: maxScrapes, Timeout: 2 * scrapeTimeout,
	})
}

// Gatherer gives the metrics to a test or to another exporter.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// Describe sends every description.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range descriptions {
		ch <- d
	}
}

// Collect reads the source. What cannot be read is left out and counted, so that
// a fault of the storage does not hide the rest.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	s := sender{ch}
	s.gauge(buildInfo, 1, m.build.Version, runtime.Version())
	s.gauge(startTime, float64(m.build.StartedMS)/1000)
	s.gauge(goroutines, float64(runtime.NumGoroutine()))
	m.executions.collect(s)
	m.requests.collect(s)
	m.collectMemory(s)
	faults := 0
	for _, read := range [...]func(context.Context, sender) error{m.collectCounters, m.collectHandlers, m.collectWaiting} {
		if err := read(ctx, s); err != nil {
			faults++
		}
	}
	s.gauge(scrapeFaults, float64(faults))
}

// collectMemory sends what is known without the database.
func (m *Metrics) collectMemory(s sender) {
	s.gauge(ready, truth(m.source.Ready()))
	e, totals := m.source.Engine(), m.source.Totals()
	s.gauge(liveExecutions, float64(e.Live))
	s.gauge(heldResults, float64(e.Held))
	s.gauge(stubbornHandlers, float64(e.Stubborn))
	s.gauge(clockDoubted, truth(e.Doubted))
	s.counter(leasesLost, totals.Lost)
	s.counter(recovered, totals.Recovered)
	commits, operations := m.source.Commits()
	s.counter(commitsTotal, commits)
	s.counter(operationsTotal, operations)
	for _, u := range m.source.Uplinks() {
		s.gauge(uplinkUp, truth(u.DownMS == 0), u.Name)
	}
	m.collectStorage(s)
}

func (m *Metrics) collectStorage(s sender) {
	st := m.source.Storage()
	for _, state := range [...]edge.StorageState{edge.StorageHealthy, edge.StorageLow, edge.StorageFault} {
		s.gauge(storageState, truth(st.State == state), string(state))
	}
	s.gauge(fileBytes, float64(st.FileBytes), "database")
	s.gauge(fileBytes, float64(st.LogBytes), "log")
	s.gauge(fileBytes, float64(st.ReserveBytes), "reserve")
	if st.FreeBytes >= 0 {
		s.gauge(freeBytes, float64(st.FreeBytes))
	}
	s.gauge(lowWaterBytes, float64(st.LowWaterBytes))
	s.gauge(keptBytes, float64(st.OpenBytes), "open")
	s.gauge(keptBytes, float64(st.SucceededBytes), "succeeded")
	s.gauge(keptBytes, float64(st.FailedBytes), "failed")
	s.gauge(maxBacklogBytes, float64(st.MaxOpenBytes))
	if st.DaysLeft >= 0 {
		s.gauge(daysLeft, st.DaysLeft)
	}
	s.counter(eventsRefused, st.Refused)
	s.counter(readersCut, st.ReadersCut)
}

// collectCounters sends the counters of the store. One that this table does not
// know is not shown.
func (m *Metrics) collectCounters(ctx context.Context, s sender) error {
	counters, err := m.source.Counters(ctx)
	if err != nil {
		return err
	}
	for _, c := range stored {
		if c.gauge {
			s.gauge(c.desc, float64(counters[c.name]), c.labels...)
		} else {
			s.counter(c.desc, counters[c.name], c.labels...)
		}
	}
	return nil
}

func (m *Metrics) collectHandlers(ctx context.Context, s sender) error {
	handlers, err := m.source.Handlers(ctx)
	for _, h := range handlers {
		s.gauge(handlerOpen, truth(h.Gate == edge.GateOn), h.Name)
		s.gauge(handlerFailing, truth(h.Episode.BeganMS != 0), h.Name)
	}
	return err
}

func (m *Metrics) collectWaiting(ctx context.Context, s sender) error {
	oldestMS, inFlight, err := m.source.Waiting(ctx)
	if err != nil {
		return err
	}
	age := 0.0
	if oldestMS > 0 {
		age = max(float64(m.source.NowMS()-oldestMS)/1000, 0)
	}
	s.gauge(oldestWaiting, age)
	for handler, n := range inFlight {
		s.gauge(deliveriesInFlight, float64(n), handler)
	}
	return nil
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// sender sends samples of one scrape.
type sender struct{ ch chan<- prometheus.Metric }

func (s sender) gauge(d *prometheus.Desc, v float64, labels ...string) {
	s.ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (s sender) counter(d *prometheus.Desc, n int64, labels ...string) {
	s.ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}
