package api_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fencepost/edge"
	"fencepost/edge/api"

	"github.com/stretchr/testify/require"
)

// answer is what a raw request got.
type answer struct {
	status int
	header http.Header
	body   []byte
	closes bool // the connection ends with it
}

func (a answer) problem(t *testing.T) api.Problem {
	t.Helper()
	require.Equal(t, "application/problem+json", a.header.Get("Content-Type"), string(a.body))
	var p api.Problem
	require.NoError(t, json.Unmarshal(a.body, &p))
	require.Equal(t, a.status, p.Status)
	require.Equal(t, "urn:fencepost:problem:"+p.Code, p.Type)
	require.NotEmpty(t, p.Title)
	return p
}

// raw sends text as it is and reads one answer.
func raw(t testing.TB, address, text string) answer {
	t.Helper()
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, text)
	require.NoError(t, err)
	method, _, _ := strings.Cut(text, " ")
	return readAnswer(t, c, method)
}

func readAnswer(t testing.TB, c net.Conn, method string) answer {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(30*time.Second)))
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return answer{resp.StatusCode, resp.Header, body, resp.Close}
}

func post(body string, headers ...string) string {
	return postTo("/v1/events?type=t", body, headers...)
}

// postTo is a request in text, with the token and a loopback Host unless headers
// say otherwise.
func postTo(target, body string, headers ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nConnection: close\r\nContent-Length: %d\r\n", target, len(body))
	all := strings.Join(headers, "\n")
	if !strings.Contains(all, "Host: ") {
		b.WriteString("Host: localhost\r\n")
	}
	if !strings.Contains(all, "Authorization:") {
		b.WriteString("Authorization: Bearer " + goodToken + "\r\n")
	}
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	return b.String() + "\r\n" + body
}

func receipt(t *testing.T, a answer) api.Receipt {
	t.Helper()
	var rc api.Receipt
	require.NoError(t, json.Unmarshal(a.body, &rc), string(a.body))
	return rc
}

func TestIntake_AnswersAfterTheCommit(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	address := serve(t, n, api.Options{}, api.Timeouts{}, 0)
	a := raw(t, address, postTo("/v1/events?type=greeting.hello&subject=bob&id=1", "hi"))
	require.Equal(t, http.StatusAccepted, a.status, string(a.body))
	rc := receipt(t, a)
	require.Equal(t, api.Receipt{
		ID: "evt-" + n.Names().Node() + "-1", Targets: 1,
		Deliveries: []api.DeliveryRef{{ID: "dlv-" + n.Names().Node() + "-1", Target: "greet:bob", State: edge.Pending}},
	}, rc)
	require.Len(t, n.events(t), 1)

	a = raw(t, address, postTo("/v1/events?type=greeting.hello&subject=bob&id=1", "hi"))
	require.Equal(t, http.StatusOK, a.status)
	rc.Existing = true
	require.Equal(t, rc, receipt(t, a), "the same answer, marked as existing")
	require.Len(t, n.events(t), 1)
}

func TestD5_OtherContentUnderOneIdentityIsRefused(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	address := serve(t, n, api.Options{}, api.Timeouts{}, 0)
	require.Equal(t, http.StatusAccepted, raw(t, address, post("a", "Idempotency-Key: k")).status)
	again := raw(t, address, post("a", `Idempotency-Key: "k"`))
	require.Equal(t, http.StatusAccepted, again.status, "the stored status")
	require.Equal(t, "true", again.header.Get("Idempotency-Replayed"))
	a := raw(t, address, post("b", "Idempotency-Key: k"))
	require.Equal(t, http.StatusUnprocessableEntity, a.status)
	require.Equal(t, api.CodeKeyReused, a.problem(t).Code)
	a = raw(t, address, postTo("/v1/events?type=t&id=k", "b"))
	require.Equal(t, http.StatusConflict, a.status)
	require.Equal(t, api.CodeConflict, a.problem(t).Code)
	require.Len(t, n.events(t), 1)
}

