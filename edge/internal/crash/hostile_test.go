package crash_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"fencepost/edge"
	"fencepost/edge/api"

	"github.com/stretchr/testify/require"
)

// answerOf is what came back for a request that was written byte by byte.
type answerOf struct {
	status int
	kind   string // content type
	body   string
}

// raw writes a request to the node's listener as it is and reads the answer. The
// write may break off: a server need not read what it refuses.
func (n *node) raw(request string) answerOf {
	n.t.Helper()
	c, err := net.Dial("tcp", *n.addr.Load())
	require.NoError(n.t, err)
	defer c.Close()
	require.NoError(n.t, c.SetDeadline(time.Now().Add(hangGuard)))
	go func() { _, _ = io.WriteString(c, request) }()
	return readAnswer(n.t, c)
}

// event is a request to hand in an event, with more headers in front of its body.
func (n *node) event(query, body string, headers ...string) string {
	if !slices.ContainsFunc(headers, func(h string) bool { return strings.HasPrefix(h, "Host:") }) {
		headers = append(headers, "Host: localhost")
	}
	return fmt.Sprintf("POST /v1/events%s HTTP/1.1\r\nConnection: close\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n%s\r\n\r\n%s",
		query, n.token(), len(body), strings.Join(headers, "\r\n"), body)
}

// TestT9_HostileRepliesEndAndCostLittle has endpoints that answer with a header of a
// gibibyte, a body that never ends, one that drips, and one that inflates to a
// thousand times its size (hookdeck/outpost#974). Each costs one request, ends by the timeout
// at the latest, and the memory of the node stays as it was.
func TestT9_HostileRepliesEndAndCostLittle(t *testing.T) {
	t.Parallel()
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	_, err := z.Write(make([]byte, 50<<20))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	require.Greater(t, 50<<20/bomb.Len(), 900)
	fill := strings.Repeat("x", 64<<10)
	endless := func(head string) func(net.Conn) {
		return func(c net.Conn) {
			_, err := io.WriteString(c, head)
			for sent := 0; err == nil && sent < 1<<30; sent += len(fill) {
				_, err = io.WriteString(c, fill)
			}
		}
	}
	replies := map[string]func(net.Conn){
		"header": endless("HTTP/1.1 200 OK\r\nX-Long: "),
		"body":   endless("HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n"),
		"chunk":  endless("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40000000\r\n"),
		"bomb": func(c net.Conn) {
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", bomb.Len(), bomb.String())
		},
		"drip": func(c net.Conn) {
			_, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for err == nil {
				<-tick.C
				_, err = io.WriteString(c, "1\r\nx\r\n")
			}
		},
		"silent": func(c net.Conn) { _, _ = io.Copy(io.Discard, c) },
	}
	text, targets := "", map[string]*wire{}
	for name, reply := range replies {
		w := newWire(t, nil)
		w.reply = reply
		targets[name] = w
		text += fmt.Sprintf("[[handler]]\nname = %q\nkind = \"webhook\"\nurl = \"http://%s/\"\nallow_addresses = [\"127.0.0.1\"]\ntimeout_s = 2\nmax_attempts = 1\nretry_schedule_s = [1]\n", name, w.Addr()) + route(name, name+".*")
	}
	warm := newReceiver(t, always(http.StatusNoContent))
	n := newNode(t, text+warm.webhook("warm")+route("warm", "warm.*"))
	n.start()
	for i := range 20 {
		n.awaitState(n.sendOne("warm.x", "t", fmt.Sprint("warm", i)), edge.Succeeded)
	}
	before := n.peakMemory()
	ids := map[string]string{}
	for name := range replies {
		ids[name] = n.sendOne(name+".x", "t", name)
	}
	for name, id := range ids {
		want := map[string]edge.State{"header": edge.Failed, "silent": edge.Failed}[name]
		if want == "" {
			want = edge.Succeeded // the status came: what follows is only shown
		}
		x := n.awaitState(id, want)
		executions := n.delivery(id).Executions
		require.Len(t, executions, 1, name)
		detail := executions[0].Detail
		require.LessOrEqual(t, len(detail), edge.MaxDetailBytes, name)
		if name == "body" || name == "chunk" {
			require.Contains(t, detail, "[truncated]", name)
		}
		require.Len(t, targets[name].all(), 1, "%s: %s", name, x.Code)
	}
	grown := n.peakMemory() - before
	t.Logf("peak memory grew by %d KiB", grown>>10)
	require.Less(t, grown, int64(16<<20), "of more than 3 GiB that were sent")
	n.awaitState(n.sendOne("warm.x", "t", "after"), edge.Succeeded)
	n.clean()
}

