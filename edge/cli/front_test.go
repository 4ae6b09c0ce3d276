package cli_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fencepost/edge"
	"fencepost/edge/api"

	"github.com/stretchr/testify/require"
)

// front is the network side of a node that runs as a process.
type front struct {
	*site
	address         string
	token, scraping string
}

// newFront starts a node with the routes of these tests; more are keys of [http].
func newFront(t *testing.T, more string) *front {
	t.Helper()
	s := newSite(t, more+routes)
	s.start(t)
	f := &front{site: s, address: decode[map[string]any](t, s.ok(t, "status", "--json"))["listen"].(string)}
	f.token = f.read(t, "db.token")
	if strings.Contains(more, "metrics_token_file") {
		f.scraping = f.read(t, "metrics.token")
	}
	return f
}

const withMetrics = "metrics_token_file = \"metrics.token\"\n"

func (f *front) read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(f.path(name))
	require.NoError(t, err)
	return strings.TrimSpace(string(b))
}

type reply struct {
	status int
	header http.Header
	body   string
}

// ask sends a request as it is written. Headers are whole lines; without one for
// Host it is localhost.
func (f *front) ask(t *testing.T, method, target, token string, headers ...string) reply {
	t.Helper()
	c, err := net.Dial("tcp", f.address)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(30*time.Second)))
	if !strings.Contains(strings.Join(headers, "\n"), "Host: ") {
		headers = append(headers, "Host: localhost")
	}
	if token != "" {
		headers = append(headers, "Authorization: Bearer "+token)
	}
	_, err = fmt.Fprintf(c, "%s %s HTTP/1.1\r\nConnection: close\r\n%s\r\n\r\n", method, target, strings.Join(headers, "\r\n"))
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return reply{resp.StatusCode, resp.Header, string(body)}
}

// T1: every route of the table, with no token, a wrong one, one of another scope,
// in every other spelling and with every other method: none succeeds.
func TestT1_EveryRouteNeedsItsScopeAndItsSpelling(t *testing.T) {
	t.Parallel()
	f := newFront(t, withMetrics)
	tokens := map[api.Scope]string{api.ScopeEvents: f.token, api.ScopeMetrics: f.scraping, api.ScopePublic: ""}
	query := map[string]string{"/v1/events": "?type=t1"}
	tried := 0
	refuse := func(want int, method, target, token string) {
		tried++
		r := f.ask(t, method, target, token, "Content-Length: 0")
		require.Equal(t, want, r.status, "%s %s: %s", method, target, r.body)
		require.NotContains(t, r.body, f.token)
		require.NotContains(t, r.body, f.scraping)
	}
	for _, at := range api.NetworkRoutes {
		right := tokens[at.Scope]
		if at.Scope != api.ScopePublic {
			refuse(http.StatusUnauthorized, at.Method, at.Path+query[at.Path], "")
			for _, wrong := range []string{"wrong", right + "x", right[1:], strings.ToUpper(right), `"` + right + `"`} {
				refuse(http.StatusUnauthorized, at.Method, at.Path+query[at.Path], wrong)
			}
			for scope, other := range tokens {
				if scope != at.Scope && other != "" {
					refuse(http.StatusForbidden, at.Method, at.Path+query[at.Path], other)
				}
			}
		}
		for _, method := range []string{"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", strings.ToLower(at.Method)} {
			if method != at.Method {
				refuse(http.StatusMethodNotAllowed, method, at.Path+query[at.Path], right)
			}
		}
		for _, target := range spellings(at.Path) {
			refuse(http.StatusNotFound, at.Method, target+query[at.Path], right)
			refuse(http.StatusNotFound, at.Method, target+query[at.Path], "")
		}
	}
	for _, path := range []string{
		"/v1/status", "/v1/deliveries", "/v1/deliveries/1", "/v1/deliveries/1/cancel", "/v1/targets/resume", "/v1/handlers", "/v1/counters", "/v1/check",
		"/v1/clock/confirm", "/v1/reload", "/v1/bulk", "/v1/changes", "/v1/backlog", "/", "/v1", "/debug/pprof/", "/debug/vars", "/setup", "/favicon.ico", "/.well-known/x",
	} {
		for _, token := range tokens {
			refuse(http.StatusNotFound, "GET", path, token)
			refuse(http.StatusNotFound, "POST", path, token)
		}
	}
	require.Greater(t, tried, 150)
	require.Contains(t, f.ok(t, "deliveries"), "no deliveries")
	for _, at := range api.NetworkRoutes { // and with the right one each answers
		require.Less(t, f.ask(t, at.Method, at.Path+query[at.Path], tokens[at.Scope], "Content-Length: 0").status, 300, at.Path)
	}
}