func TestR39_D5_ManySubmittersOfOneKeyMakeOneEvent(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	address := serve(t, n, api.Options{}, api.Timeouts{}, 0)
	const submitters, keys = 50, 5
	for k := range keys {
		answers := make([]answer, submitters)
		var wg sync.WaitGroup
		begin := make(chan struct{})
		for i := range submitters {
			wg.Go(func() {
				<-begin
				answers[i] = raw(t, address, post("same", fmt.Sprintf("Idempotency-Key: key-%d", k)))
			})
		}
		close(begin)
		wg.Wait()
		fresh := 0
		for _, a := range answers {
			rc := receipt(t, a)
			require.Equal(t, fmt.Sprintf("evt-%s-%d", n.Names().Node(), k+1), rc.ID)
			require.Len(t, rc.Deliveries, 1)
			require.Equal(t, http.StatusAccepted, a.status)
			require.False(t, rc.Existing)
			require.Equal(t, answers[0].body, a.body, "the same body for all")
			if a.header.Get("Idempotency-Replayed") == "" {
				fresh++
			}
		}
		require.Equal(t, 1, fresh)
	}
	require.Len(t, n.events(t), keys)
}

func TestIntake_Batch(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	address := serve(t, n, api.Options{}, api.Timeouts{}, 0)
	send := func(body string) (answer, []api.BatchItem) {
		a := raw(t, address, postTo("/v1/events", body, "Content-Type: "+batch))
		var items []api.BatchItem
		if a.status < 300 {
			require.NoError(t, json.Unmarshal(a.body, &items), string(a.body))
		}
		return a, items
	}
	one, other := envelope(`,"data":1`), envelope(`,"data":2`)
	two := strings.Replace(one, `"id":"1"`, `"id":"2"`, 1)

	a, items := send("[]")
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, "[]\n", string(a.body))
	require.Empty(t, items)

	a, items = send("[" + one + "]")
	require.Equal(t, http.StatusAccepted, a.status)
	require.Equal(t, http.StatusAccepted, items[0].Status)

	a, items = send("[" + one + "," + two + "]")
	require.Equal(t, http.StatusAccepted, a.status, "one of them is new")
	require.Equal(t, http.StatusOK, items[0].Status)
	require.True(t, items[0].Existing)
	require.Equal(t, http.StatusAccepted, items[1].Status)

	a, items = send("[" + one + "," + two + "]")
	require.Equal(t, http.StatusOK, a.status, "none is new")
	require.Len(t, items, 2)

	three := strings.Replace(one, `"id":"1"`, `"id":"3"`, 1)
	a, items = send("[" + other + "," + three + "]")
	require.Equal(t, http.StatusMultiStatus, a.status)
	require.Equal(t, http.StatusConflict, items[0].Status)
	require.Equal(t, api.CodeConflict, items[0].Problem.Code)
	require.Nil(t, items[0].Receipt)
	require.Equal(t, http.StatusAccepted, items[1].Status, "its neighbour is stored")
	require.Len(t, n.events(t), 3)

	a, _ = send("[" + strings.Replace(one, `"id":"1"`, `"id":"4"`, 1) + `,{"id":""}]`)
	require.Equal(t, http.StatusBadRequest, a.status)
	require.Equal(t, "/1/specversion", a.problem(t).Errors[0].Pointer)
	require.Len(t, n.events(t), 3, "nothing of a malformed batch is stored")

	for _, own := range []string{"fencepost/" + n.model.Node(), "FencePost/" + n.model.Node()} {
		a, _ = send("[" + strings.Replace(one, `"id":"1"`, `"id":"5"`, 1) + "," + strings.Replace(one, `"source":"/s"`, `"source":"`+own+`"`, 1) + "]")
		require.Equal(t, http.StatusBadRequest, a.status, own)
		require.Equal(t, "/1/source", a.problem(t).Errors[0].Pointer)
		require.Len(t, n.events(t), 3, "nor of one with an event of the node's own source")
	}
}

