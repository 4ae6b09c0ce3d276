package metrics_test

import (
	"context"
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"fencepost/edge"
	"fencepost/edge/metrics"

	"github.com/stretchr/testify/require"
)

// broken is a node whose database does not answer.
type broken struct{}

var errRead = errors.New("read: disk gone")

func (broken) Counters(context.Context) (map[string]int64, error)     { return nil, errRead }
func (broken) Handlers(context.Context) ([]edge.HandlerInfo, error)   { return nil, errRead }
func (broken) Waiting(context.Context) (int64, map[string]int, error) { return 0, nil, errRead }
func (broken) Storage() edge.Storage {
	return edge.Storage{State: edge.StorageFault, FreeBytes: -1, DaysLeft: -1}
}
func (broken) Commits() (n, ops int64)     { return 7, 21 }
func (broken) Engine() edge.Status         { return edge.Status{Held: 3} }
func (broken) Totals() edge.Counters       { return edge.Counters{} }
func (broken) Uplinks() []edge.UplinkState { return nil }
func (broken) Ready() bool                 { return false }
func (broken) NowMS() int64                { return 0 }

func scrape(t *testing.T, m *metrics.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	body, err := io.ReadAll(w.Body)
	require.NoError(t, err)
	require.Equal(t, 200, w.Code, string(body))
	return string(body)
}

// A fault of the storage takes nothing away but what it holds, and shows.
func TestScrape_OfABrokenStore(t *testing.T) {
	t.Parallel()
	text := scrape(t, metrics.New(broken{}, metrics.Build{Version: "v1"}))
	for _, line := range []string{
		"fencepost_scrape_faults 3", "fencepost_ready 0", `fencepost_storage_state{state="fault"} 1`, "fencepost_results_held 3",
		"fencepost_commits_total 7", "fencepost_commit_operations_total 21",
	} {
		require.Contains(t, text, line+"\n")
	}
	for _, absent := range []string{"fencepost_deliveries", "fencepost_disk_free_bytes", "fencepost_disk_left_days", "disk gone"} {
		require.NotContains(t, text, absent)
	}
}

// Counting from many goroutines loses nothing.
func TestCounting_FromManyGoroutines(t *testing.T) {
	t.Parallel()
	m := metrics.New(broken{}, metrics.Build{})
	const goroutines, each = 16, 500
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Go(func() {
			for range each {
				m.ExecutionEnded([]string{"a", "b"}[i%2], edge.OutcomeSucceeded, 30*time.Millisecond)
				m.Request(metrics.Intake, 202+i%2*300, time.Millisecond)
			}
		})
	}
	wg.Wait()
	text := scrape(t, m)
	for _, line := range []string{
		`fencepost_executions_total{handler="a",outcome="succeeded"} 4000`, `fencepost_execution_duration_seconds_count{handler="b"} 4000`,
		`fencepost_execution_duration_seconds_sum{handler="b"} 120`, `fencepost_execution_duration_seconds_bucket{handler="a",le="0.025"} 0`,
		`fencepost_execution_duration_seconds_bucket{handler="a",le="0.1"} 4000`, `fencepost_http_requests_total{route="/v1/events",status="2xx"} 4000`,
		`fencepost_http_requests_total{route="/v1/events",status="5xx"} 4000`, `fencepost_http_request_duration_seconds_bucket{route="/v1/events",le="0.001"} 8000`,
	} {
		require.Contains(t, text, line+"\n")
	}
	require.Equal(t, 1, strings.Count(text, "# TYPE fencepost_executions_total "))
}
