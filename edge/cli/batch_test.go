package cli_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"fencepost/edge/api"

	"github.com/stretchr/testify/require"
)

type batchReport struct {
	File                                      string
	Events, New, Existing, Conflicts, Targets int
	Refused                                   []struct {
		Line               int
		ID, Source, Detail string
	}
	WaitedS int `json:"waited_s"`
}

func (s *site) write(t *testing.T, name, text string) string {
	t.Helper()
	require.NoError(t, os.WriteFile(s.path(name), []byte(text), 0o600))
	return s.path(name)
}

func (s *site) batch(t *testing.T, args ...string) batchReport {
	t.Helper()
	return decode[batchReport](t, s.ok(t, append([]string{"send", "--json", "--batch"}, args...)...))
}

func TestSendBatch_LinesAreHandedInOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, routes)
	s.start(t)
	file := s.write(t, "events.jsonl", "\xef\xbb\xbf"+`{"type":"greeting.a","subject":"bob","data":{"n": 1, "big": 12345678901234567890}}

{"specversion":"1.0","id":"own","source":"/shop","type":"nobody.cares","data_base64":"AAEC"}
  {"data":"no type of its own","datacontenttype":"text/plain","ext1":7}  `+"\r\n"+`{"type":"greeting.a","subject":"bob","data":{"n": 1, "big": 12345678901234567890}}`)
	first := s.batch(t, file, "--type", "greeting.default")
	require.Equal(t, batchReport{File: file, Events: 4, New: 4, Targets: 3, Refused: first.Refused}, first)
	require.Empty(t, first.Refused)
	again := s.batch(t, file, "--type", "greeting.default")
	require.Equal(t, 4, again.Existing, "the same lines have the same ids")
	require.Zero(t, again.New)
	more := s.write(t, "events.jsonl", s.readAll(t, "events.jsonl")+"\n"+`{"type":"greeting.b"}`)
	grown := s.batch(t, more, "--type", "greeting.default")
	require.Equal(t, 1, grown.New, "what was appended")
	require.Equal(t, 4, grown.Existing)
	require.Contains(t, s.ok(t, "send", "--batch", more, "--type", "greeting.default"), "5 events handed in: 0 new, 5 existing, 0 conflicting")
	piped := s.runWith(t, strings.NewReader(`[{"id":"a","type":"greeting.c"},{"id":"b","type":"greeting.c"}]`), "send", "--batch", "-")
	require.Zero(t, piped.code, piped.err)
	require.Contains(t, piped.out, "standard input: 2 events handed in: 2 new")
	d := decode[api.DeliveryDetail](t, s.ok(t, "delivery", "1", "--json"))
	require.Equal(t, len(`{"n": 1, "big": 12345678901234567890}`), d.Event.DataBytes, "the data keeps its bytes")
}

func (s *site) readAll(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(s.path(name))
	require.NoError(t, err)
	return string(b)
}

func TestSendBatch_StopsAtTheBadLine(t *testing.T) {
	t.Parallel()
	s := newSite(t, routes)
	s.start(t)
	for name, c := range map[string]struct {
		text, mended string
		line         int
		says         string
	}{
		"not JSON":    {"{\"type\":\"t\"}\n\n{\"type\":\"t\"}\n{\"type\":\n{\"type\":\"t\"}", "{\"type\":\"t\"}\n\n{\"type\":\"t\"}\n{\"type\":\"t\"}\n{\"type\":\"t\"}", 4, "not valid JSON"},
		"no type":     {"{\"type\":\"t\"}\n{\"type\":\"u\"}\n{\"data\":1}\n{\"type\":\"t\"}", "{\"type\":\"t\"}\n{\"type\":\"u\"}\n{\"type\":\"t\",\"data\":1}\n{\"type\":\"t\"}", 3, "type"},
		"array":       {"[\n {\"type\":\"t\"},\n {\"type\":\"u\"},\n {\n  \"type\":\"t\",\n  \"x y\":1},\n {\"type\":\"w\"}\n]", "[\n {\"type\":\"t\"},\n {\"type\":\"u\"},\n {\n  \"type\":\"t\",\n  \"xy\":1},\n {\"type\":\"w\"}\n]", 4, "x y"},
		"open array":  {"[{\"type\":\"t\"},\n{\"type\":\"u\"},\n", "[{\"type\":\"t\"},\n{\"type\":\"u\"},\n{\"type\":\"v\"},{\"type\":\"w\"}]", 3, "ends early"},
		"server side": {"{\"type\":\"t\"}\n{\"type\":\"u\"}\n{\"type\":\"t\",\"expirytime\":\"soon\"}", "{\"type\":\"t\"}\n{\"type\":\"u\"}\n{\"type\":\"t\",\"expirytime\":\"2100-01-01T00:00:00Z\"}\n{\"type\":\"t\"}", 3, "expirytime"},
	} {
		file := s.write(t, "bad", c.text)
		source := "/" + strings.ReplaceAll(name, " ", "-")
		r := s.run(t, "send", "--batch", file, "--source", source)
		require.Equal(t, api.ExitUsage, r.code, "%s: %s", name, r.err)
		require.Contains(t, r.err, fmt.Sprintf("line %d: ", c.line), name)
		require.Contains(t, r.err, c.says, name)
		require.Contains(t, r.err, "run the same command again", name)
		require.Contains(t, r.out, "2 events handed in: 2 new", name)
		s.write(t, "bad", c.mended)
		x := s.batch(t, file, "--source", source)
		require.Equal(t, [2]int{2, 2}, [2]int{x.Existing, x.New}, "%s: the rest, and nothing twice", name)
	}
	r := s.run(t, "send", "--batch", s.write(t, "huge", `{"type":"t","data":"`+strings.Repeat("x", 3<<20)+`"}`))
	require.Equal(t, api.ExitUsage, r.code)
	require.Contains(t, r.err, "line 1: has more than")
	for _, args := range [][]string{{"send"}, {"send", "--batch", s.path("bad"), "--id", "1"}, {"send", "--batch", s.path("nothing")}, {"send", "--type", "t", "--wait", "1s"}} {
		require.Equal(t, api.ExitUsage, s.run(t, args...).code, args)
	}
}