func TestT1_OnlyTheCanonicalPathsLeadAnywhere(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	address := serve(t, n, api.Options{}, api.Timeouts{}, 0)
	for _, path := range []string{
		"/", "/v1", "/v1/", "/V1/events", "/v1/Events", "/v1/EVENTS", "//v1/events", "/v1//events", "/v1/events/", "/v1/./events",
		"/./v1/events", "/v1/x/../events", "/v1%2fevents", "/v1%2Fevents", "/v1/%65vents", "/v1/events;x", "/v1/events;x=1", "/v1;x/events",
		"/v1/events%00", "/v1/events%20", "/v1/events.json", "/v2/events", "/healthz/", "/Healthz", "//healthz", "/healthz;x", "/%68ealthz", "/readyz/",
		"/v1/status", "/v1/deliveries", "/v1/check", "/metrics", "/debug/pprof/", "http://localhost/v1/EVENTS", "*",
	} {
		for _, auth := range []string{"Authorization: Bearer " + goodToken, "Authorization: none"} {
			for _, method := range []string{"GET", "POST", "OPTIONS"} {
				text := strings.Replace(postTo(path, "", auth), "POST ", method+" ", 1)
				if path == "*" && method != "OPTIONS" {
					continue // not a request of HTTP
				}
				a := raw(t, address, text)
				require.Equal(t, http.StatusNotFound, a.status, "%s %s", method, path)
				require.Equal(t, api.CodeNoRoute, a.problem(t).Code)
			}
		}
	}
	require.Equal(t, http.StatusAccepted, raw(t, address, postTo("http://localhost/v1/events?type=t", "")).status, "the absolute form is the same address")
	require.Len(t, n.events(t), 1)
}

func TestT1_OtherMethodsAreNotAllowed(t *testing.T) {
	t.Parallel()
	address := serve(t, newNode(t), api.Options{}, api.Timeouts{}, 0)
	for path, allow := range map[string]string{"/v1/events": "POST", "/healthz": "GET", "/readyz": "GET"} {
		for _, method := range []string{"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "get", "X"} {
			if method == allow {
				continue
			}
			a := raw(t, address, strings.Replace(strings.Replace(postTo(path, ""), "POST ", method+" ", 1), "Content-Length: 0\r\n", "", 1))
			require.Equal(t, http.StatusMethodNotAllowed, a.status, "%s %s", method, path)
			require.Equal(t, allow, a.header.Get("Allow"))
		}
	}
}

func TestT1_EventsNeedTheToken(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	address := serve(t, n, api.Options{}, api.Timeouts{}, 0)
	for _, header := range []string{
		"Authorization: none", "Authorization: Bearer", "Authorization: Bearer ", "Authorization: Bearer wrong",
		"Authorization: Bearer " + goodToken + "x", "Authorization: Bearer " + goodToken[1:], "Authorization: Basic " + goodToken,
		"Authorization: " + goodToken, "Authorization: Bearer " + strings.ToUpper(goodToken),
		"Authorization: Bearer " + goodToken + "\r\nAuthorization: Bearer " + goodToken,
	} {
		a := raw(t, address, post("x", header))
		require.Equal(t, http.StatusUnauthorized, a.status, header)
		require.Contains(t, a.header.Get("WWW-Authenticate"), "Bearer")
		require.NotContains(t, string(a.body), goodToken)
	}
	require.Empty(t, n.events(t))
	require.Equal(t, http.StatusAccepted, raw(t, address, post("x", "Authorization: bearer  "+goodToken)).status)
	require.Equal(t, http.StatusUnauthorized, raw(t, address, postTo("/v1/events?type=t&access_token="+goodToken, "", "Authorization: none")).status)
}

