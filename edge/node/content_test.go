package node_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"fencepost/edge"
	"fencepost/edge/api"
	"fencepost/edge/node"

	"github.com/stretchr/testify/require"
)

// sendText sends an event whose data holds a text, and returns its deliveries by
// handler.
func (r *running) sendText(t *testing.T, id, s string) (event string, deliveries map[string]string) {
	t.Helper()
	data, err := json.Marshal(map[string]string{"s": s})
	require.NoError(t, err)
	rc, err := r.client.Send(t.Context(), edge.Event{ID: id, Source: "/test", Type: "text", ContentType: "application/json", Data: data})
	require.NoError(t, err)
	deliveries = map[string]string{}
	for _, d := range rc.Deliveries {
		handler, _, _ := strings.Cut(d.Target, ":")
		deliveries[handler] = d.ID
	}
	return rc.ID, deliveries
}

// wireTexts are forty texts that a careless sender would write as more than the
// value of one header.
func wireTexts() []string {
	var out []string
	for _, end := range []string{"\r\n", "\n", "\r", "\x00", "\x0b", "\x1f", "\x7f", "\r\n\t", "\n\n"} {
		out = append(out, "a"+end+"X-Evil: 1", end+"X-Evil: 1", "a"+end)
	}
	return append(out, "", "plain", "a: b", "a\tb", " a ", "X-Evil: 1", "%0d%0aX-Evil: 1", `\r\nX-Evil: 1`, "\u010d\u010aX-Evil: 1", "\u2028X-Evil: 1", "\u0085X-Evil: 1",
		"env:HOME", `"; admin="1`)
}

// rawTarget is a receiver that keeps each request as it was on the wire.
type rawTarget struct {
	net.Listener
	mu       sync.Mutex
	requests map[string]string // head and body by Ce-Id
}

func newRawTarget(t *testing.T) *rawTarget {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	target := &rawTarget{Listener: l, requests: map[string]string{}}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			target.serve(c)
		}
	})
	t.Cleanup(func() { _ = l.Close(); serving.Wait() })
	return target
}

func (r *rawTarget) serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	var head strings.Builder
	id, size := "", 0
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		head.WriteString(line)
		name, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), ": ")
		switch name {
		case "Ce-Id":
			id = value
		case "Content-Length":
			size, _ = strconv.Atoi(value)
		}
		if line == "\r\n" {
			break
		}
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(in, body); err != nil {
		return
	}
	r.mu.Lock()
	r.requests[id] += head.String() + string(body)
	r.mu.Unlock()
	fmt.Fprint(c, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
}

func (r *rawTarget) request(id string) (head []string, body string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text, body, _ := strings.Cut(r.requests[id], "\r\n\r\n")
	return strings.Split(text, "\r\n"), body
}

// T12: whatever an event says, a request has the headers of the configuration, one
// each, and nothing after its body.
func TestHeadersOfAWebhook_T12(t *testing.T) {
	t.Parallel()
	target := newRawTarget(t)
	s := newSite(t)
	r := start(t, s.config(t, "s", fmt.Sprintf(`
[[handler]]
name = "hook"
kind = "webhook"
ordering = "none"
url = "http://%s/in"
allow_addresses = ["127.0.0.1"]
headers = { X-First = "${data.s}", X-Second = "<${data.s}>", X-Fixed = "fixed" }
body = '{"text": "<${data.s}>", "all": ${data}}'
[[route]]
name = "all"
handler = "hook"
`, target.Addr())), node.Options{})

	texts := wireTexts()
	require.Len(t, texts, 40)
	names := []string{
		"Host", "User-Agent", "Traceparent", "Content-Length", "Accept-Encoding", "Ce-Id", "Ce-Source", "Ce-Specversion", "Ce-Type", "Content-Type", "Fencepost-Attempt",
		"Fencepost-Delivery", "Fencepost-Fence", "Fencepost-Target", "Webhook-Id", "Webhook-Timestamp", "X-First", "X-Fixed", "X-Second",
	}
	slices.Sort(names)
	sent, refused := 0, 0
	for i, text := range texts {
		id := "e-" + strconv.Itoa(i)
		_, deliveries := r.sendText(t, id, text)
		if strings.ContainsFunc(text, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) {
			require.Equal(t, "template_error", r.await(t, deliveries["hook"], edge.Blocked).Code, "%q", text)
			head, _ := target.request(id)
			require.Equal(t, []string{""}, head, "%q", text)
			refused++
			continue
		}
		r.await(t, deliveries["hook"], edge.Succeeded)
		head, body := target.request(id)
		require.Equal(t, "POST /in HTTP/1.1", head[0])
		var got []string
		values := map[string]string{}
		for _, line := range head[1:] {
			name, value, _ := strings.Cut(line, ":")
			got = append(got, name)
			values[name] = strings.TrimPrefix(value, " ")
		}
		slices.Sort(got)
		require.Equal(t, names, got, "%q", text)
		require.Equal(t, strings.Trim(text, " \t"), values["X-First"]) // the space around a value is no part of it, RFC 9110 5.5
		require.Equal(t, "<"+text+">", values["X-Second"])
		require.Equal(t, "application/json", values["Content-Type"])
		var sentBody map[string]any
		require.NoError(t, json.Unmarshal([]byte(body), &sentBody), "%q", text)
		require.Equal(t, map[string]any{"text": "<" + text + ">", "all": map[string]any{"s": text}}, sentBody)
		sent++
	}
	require.Equal(t, 13, sent)
	require.Equal(t, 27, refused)
	r.sound(t)
	r.end(t)
}

