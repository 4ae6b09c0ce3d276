package metrics

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// requests counts answered requests by route. Routes come from the table of the
// listener alone.
type requests struct {
	byRoute sync.Map // of *routeSeries by route
}

type routeSeries struct {
	classes [6]atomic.Int64 // by hundreds of the status
	took    histogram
}

// Intake is the route whose durations are measured.
const Intake = "/v1/events"

// Request counts an answered request.
func (m *Metrics) Request(route string, status int, took time.Duration) {
	v, ok := m.requests.byRoute.Load(route)
	if !ok {
		v, _ = m.requests.byRoute.LoadOrStore(route, &routeSeries{took: newHistogram(requestBuckets)})
	}
	r := v.(*routeSeries)
	r.classes[min(max(status/100, 0), len(r.classes)-1)].Add(1)
	if route == Intake {
		r.took.observe(took)
	}
}

func (r *requests) collect(s sender) {
	r.byRoute.Range(func(route, v any) bool {
		rs := v.(*routeSeries)
		for class := range rs.classes {
			if n := rs.classes[class].Load(); n > 0 {
				s.counter(httpRequests, n, route.(string), strconv.Itoa(class)+"xx")
			}
		}
		if route == Intake {
			rs.took.collect(s, httpDuration, Intake)
		}
		return true
	})
}