func TestR92_NoTokenConfiguredMeansClosed(t *testing.T) {
	t.Parallel()
	require.Equal(t, api.TokenHash{}, api.HashToken(""), "an empty token is no token")
	n := newNode(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	run(t, l, api.NewServer(api.NewHandler(n, api.Options{}), nil, api.Timeouts{}))
	for _, header := range []string{"Authorization: none", "Authorization: Bearer ", "Authorization: Bearer " + goodToken, "Authorization: Bearer \"\""} {
		require.Equal(t, http.StatusUnauthorized, raw(t, l.Addr().String(), post("x", header)).status, header)
	}
	require.Empty(t, n.events(t))
	a := raw(t, l.Addr().String(), "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	require.Equal(t, http.StatusOK, a.status)
}

func TestT5_R101_ForeignHostNamesAreMisdirected(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	address := serve(t, n, api.Options{Hosts: []string{"Gateway.lan", "shop.example:8080"}}, api.Timeouts{}, 0)
	for _, host := range []string{
		"evil.test", "evil.test:80", "localhost.evil.test", "evil.test.", "127.0.0.1.evil.test", "10.0.0.1", "0.0.0.0", "[::ffff:10.0.0.1]",
		"2130706433", "0x7f.1", "gateway.lan.evil", "a@localhost", "",
	} {
		for _, text := range []string{
			post("x", "Host: "+host),
			post("x", "Host: "+host, "Authorization: none"),
			"GET /healthz HTTP/1.1\r\nConnection: close\r\nHost: " + host + "\r\n\r\n",
			"GET /nowhere HTTP/1.1\r\nConnection: close\r\nHost: " + host + "\r\n\r\n",
		} {
			a := raw(t, address, text)
			if a.status == http.StatusBadRequest {
				continue // net/http refuses the name itself
			}
			require.Equal(t, http.StatusMisdirectedRequest, a.status, host)
			require.Equal(t, api.CodeMisdirected, a.problem(t).Code)
		}
	}
	require.Empty(t, n.events(t))
	for _, host := range []string{"localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:8080", "127.9.9.9", "[::1]", "[::1]:80", "[::ffff:127.0.0.1]", "gateway.lan", "gateway.LAN.:9", "shop.example", address} {
		a := raw(t, address, "GET /healthz HTTP/1.1\r\nConnection: close\r\nHost: "+host+"\r\n\r\n")
		require.Equal(t, http.StatusOK, a.status, host)
	}
}

func TestT4_CrossOriginRequestsAreRefused(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	address := serve(t, n, api.Options{}, api.Timeouts{}, 0)
	for _, header := range []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site", "Origin: http://evil.test", "Origin: null", "Origin: http://localhost:1"} {
		a := raw(t, address, post("x", header))
		require.Equal(t, http.StatusForbidden, a.status, header)
		require.Equal(t, api.CodeCrossOrigin, a.problem(t).Code)
	}
	require.Empty(t, n.events(t))
	require.Equal(t, http.StatusAccepted, raw(t, address, post("x", "Origin: http://localhost")).status, "the same origin")
	require.Equal(t, http.StatusOK, raw(t, address, "GET /healthz HTTP/1.1\r\nConnection: close\r\nHost: localhost\r\nOrigin: http://evil.test\r\n\r\n").status)
}

// pour writes until most bytes are written or the other side stops.
func pour(c net.Conn, most int) (wrote int64) {
	chunk := bytes.Repeat([]byte("x"), 16<<10)
	for wrote < int64(most) {
		n, err := c.Write(chunk)
		wrote += int64(n)
		if err != nil {
			return wrote
		}
	}
	return wrote
}

// meter counts the bytes that a server reads.
type meter struct {
	net.Listener
	read atomic.Int64
}

type meteredConn struct {
	net.Conn
	m *meter
}

func (m *meter) Accept() (net.Conn, error) {
	c, err := m.Listener.Accept()
	return &meteredConn{c, m}, err
}

func (c *meteredConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.m.read.Add(int64(n))
	return n, err
}

func TestT13_OversizeIsRefusedWithoutReadingIt(t *testing.T) {
	t.Parallel()
	const limit, slack = 128 << 10, 64 << 10
	for name, head := range map[string]string{
		"announced":        "Content-Length: 1073741824\r\n",
		"slightly":         fmt.Sprintf("Content-Length: %d\r\n", limit+1),
		"chunked":          "Transfer-Encoding: chunked\r\n",
		"without a token":  "Content-Length: 1073741824\r\nAuthorization: none\r\n",
		"at a wrong place": "Content-Length: 1073741824\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			m := &meter{Listener: l}
			run(t, api.LimitListener(m, 0), api.NewServer(api.NewHandler(n, api.Options{MaxBody: limit, Token: api.HashToken(goodToken)}), nil, api.Timeouts{}))
			c, err := net.Dial("tcp", l.Addr().String())
			require.NoError(t, err)
			defer c.Close()
			path, want := "/v1/events?type=t", http.StatusRequestEntityTooLarge
			switch name {
			case "at a wrong place":
				path, want = "/nowhere", http.StatusNotFound
			case "without a token":
				want = http.StatusUnauthorized
			default:
				head += "Authorization: Bearer " + goodToken + "\r\n"
			}
			text := "POST " + path + " HTTP/1.1\r\nHost: localhost\r\n" + head + "\r\n"
			if name == "chunked" {
				text += fmt.Sprintf("%x\r\n", 1<<30)
			}
			_, err = io.WriteString(c, text)
			require.NoError(t, err)
			wrote := make(chan int64)
			go func() { wrote <- pour(c, 8<<20) }()
			a := readAnswer(t, c, http.MethodPost)
			require.Equal(t, want, a.status)
			a.problem(t)
			require.True(t, a.closes)
			_ = c.Close()
			<-wrote
			require.LessOrEqual(t, m.read.Load(), int64(limit+slack))
			require.Empty(t, n.events(t))
		})
	}
}