// Replay of R71: a missing input begins nothing, says what is missing, and goes on
// when the configuration has a default for it.
func TestAMissingInputWaitsForTheConfiguration_R71(t *testing.T) {
	t.Parallel()
	got := make(chan string, 1)
	receiver := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- r.Header.Get("X-City") + " " + r.Header.Get("Content-Type") + " " + string(body)
	})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = receiver.Serve(l) }()
	t.Cleanup(func() { _ = receiver.Close() })
	s := newSite(t)
	text := func(city string) string {
		return fmt.Sprintf("[[handler]]\nname = \"hook\"\nkind = \"webhook\"\nurl = \"http://%s/\"\nallow_addresses = [\"127.0.0.1\"]\nheaders = { X-City = '%s' }\n[[route]]\nname = \"all\"\nhandler = \"hook\"\n", l.Addr(), city)
	}
	r := start(t, s.config(t, "s", text("${data.city}")), node.Options{})
	_, deliveries := r.sendText(t, "e-1", "x")
	id := deliveries["hook"]
	require.Equal(t, "template_error", r.await(t, id, edge.Blocked).Code)
	x, err := r.client.Explain(t.Context(), id)
	require.NoError(t, err)
	require.Contains(t, strings.Join(x.Text, "\n"), "headers.X-City: ${...} number 1: data.city is missing")
	r.end(t)

	r = start(t, s.config(t, "s", text(`${data.city ?? "nowhere"}`)), node.Options{})
	r.await(t, id, edge.Succeeded)
	require.Equal(t, `nowhere application/json {"s":"x"}`, <-got, "the data goes as it was received")
	r.sound(t)
	r.end(t)
}

// A condition that fails is no "false": the event waits where people see it, and
// finds its way when the route is mended.
func TestAConditionThatFailsIsMended(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	text := func(when string) string {
		return "[[handler]]\nname = \"a\"\nkind = \"log\"\n[[route]]\nname = \"bad\"\nhandler = \"a\"\nkey = '${data.s}'\nwhen = '" + when + "'\n" +
			"[[handler]]\nname = \"b\"\nkind = \"log\"\n[[route]]\nname = \"good\"\nhandler = \"b\"\nwhen = 'data.s == \"x\"'\n"
	}
	r := start(t, s.config(t, "s", text("data.amount > 9007199254740992")), node.Options{})
	data := []byte(`{"s": "x", "total": 9007199254740993}`)
	rc, err := r.client.Send(t.Context(), edge.Event{ID: "e", Source: "/test", Type: "t", ContentType: "application/json", Data: data})
	require.NoError(t, err)
	require.Len(t, rc.Deliveries, 2)
	targets := map[string]api.Delivery{}
	for _, d := range rc.Deliveries {
		detail, err := r.client.Delivery(t.Context(), d.ID)
		require.NoError(t, err)
		targets[detail.Delivery.Target] = detail.Delivery
	}
	bad := targets["a:!route"]
	require.Equal(t, edge.Blocked, bad.State)
	require.Equal(t, "route_error", bad.Code)
	r.await(t, targets["b:"].ID, edge.Succeeded)
	x, err := r.client.Explain(t.Context(), bad.ID)
	require.NoError(t, err)
	require.Contains(t, strings.Join(x.Text, "\n"), `Its route bad failed on the event, so it has no target yet: "when: data.amount is missing".`)
	r.end(t)

	r = start(t, s.config(t, "s", text("data.total > 9007199254740992")), node.Options{})
	require.Equal(t, "a:x", r.await(t, bad.ID, edge.Succeeded).Target)
	r.sound(t)
	r.end(t)
}