// peakMemory is the most memory that the node has had resident, in bytes.
func (n *node) peakMemory() int64 {
	n.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.p.cmd.Process.Pid))
	require.NoError(n.t, err)
	_, after, _ := strings.Cut(string(b), "VmHWM:")
	kib, err := strconv.ParseInt(strings.Fields(after)[0], 10, 64)
	require.NoError(n.t, err)
	return kib << 10
}

// headerTexts are forty texts that a careless sender would write as more than the
// value of one header.
func headerTexts() []string {
	var out []string
	for _, end := range []string{"\r\n", "\n", "\r", "\x00", "\x0b", "\x1f", "\x7f", "\r\n\t", "\n\n"} {
		out = append(out, "a"+end+"X-Evil: 1", end+"X-Evil: 1", "a"+end)
	}
	return append(out, "", "plain", "a: b", "a\tb", "a  b", "X-Evil: 1", "%0d%0aX-Evil: 1", `\r\nX-Evil: 1`, "\u010d\u010aX-Evil: 1", "\u2028X-Evil: 1", "\u0085X-Evil: 1",
		"env:HOME", `"; admin="1`)
}

// TestT12_NoTextMakesAHeader renders forty hostile texts into headers, and reads
// what is on the wire as the most careless receiver would.
func TestT12_NoTextMakesAHeader(t *testing.T) {
	t.Parallel()
	w := newWire(t, func(string) string { return "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" })
	n := newNode(t, fmt.Sprintf("[[handler]]\nname = \"hook\"\nkind = \"webhook\"\nurl = \"http://%s/in\"\nallow_addresses = [\"127.0.0.1\"]\nordering = \"none\"\nheaders = { X-First = \"${data.s}\", X-Second = \"<${data.s}>\" }\n", w.Addr())+route("hook", "*"))
	n.start()
	texts := headerTexts()
	require.Len(t, texts, 40)
	var events []sent
	for i, s := range texts {
		body, err := json.Marshal(map[string]string{"s": s})
		require.NoError(t, err)
		events = append(events, sent{source: "/test", id: fmt.Sprint("e", i), kind: "x", subject: "t", body: string(body)})
	}
	sentIDs := map[string]string{} // text by event
	refused := 0
	for i, item := range n.postBatch(events) {
		id := item.Receipt.Deliveries[0].ID
		if strings.ContainsFunc(texts[i], func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) {
			require.Equal(t, "template_error", n.awaitState(id, edge.Blocked).Code, "%q", texts[i])
			refused++
			continue
		}
		n.awaitState(id, edge.Succeeded)
		sentIDs[events[i].id] = texts[i]
	}
	require.Equal(t, 27, refused)
	require.Len(t, w.all(), len(sentIDs), "nothing was sent of what is refused, and nothing twice")
	var names []string
	for _, r := range w.all() {
		require.Equal(t, "POST /in HTTP/1.1", r.head[0])
		s, ok := sentIDs[r.header("Ce-Id")]
		require.True(t, ok, "%q", r.head)
		require.Equal(t, s, r.header("X-First"))
		require.Equal(t, "<"+s+">", r.header("X-Second"))
		var these []string
		for _, line := range r.head[1:] {
			name, _, ok := strings.Cut(line, ":")
			require.True(t, ok, "%q", line)
			these = append(these, name)
		}
		slices.Sort(these)
		if names == nil {
			names = these
		}
		require.Equal(t, names, these, "%q", s)
	}
	require.Contains(t, names, "X-First")
	n.clean()
}

// TestT13_OversizeIsRefusedUnread announces, and sends, more than is taken: the
// answer comes while most of it is still unsent, and others are served meanwhile.
func TestT13_OversizeIsRefusedUnread(t *testing.T) {
	t.Parallel()
	n := newNode(t, "max_body_bytes = 65536\n[[handler]]\nname = \"note\"\nkind = \"log\"\n"+route("note", "*"))
	n.start()
	for name, c := range map[string]struct {
		head   string
		status int
	}{
		"announced":       {"Content-Length: 1073741824\r\n", http.StatusRequestEntityTooLarge},
		"one too many":    {"Content-Length: 65537\r\n", http.StatusRequestEntityTooLarge},
		"in chunks":       {"Transfer-Encoding: chunked\r\n", http.StatusRequestEntityTooLarge},
		"without a token": {"Content-Length: 1073741824\r\nAuthorization: none\r\n", http.StatusUnauthorized},
		"header":          {"Content-Length: 0\r\nX-Long: " + strings.Repeat("x", 80<<10) + "\r\n", http.StatusRequestHeaderFieldsTooLarge},
	} {
		head := "POST /v1/events?type=t HTTP/1.1\r\nHost: localhost\r\n" + c.head
		if !strings.Contains(head, "Authorization") {
			head += "Authorization: Bearer " + n.token() + "\r\n"
		}
		conn, err := net.Dial("tcp", *n.addr.Load())
		require.NoError(t, err)
		require.NoError(t, conn.SetDeadline(time.Now().Add(hangGuard)))
		sent := make(chan int, 1)
		go func() {
			k, _ := io.WriteString(conn, head+"\r\n")
			part := strings.Repeat("x", 16<<10)
			if name == "in chunks" {
				part = fmt.Sprintf("%x\r\n%s\r\n", len(part), part)
			}
			for k < 64<<20 {
				more, err := io.WriteString(conn, part)
				if k += more; err != nil {
					break
				}
			}
			sent <- k
		}()
		require.Equal(t, c.status, readAnswer(t, conn).status, name)
		n.awaitState(n.sendOne("healthy", "t", name), edge.Succeeded)
		_ = conn.Close()
		require.Less(t, <-sent, 32<<20, "%s: what was not read cannot have been sent, but for the buffers of the system", name)
	}
	require.Len(t, n.deliveries(), 5)
	n.clean()
}