func TestT13_LargeHeadersAreRefused(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	address := serve(t, n, api.Options{}, api.Timeouts{}, 0)
	require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, raw(t, address, post("", "X-Long: "+strings.Repeat("x", 80<<10))).status)
	require.Empty(t, n.events(t))
	require.Equal(t, http.StatusAccepted, raw(t, address, post("", "X-Long: "+strings.Repeat("x", 32<<10))).status)
}

func TestT13_HalfOpenAndSlowRequestsAreClosed(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	address := serve(t, n, api.Options{}, api.Timeouts{Header: 200 * time.Millisecond, Body: 300 * time.Millisecond, Idle: 200 * time.Millisecond}, 0)
	for name, text := range map[string]string{
		"nothing":     "",
		"half a line": "POST /v1/ev",
		"half a head": "POST /v1/events HTTP/1.1\r\nHost: localhost\r\nX-A: ",
		"half a body": strings.Replace(post("half"), "Content-Length: 4", "Content-Length: 400", 1),
		"idle":        "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := net.Dial("tcp", address)
			require.NoError(t, err)
			defer c.Close()
			_, err = io.WriteString(c, text)
			require.NoError(t, err)
			require.NoError(t, c.SetReadDeadline(time.Now().Add(30*time.Second)))
			got, err := io.ReadAll(c) // ends when the server closes
			require.NoError(t, err)
			if name == "half a body" {
				require.Contains(t, string(got), "408 Request Timeout")
				require.Contains(t, string(got), api.CodeSlowRequest)
			}
		})
	}
}

func TestT13_ACrowdOfHalfOpenConnectionsKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	const room = 8
	address := serve(t, n, api.Options{}, api.Timeouts{}, room)
	var crowd []net.Conn
	for i := range 5 * room {
		c, err := net.Dial("tcp", address)
		require.NoError(t, err)
		defer c.Close()
		if i%2 == 0 {
			_, _ = io.WriteString(c, "POST /v1/events HTTP/1.1\r\nHost: local")
		}
		crowd = append(crowd, c)
		if i%room == 0 {
			require.Equal(t, http.StatusAccepted, raw(t, address, post("x")).status)
		}
	}
	require.Len(t, n.events(t), 5)
	require.NoError(t, crowd[0].SetReadDeadline(time.Now().Add(30*time.Second)))
	_, err := crowd[0].Read(make([]byte, 1))
	require.Error(t, err, "the oldest was closed")
	require.NotErrorIs(t, err, context.DeadlineExceeded)
}

func TestT13_ACompleteRequestIsNeverClosedForAnother(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	const room = 3
	entered, leave := make(chan struct{}), make(chan struct{})
	n.accept = func(_ context.Context, evs []edge.Event) ([]edge.Accepted, error) {
		entered <- struct{}{}
		<-leave
		return make([]edge.Accepted, len(evs)), nil
	}
	address := serve(t, n, api.Options{}, api.Timeouts{}, room)
	answers := make(chan int, room)
	for range room {
		go func() { answers <- raw(t, address, post("x")).status }()
	}
	for range room {
		<-entered
	}
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(30*time.Second)))
	_, err = c.Read(make([]byte, 1))
	require.Error(t, err, "there is no room for a newcomer")
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	close(leave)
	for range room {
		require.Equal(t, http.StatusAccepted, <-answers)
	}
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return false
		}
		defer c.Close()
		_, _ = io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
		text, _ := io.ReadAll(c)
		return bytes.Contains(text, []byte("200 OK"))
	}, 30*time.Second, 5*time.Millisecond, "the room is given back")
}