func TestSendBatch_NamesConflicts(t *testing.T) {
	t.Parallel()
	s := newSite(t, routes)
	s.start(t)
	require.Equal(t, 2, s.batch(t, s.write(t, "one", "{\"type\":\"t\",\"id\":\"1\",\"data\":1}\n{\"type\":\"t\",\"id\":\"2\",\"data\":1}")).New)
	r := s.run(t, "send", "--json", "--batch", s.write(t, "two", "{\"type\":\"t\",\"id\":\"1\",\"data\":1}\n\n{\"type\":\"t\",\"id\":\"2\",\"data\":2}\n{\"type\":\"t\",\"id\":\"3\"}"))
	require.Equal(t, api.ExitConflict, r.code)
	x := decode[batchReport](t, r.out)
	require.Equal(t, [3]int{1, 1, 1}, [3]int{x.New, x.Existing, x.Conflicts}, "those after it go on")
	require.Equal(t, 3, x.Refused[0].Line)
	require.Equal(t, "2", x.Refused[0].ID)
	require.Contains(t, s.run(t, "send", "--batch", s.path("two")).out, "line 3: source /cli id 2: ")
}

// Chunks stay within 1,000 events and 4 MiB, and an event that is too large for a
// batch goes alone.
func TestSendBatch_Chunks(t *testing.T) {
	t.Parallel()
	s := newSite(t, "max_body_bytes = 8388608\n"+routes)
	s.start(t)
	var b strings.Builder
	for i := range 2500 {
		fmt.Fprintf(&b, "{\"type\":\"t\",\"id\":\"%d\",\"data\":%d}\n", i, i)
	}
	for i := range 6 {
		fmt.Fprintf(&b, "{\"type\":\"t\",\"id\":\"big%d\",\"data\":\"%s\"}\n", i, strings.Repeat("x", 900<<10))
	}
	fmt.Fprintf(&b, "{\"type\":\"t\",\"id\":\"huge\",\"datacontenttype\":\"text/plain\",\"data\":\"%s\"}\n", strings.Repeat("x", 6<<20))
	x := s.batch(t, s.write(t, "many", b.String()))
	require.Equal(t, 2507, x.New)
	require.Equal(t, 2507, s.batch(t, s.path("many")).Existing)
}

// A node that is full, away for a moment, or can take some of a chunk only, is
// waited for; each event is handed in once.
func TestSendBatch_WaitsForTheNode(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	l, err := net.Listen("unix", s.path("db.sock"))
	require.NoError(t, err)
	var requests atomic.Int64
	taken := map[string]int{}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var events []struct{ ID string }
		body, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(body, &events)
		w.Header().Set("Retry-After", "1")
		switch requests.Add(1) {
		case 1:
			w.WriteHeader(http.StatusInsufficientStorage)
			fmt.Fprint(w, `{"code":"backlog_full","status":507,"title":"full","detail":"the backlog is full"}`)
			return
		case 2:
			panic(http.ErrAbortHandler) // the connection breaks
		case 3:
			fmt.Fprint(w, `[{"status":507,"problem":{"code":"backlog_full","status":507,"title":"full","detail":"full again"}},{"status":202,"id":"e","targets":2}]`)
			taken[events[1].ID]++
			return
		}
		for _, e := range events {
			taken[e.ID]++
		}
		require.Len(t, events, 1, "only what was not taken")
		fmt.Fprint(w, `[{"status":202,"id":"e","targets":1}]`)
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	r := s.run(t, "send", "--json", "--batch", s.write(t, "two", "{\"type\":\"t\",\"id\":\"1\"}\n{\"type\":\"t\",\"id\":\"2\"}"))
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.err, "line 1: the backlog is full; waiting 1s")
	require.Contains(t, r.err, "full again; waiting")
	require.Equal(t, map[string]int{"1": 1, "2": 1}, taken)
	x := decode[batchReport](t, r.out)
	require.Equal(t, [3]int{2, 2, 3}, [3]int{x.Events, x.New, x.Targets})
	require.GreaterOrEqual(t, x.WaitedS, 3)

	requests.Store(0)
	r = s.run(t, "send", "--wait", "0s", "--batch", s.path("two"))
	require.Equal(t, api.ExitStorage, r.code)
	require.Contains(t, r.err, "stopped before line 1")
}