func readAnswer(t *testing.T, c net.Conn) answerOf {
	t.Helper()
	b := make([]byte, 0, 4096)
	for !bytes.Contains(b, []byte("\r\n\r\n")) {
		part := make([]byte, 4096)
		k, err := c.Read(part)
		b = append(b, part[:k]...)
		require.NoError(t, err, "%q", b)
	}
	head, body, _ := bytes.Cut(b, []byte("\r\n\r\n"))
	var a answerOf
	_, err := fmt.Sscanf(string(head), "HTTP/1.1 %d", &a.status)
	require.NoError(t, err, "%q", head)
	for line := range strings.Lines(string(head)) {
		if v, ok := strings.CutPrefix(line, "Content-Type: "); ok {
			a.kind = strings.TrimSpace(v)
		}
		if v, ok := strings.CutPrefix(line, "Content-Length: "); ok {
			length, err := strconv.Atoi(strings.TrimSpace(v))
			require.NoError(t, err)
			for len(body) < length {
				part := make([]byte, length)
				k, err := c.Read(part)
				require.NoError(t, err)
				body = append(body, part[:k]...)
			}
		}
	}
	a.body = string(body)
	return a
}

// hostileEvents are bodies of the structured form that are no event.
func hostileEvents() []string {
	deep := func(open, shut string, k int) string { return strings.Repeat(open, k) + strings.Repeat(shut, k) }
	with := func(more string) string { return `{"specversion":"1.0","id":"1","source":"/s","type":"t"` + more + `}` }
	return []string{
		"", " ", "\x00", "\ufeff" + with(""), "{", "}", "[", "]", "null", "true", "1", `"x"`, "[]", "{}", "{,}", "{]", `{"a"}`, `{"a":}`, `{a:1}`, `{'a':1}`, "\xff\xfe", "<xml/>", "NaN", "Infinity",
		with("") + with(""), with("") + "x", with(`,`), with(`,"a":1,`), with(`,"id":"2"`), with(`,"\u0069d":"2"`), with(`,"data":1,"data":2`), with(`,"data":1,"data_base64":"AA=="`), with(`,"data_base64":"A"`),
		with(`,"data_base64":1`), with(`,"data":` + deep("[", "]", 65)), with(`,"data":` + deep(`{"a":`, "}", 65)), with(`,"data":` + strings.Repeat("[", 100)), deep("[", "]", 200_000), strings.Repeat(`{"a":`, 100_000),
		with(`,"ID":"2"`), with(`,"a":{}`), with(`,"a":[]`), with(`,"a":1.5`), with(`,"a":2147483648`), with(`,"a":1e400`), with(`,"a":"\ud83d"`), with(",\"a\":\"\xff\""), with(",\"a\":\"\n\""), with(`,"a":"\x"`), with(`,"a-b":"x"`),
		with(`,"":"x"`), with(`,"` + strings.Repeat("a", 21) + `":"x"`), with(`,"time":"yesterday"`), with(`,"time":1`), with(`,"subject":null1`), with(`,"datacontenttype":"text/plain","data":{}`), with(`,"dataschema":1`),
		`{"id":"1","source":"/s","type":"t"}`, `{"specversion":"2.0","id":"1","source":"/s","type":"t"}`, `{"specversion":1.0,"id":"1","source":"/s","type":"t"}`, `{"specversion":"1.0","source":"/s","type":"t"}`,
		`{"specversion":"1.0","id":"","source":"/s","type":"t"}`, `{"specversion":"1.0","id":"  ","source":"/s","type":"t"}`, `{"specversion":"1.0","id":1,"source":"/s","type":"t"}`, `{"specversion":"1.0","id":"1","source":"","type":"t"}`,
		`{"specversion":"1.0","id":"1","source":"/s","type":""}`, `{"specversion":"1.0","id":"` + strings.Repeat("x", 513) + `","source":"/s","type":"t"}`, `{"specversion":"1.0","id":"1","source":"/s","type":"` + strings.Repeat("x", 513) + `"}`,
		with(`,"x":"` + strings.Repeat("x", 70_000) + `"`), with(strings.Repeat(`,"a":1`, 1000)),
	}
}