func TestIntake_ErrorsOfTheNode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err    error
		status int
		code   string
	}{
		{edge.ErrUnavailable, 503, api.CodeUnavailable},
		{edge.ErrStorage, 503, api.CodeStorageFault},
		{errors.Join(edge.ErrStorage, edge.ErrNotFound), 503, api.CodeStorageFault},
		{edge.ErrClosed, 503, api.CodeClosed},
		{context.DeadlineExceeded, 503, api.CodeTimeout},
		{edge.ErrInvalid, 400, api.CodeInvalid},
		{edge.ErrConflict, 409, api.CodeConflict},
		{errors.New("secret detail"), 500, api.CodeInternal},
	} {
		n := newNode(t)
		n.accept = func(context.Context, []edge.Event) ([]edge.Accepted, error) {
			return nil, fmt.Errorf("accept /var/secret: %w", c.err)
		}
		var log lockedBuffer
		address := serve(t, n, api.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, api.Timeouts{}, 0)
		a := raw(t, address, post("x"))
		p := a.problem(t)
		require.Equal(t, c.status, a.status, c.err)
		require.Equal(t, c.code, p.Code, c.err)
		if c.status >= 500 {
			require.NotContains(t, string(a.body), "secret", "internal text stays inside")
			require.Contains(t, log.String(), "/var/secret", "and is logged")
		}
		require.Equal(t, c.status == 503, a.header.Get("Retry-After") != "")
		require.NotContains(t, log.String(), goodToken)
	}
}

func TestIntake_APanicIsAProblem(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.accept = func(context.Context, []edge.Event) ([]edge.Accepted, error) { panic("odd") }
	var log lockedBuffer
	address := serve(t, n, api.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, api.Timeouts{}, 0)
	a := raw(t, address, post("x"))
	require.Equal(t, api.CodeInternal, a.problem(t).Code)
	require.Contains(t, log.String(), "odd")
	n.accept = func(context.Context, []edge.Event) ([]edge.Accepted, error) { return nil, nil }
	require.Equal(t, http.StatusInternalServerError, raw(t, address, post("x")).status, "no answer for an event is a fault")
}

func TestHealth_TouchesTheDatabase(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	get := func(address, path string) answer {
		return raw(t, address, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	}
	address := serve(t, n, api.Options{ProbeTimeout: 100 * time.Millisecond}, api.Timeouts{}, 0)
	require.JSONEq(t, `{"status":"ok"}`, string(get(address, "/healthz").body))
	require.Equal(t, http.StatusOK, get(address, "/readyz").status)

	n.ready = errors.New("recovery of /var/secret has not finished")
	require.Equal(t, http.StatusOK, get(address, "/healthz").status)
	a := get(address, "/readyz")
	require.Equal(t, api.CodeNotReady, a.problem(t).Code)
	require.NotContains(t, string(a.body), "secret")
	n.ready = fmt.Errorf("%w: the disk", edge.ErrStorage)
	require.Equal(t, api.CodeStorageFault, get(address, "/readyz").problem(t).Code)
	n.ready = nil

	for _, err := range []error{edge.ErrUnavailable, edge.ErrNotFound, errors.New("odd"), edge.ErrInvalid} {
		failing := newNode(t)
		failing.probe = func(context.Context) error { return err }
		address := serve(t, failing, api.Options{}, api.Timeouts{}, 0)
		for _, path := range []string{"/healthz", "/readyz"} {
			a := get(address, path)
			require.Equal(t, http.StatusServiceUnavailable, a.status, "%s: %v", path, err)
			a.problem(t)
		}
	}
}

func TestR84_AHungStoreTurnsHealthAndPilesNothingUp(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	var probes atomic.Int64
	release := make(chan struct{})
	n.probe = func(context.Context) error {
		probes.Add(1)
		<-release // deaf to its deadline, as a stuck disk is
		return nil
	}
	address := serve(t, n, api.Options{ProbeTimeout: 50 * time.Millisecond}, api.Timeouts{}, 0)
	for range 10 {
		a := raw(t, address, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
		require.Equal(t, http.StatusServiceUnavailable, a.status)
		require.Equal(t, api.CodeUnavailable, a.problem(t).Code)
	}
	require.EqualValues(t, 1, probes.Load(), "one probe at a time")
	close(release)
	require.Eventually(t, func() bool {
		return raw(t, address, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").status == http.StatusOK
	}, 30*time.Second, 5*time.Millisecond)
}

// lockedBuffer is a buffer for a logger of many goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