// spellings are other ways to write a path.
func spellings(path string) []string {
	last := strings.LastIndex(path, "/")
	all := []string{
		strings.ToUpper(path), path[:last+1] + strings.ToUpper(path[last+1:last+2]) + path[last+2:], "/" + path, path[:last] + "/" + path[last:],
		path[:last] + "/." + path[last:], path[:last] + "/x/.." + path[last:], "/." + path, path + "/", path + "/.", path + "//", path + ";x", path + ";", path + ".json",
		path[:last] + "%2f" + path[last+1:], path[:last] + "%2F" + path[last+1:], path[:last+1] + fmt.Sprintf("%%%02x", path[last+1]) + path[last+2:],
		path + "%00", path + "%20", path + "%23", path[:last+1] + "%2e%2e" + path[last:], "/x" + path, path[:last] + `\` + path[last+1:],
	}
	for i, s := range all {
		if !strings.HasPrefix(s, "/") {
			all[i] = "/" + s // else it is no request of HTTP
		}
	}
	return all
}

// R92: without a token file for the metrics nobody reads them on the network.
func TestR92_MetricsAreClosedUnlessATokenIsSet(t *testing.T) {
	t.Parallel()
	f := newFront(t, "")
	for _, token := range []string{"", f.token, "x", `""`} {
		want := http.StatusUnauthorized
		if token == f.token {
			want = http.StatusForbidden
		}
		require.Equal(t, want, f.ask(t, "GET", "/metrics", token).status)
	}
}

// T5, R101: another host name gets nothing, with the right token too.
func TestT5_R101_MetricsAnswerToTheirHostsOnly(t *testing.T) {
	t.Parallel()
	f := newFront(t, withMetrics+"allowed_hosts = [\"pi.example\"]\n")
	for _, host := range []string{"evil.test", "localhost.evil.test", "127.0.0.1.evil.test", "10.0.0.1", "pi.example.evil.test"} {
		for _, token := range []string{f.scraping, ""} {
			r := f.ask(t, "GET", "/metrics", token, "Host: "+host)
			require.Equal(t, http.StatusMisdirectedRequest, r.status, host)
			require.NotContains(t, r.body, "fencepost_")
		}
	}
	for _, host := range []string{"localhost", "127.0.0.1:9", "[::1]", "pi.example", f.address} {
		require.Equal(t, http.StatusOK, f.ask(t, "GET", "/metrics", f.scraping, "Host: "+host).status, host)
	}
}

// series are the series of a scrape: each sample's name and labels.
func (f *front) series(t *testing.T) map[string]bool {
	t.Helper()
	r := f.ask(t, "GET", "/metrics", f.scraping)
	require.Equal(t, http.StatusOK, r.status, r.body)
	out := map[string]bool{}
	for line := range strings.Lines(r.body) {
		if !strings.HasPrefix(line, "#") {
			name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
			if i := strings.LastIndex(line, "} "); i > 0 {
				name = line[:i+1]
			}
			out[name] = true
		}
	}
	return out
}

// T26: 10,000 types, subjects, sources and paths make no series, and nothing of
// them is shown.
func TestT26_SeriesDoNotFollowEvents(t *testing.T) {
	t.Parallel()
	f := newFront(t, withMetrics)
	batch := func(round int) {
		var b strings.Builder
		for i := range 1000 {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `{"specversion":"1.0","id":"%d-%d","source":"/canary/%d","type":"greeting.canary%d-%d","subject":"canary%d","data":1}`, round, i, i, round, i, i)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+f.address+"/v1/events", strings.NewReader("["+b.String()+"]"))
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+f.token)
		req.Header.Set("Content-Type", "application/cloudevents-batch+json")
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		_, _ = io.Copy(io.Discard, resp.Body)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusAccepted, resp.StatusCode)
	}
	done := func() {
		require.Eventually(t, func() bool {
			return strings.Contains(f.ok(t, "deliveries", "--state", "pending"), "no deliveries")
		}, time.Minute, 20*time.Millisecond)
	}
	unknown := func(n int) {
		for i := range n {
			require.Equal(t, http.StatusNotFound, f.ask(t, "GET", fmt.Sprint("/canary/", i), "").status)
		}
	}
	batch(0)
	unknown(1)
	done()
	f.series(t) // the route of the scrape itself
	before := f.series(t)
	for round := range 9 {
		batch(round + 1)
	}
	unknown(50)
	done()
	after := f.series(t)
	require.Equal(t, before, after)
	require.LessOrEqual(t, len(after), 200)
	for name := range after {
		require.NotContains(t, name, "canary")
	}
	text := f.ask(t, "GET", "/metrics", f.scraping).body
	require.Contains(t, text, `fencepost_events_total{result="accepted"} 10000`)
	require.Contains(t, text, `fencepost_executions_total{handler="record",outcome="succeeded"} 10000`)
	require.Contains(t, text, `fencepost_deliveries{state="succeeded"} 10000`)
	require.Contains(t, text, "fencepost_oldest_waiting_seconds 0")
}

// T13: a thousand connections that never finish their headers are all closed
// within ten seconds, and callers who do are served meanwhile.
func TestT13_AThousandHalfOpenConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	f := newFront(t, "")
	const crowd = 1000
	var closed atomic.Int64
	var all sync.WaitGroup
	begun := time.Now()
	for i := range crowd {
		c, err := net.Dial("tcp", f.address)
		require.NoError(t, err)
		_, err = io.WriteString(c, "POST /v1/events?type=t HTTP/1.1\r\nHost: localhost\r\nX-Slow: "[:10+i%48])
		require.NoError(t, err)
		all.Go(func() {
			defer c.Close()
			_ = c.SetReadDeadline(time.Now().Add(time.Minute)) // a hang guard
			if _, err := io.Copy(io.Discard, c); err == nil || !os.IsTimeout(err) {
				closed.Add(1)
			}
		})
	}
	opened := time.Now()
	gone := make(chan struct{})
	go func() { all.Wait(); close(gone) }()
	served := 0
	pace := time.NewTicker(20 * time.Millisecond)
	defer pace.Stop()
	for waiting := true; waiting; {
		require.Equal(t, http.StatusAccepted, f.ask(t, "POST", "/v1/events?type=healthy", f.token, "Content-Length: 0").status)
		served++
		select {
		case <-gone:
			waiting = false
		case <-t.Context().Done():
			waiting = false
		case <-pace.C:
		}
	}
	require.EqualValues(t, crowd, closed.Load())
	require.Greater(t, served, 10, "others were served meanwhile")
	t.Logf("%d half-open connections, opened in %s, all closed %s after; %d requests served meanwhile",
		crowd, opened.Sub(begun).Round(time.Millisecond), time.Since(opened).Round(time.Millisecond), served)
}

// A trace goes from the request through the node to the program of a command.
func TestTrace_FromTheRequestToTheProgram(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	s.configure(t, fmt.Sprintf("[[handler]]\nname = \"tell\"\nkind = \"command\"\nargv = [\"/bin/sh\", \"-c\", \"echo $TRACEPARENT $TRACESTATE > %s\"]\n[[route]]\nname = \"all\"\nhandler = \"tell\"\n", s.path("seen")))
	s.start(t)
	f := &front{site: s, address: decode[map[string]any](t, s.ok(t, "status", "--json"))["listen"].(string)}
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	r := f.ask(t, "POST", "/v1/events?type=x", f.read(t, "db.token"), "Content-Length: 0", "traceparent: 00-"+id+"-00f067aa0ba902b7-01", "tracestate: a=1")
	require.Equal(t, http.StatusAccepted, r.status, r.body)
	d := s.await(t, decode[api.Receipt](t, r.body).Deliveries[0].ID, edge.Succeeded)
	require.Equal(t, id, d.Event.Trace)
	require.Contains(t, s.ok(t, "event", "1"), id)
	seen := f.read(t, "seen")
	require.True(t, strings.HasPrefix(seen, "00-"+id+"-"), seen)
	require.NotContains(t, seen, "00f067aa0ba902b7")
	require.True(t, strings.HasSuffix(seen, "-01 a=1"), seen)
}