// TestT14_HostileJSONIsRefusedWithItsPlace hands in what is no event, alone, in a
// batch behind a good one, and as data that says it is JSON. Each is refused, as the
// caller's fault and with the place of it, nothing is kept, and the node goes on.
func TestT14_HostileJSONIsRefusedWithItsPlace(t *testing.T) {
	t.Parallel()
	n := newNode(t, "[[handler]]\nname = \"note\"\nkind = \"log\"\n"+route("note", "*"))
	n.start()
	good := `{"specversion":"1.0","id":"good","source":"/s","type":"t"}`
	refused := 0
	refuse := func(request, what string) {
		t.Helper()
		a := n.raw(request)
		require.True(t, a.status >= 400 && a.status < 500, "%d to %.200q", a.status, what)
		require.Equal(t, "application/problem+json", a.kind)
		var p api.Problem
		require.NoError(t, json.Unmarshal([]byte(a.body), &p), "%q", a.body)
		require.NotEmpty(t, p.Code)
		require.NotEmpty(t, p.Detail, "%.200q", what)
		require.NotContains(t, a.body, "goroutine")
		require.Less(t, len(a.body), 64<<10)
		refused++
	}
	for _, body := range hostileEvents() {
		refuse(n.event("", body, "Content-Type: application/cloudevents+json"), body)
		refuse(n.event("", "["+good+","+body+"]", "Content-Type: application/cloudevents-batch+json"), body)
	}
	for _, data := range []string{"{", "[1,]", "{'a':1}", "\xff", "01", "+1", "nul", `"\ud8"`, strings.Repeat("[", 65) + strings.Repeat("]", 65), strings.Repeat("[", 500_000)} {
		refuse(n.event("?type=t", data, "Content-Type: application/json"), data)
	}
	require.Greater(t, refused, 130)
	require.Empty(t, n.deliveries(), "a batch is taken whole or not at all, too")
	require.True(t, n.ready())
	n.awaitState(n.sendOne("x", "t", "after"), edge.Succeeded)
	require.Empty(t, n.panicked())
	n.clean()
	t.Logf("%d refused", refused)
}

// TestR92_R101_TheDoorForEventsIsClosed: an access token that is empty or absent
// means that nobody may, and never that everybody may (fccview/cronmaster#64); and whoever asks
// for another host gets nothing, with the right token too (golang/go#23993).
func TestR92_R101_TheDoorForEventsIsClosed(t *testing.T) {
	t.Parallel()
	n := newNode(t, "[[handler]]\nname = \"note\"\nkind = \"log\"\n"+route("note", "*"))
	for name, text := range map[string]string{"empty": "", "blank": " \n", "short": "x\n"} {
		require.NoError(t, os.WriteFile(n.dir+"/d.db.token", []byte(text), 0o600))
		_, fault, code := n.run("serve")
		require.Contains(t, []int{1, 2}, code, "%s: %s", name, fault)
		require.Contains(t, fault, "d.db.token", name)
		require.NoFileExists(t, n.socket, name)
	}
	require.NoError(t, os.Remove(n.dir+"/d.db.token"))
	n.start()
	right := n.event("?type=t", "")
	for _, header := range []string{"", "Authorization: Bearer \r\n", "Authorization: Bearer\r\n", "Authorization: \r\n", "Authorization: Basic Og==\r\n", "Authorization: Bearer null\r\n", "Authorization: bearer\r\n"} {
		a := n.raw(strings.Replace(right, "Authorization: Bearer "+n.token()+"\r\n", header, 1))
		require.Equal(t, http.StatusUnauthorized, a.status, "%q: %s", header, a.body)
	}
	for _, host := range []string{"evil.test", "localhost.evil.test", "127.0.0.1.evil.test", "10.0.0.1", "[::2]"} {
		require.Equal(t, http.StatusMisdirectedRequest, n.raw(n.event("?type=t", "", "Host: "+host)).status, host)
	}
	require.Empty(t, n.deliveries())
	require.Equal(t, http.StatusAccepted, n.raw(right).status)
	require.Len(t, n.deliveries(), 1)
}
