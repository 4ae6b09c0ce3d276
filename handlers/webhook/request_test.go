package webhook_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/handlers/webhook"
)

func TestRequestCarriesEventAndFence(t *testing.T) {
	t.Parallel()
	s := newServer(t, status(http.StatusNoContent))
	h := newHandler(t, webhook.Config{
		URL:     s.URL + "/in?x=1",
		Headers: map[string]string{"X-Shop": "7", "Authorization": secretFile(t, "Bearer canary"), "user-agent": "mine"},
		Secrets: []string{secretFile(t, secret2), secretFile(t, secret1)},
		Now:     func() time.Time { return time.Unix(ts1, 0) },
	})
	c := claim(body1)
	c.Event.ID = `Euro € 😀`
	c.Event.Subject = `a"b%`
	c.Event.Time = "2026-01-31T08:00:00Z"
	c.Event.ContentType = "application/json; charset=utf-8"
	c.Event.Extensions = map[string]string{"partitionkey": "p 1", "traceparent": "00-x"}
	r := h.Handle(within(t, hang), c)
	require.Equal(t, edge.OutcomeSucceeded, r.Outcome)

	got := s.all()[0]
	want := map[string]string{
		"Content-Type": "application/json; charset=utf-8", "Content-Length": strconv.Itoa(len(body1)),
		"Accept-Encoding": "identity", "User-Agent": "mine", "X-Shop": "7", "Authorization": "Bearer canary",
		"Ce-Specversion": "1.0", "Ce-Id": "Euro%20%E2%82%AC%20%F0%9F%98%80", "Ce-Source": "/source", "Ce-Type": "com.example.test",
		"Ce-Subject": "a%22b%25", "Ce-Time": "2026-01-31T08:00:00Z", "Ce-Partitionkey": "p%201", "Ce-Traceparent": "00-x",
		"Fencepost-Delivery": "dlv-node-12", "Fencepost-Attempt": "2", "Fencepost-Fence": "40", "Fencepost-Target": "hook:k%20%C3%BC",
		"Webhook-Id": "dlv-node-7", "Webhook-Timestamp": strconv.Itoa(ts1),
		"Traceparent": c.Trace().Parent,
	}
	signature := got.header.Get("Webhook-Signature")
	got.header.Del("Webhook-Signature")
	flat := map[string]string{}
	for name, values := range got.header {
		flat[name] = strings.Join(values, "|")
	}
	require.Equal(t, want, flat, "these headers and no others")
	require.Equal(t, body1, string(got.body))
	require.Len(t, strings.Fields(signature), 2)
	got.header.Set("Webhook-Signature", signature)
	for _, secret := range []string{secret1, secret2} {
		require.NoError(t, webhook.Verify([]webhook.Key{key(t, secret)}, got.header, got.body, time.Unix(ts1, 0)))
	}
}

func TestRequestWithoutOptionalAttributes(t *testing.T) {
	t.Parallel()
	s := newServer(t, status(http.StatusOK))
	require.Equal(t, edge.OutcomeSucceeded, newHandler(t, webhook.Config{URL: s.URL}).Handle(within(t, hang), claim("")).Outcome)
	got := s.all()[0]
	require.Equal(t, "application/octet-stream", got.header.Get("Content-Type"))
	require.Equal(t, "0", got.header.Get("Content-Length"))
	for _, name := range []string{"Ce-Subject", "Ce-Time", "Webhook-Signature", "Idempotency-Key"} {
		require.NotContains(t, got.header, name)
	}
	require.NotEmpty(t, got.header.Get("Webhook-Id"))
	require.NotEmpty(t, got.header.Get("Webhook-Timestamp"))
}

func TestEachAttemptGoesOnInTheTrace(t *testing.T) {
	t.Parallel()
	s := newServer(t, status(http.StatusServiceUnavailable))
	h := newHandler(t, webhook.Config{URL: s.URL})
	c := claim("x")
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	c.Event.Trace = edge.Trace{Parent: "00-" + id + "-00f067aa0ba902b7-01", State: "congo=t61rcWkgMzE"}
	for range 2 {
		h.Handle(within(t, hang), c)
		c.Fence++
	}
	first, second := s.all()[0].header, s.all()[1].header
	for _, got := range []http.Header{first, second} {
		require.Equal(t, id, edge.ParseTrace(got.Values("Traceparent"), nil).ID(), "the same trace")
		require.Equal(t, []string{"congo=t61rcWkgMzE"}, got.Values("Tracestate"))
		require.NotContains(t, got.Get("Traceparent"), "00f067aa0ba902b7")
	}
	require.NotEqual(t, first.Get("Traceparent"), second.Get("Traceparent"), "a parent id for each attempt")
}

func TestEachAttemptIsSignedAnew(t *testing.T) {
	t.Parallel()
	s := newServer(t, status(http.StatusOK))
	now := int64(ts1)
	h := newHandler(t, webhook.Config{URL: s.URL, Secrets: []string{secretFile(t, secret1)}, Now: func() time.Time { now += 60; return time.Unix(now, 0) }})
	h.Handle(within(t, hang), claim("x"))
	h.Handle(within(t, hang), claim("x"))
	got := s.all()
	require.Equal(t, got[0].header.Get("Webhook-Id"), got[1].header.Get("Webhook-Id"))
	require.NotEqual(t, got[0].header.Get("Webhook-Signature"), got[1].header.Get("Webhook-Signature"))
	for _, r := range got {
		at, err := strconv.ParseInt(r.header.Get("Webhook-Timestamp"), 10, 64)
		require.NoError(t, err)
		require.NoError(t, webhook.Verify([]webhook.Key{key(t, secret1)}, r.header, r.body, time.Unix(at, 0)))
	}
}

func TestD8_BodyIsByteEqual(t *testing.T) {
	t.Parallel()
	s := newServer(t, status(http.StatusOK))
	h := newHandler(t, webhook.Config{URL: s.URL, Secrets: []string{secretFile(t, secret1)}})
	for _, body := range []string{
		"{\"b\":1,\"a\":2,\"a\":3}\n", `{"n":1e400,"m":9223372036854775808}`, "{\"s\":\"\u2028\\u2028\"}",
		"\x00\xff\r\n\r\n", " ", strings.Repeat("x", edge.MaxDataBytes),
	} {
		for range 2 {
			require.Equal(t, edge.OutcomeSucceeded, h.Handle(within(t, hang), claim(body)).Outcome)
			all := s.all()
			got := all[len(all)-1]
			require.Equal(t, []byte(body), got.body)
			require.NoError(t, webhook.Verify([]webhook.Key{key(t, secret1)}, got.header, got.body, time.Now()))
		}
	}
}

func TestMissingAndInvalidSecretsBlock(t *testing.T) {
	t.Parallel()
	s := newServer(t, status(http.StatusOK))
	absent := "file:" + t.TempDir() + "/absent"
	for name, c := range map[string]struct {
		config webhook.Config
		code   string
	}{
		"signing secret missing": {webhook.Config{Secrets: []string{absent}}, "secret_missing"},
		"header secret missing":  {webhook.Config{Headers: map[string]string{"X-A": absent}}, "secret_missing"},
		"signing secret invalid": {webhook.Config{Secrets: []string{secretFile(t, "whsec_canary")}}, "secret_invalid"},
		"verify-only secret":     {webhook.Config{Secrets: []string{secretFile(t, whpk4)}}, "secret_invalid"},
		"header splitting":       {webhook.Config{Headers: map[string]string{"X-A": secretFile(t, "canary\r\nX-B: 1")}}, "secret_invalid"},
	} {
		c.config.URL = s.URL
		r := newHandler(t, c.config).Handle(within(t, hang), claim("x"))
		require.Equal(t, edge.OutcomeBlocked, r.Outcome, name)
		require.Equal(t, c.code, r.Code, name)
		require.NotContains(t, r.Detail, "canary", name)
		require.NotEmpty(t, r.Detail, name)
	}
	require.Empty(t, s.all(), "nothing had begun")
}

func TestNewRefusesUnsafeConfigurations(t *testing.T) {
	t.Parallel()
	many := map[string]string{}
	for i := range webhook.MaxHeaders + 1 {
		many[fmt.Sprintf("X-%d", i)] = "v"
	}
	for name, c := range map[string]struct {
		config webhook.Config
		says   string
	}{
		"no url":           {webhook.Config{}, "url"},
		"scheme":           {webhook.Config{URL: "ftp://h/"}, "http"},
		"no host":          {webhook.Config{URL: "http:///x"}, "host"},
		"password":         {webhook.Config{URL: "http://u:canary@h/"}, "secret reference"},
		"not a url":        {webhook.Config{URL: "http://h/%zzcanary"}, "url"},
		"fragment":         {webhook.Config{URL: "http://h/#a"}, "fragment"},
		"long url":         {webhook.Config{URL: "http://h/" + strings.Repeat("a", webhook.MaxURLBytes)}, "limit"},
		"literal secret":   {webhook.Config{URL: "http://h/", Secrets: []string{"whsec_canary"}}, "reference"},
		"too many headers": {webhook.Config{URL: "http://h/", Headers: many}, "limit"},
		"twice":            {webhook.Config{URL: "http://h/", Headers: map[string]string{"X-A": "1", "x-a": "2"}}, "twice"},
		"success code":     {webhook.Config{URL: "http://h/", PermanentCodes: []int{204}}, "204"},
		"410":              {webhook.Config{URL: "http://h/", PermanentCodes: []int{410}}, "410"},
		"409 both":         {webhook.Config{URL: "http://h/", PermanentCodes: []int{409}, ConflictSucceeds: true}, "409"},
	} {
		_, err := webhook.New(c.config)
		require.ErrorContains(t, err, c.says, name)
		require.NotContains(t, err.Error(), "canary", name)
	}
	_, err := webhook.New(webhook.Config{URL: "ftp://h/", PermanentCodes: []int{1}, Headers: map[string]string{"Host": "x"}})
	for _, part := range []string{"http", "status", "Host"} {
		require.ErrorContains(t, err, part, "all faults at once")
	}
}

// T12: header smuggling. What New lets through is exactly what is on the wire.
func TestHeaderSmugglingIsRefused(t *testing.T) {
	t.Parallel()
	var corpus []map[string]string
	for _, name := range []string{
		"", " ", "A B", "A:", ":A", "A\r", "A\n", "A\x00", "A\tB", "Ä", "A(", "A@", "A\r\nB", "A,B", "A;", strings.Repeat("A", 129),
		"Host", "host", "Content-Length", "content-length", "Transfer-Encoding", "TE", "Trailer", "Connection", "Keep-Alive",
		"Proxy-Authorization", "Proxy-Connection", "Upgrade", "Expect", "Content-Type", "Accept-Encoding",
		"Idempotency-Key", "X-Idempotency-Key", "Webhook-Id", "webhook-signature", "WEBHOOK-X", "Ce-Id", "ce-anything",
		"Fencepost-Fence", "fencepost-x",
	} {
		corpus = append(corpus, map[string]string{name: "v"})
	}
	for _, value := range []string{"a\rb", "a\nb", "a\r\nX-Evil: 1", "a\x00b", "a\x7fb", "\x01", "a\r\n\r\nbody", "\n", strings.Repeat("v", 9<<10)} {
		corpus = append(corpus, map[string]string{"X-A": value})
	}
	require.GreaterOrEqual(t, len(corpus), 40)
	for _, headers := range corpus {
		_, err := webhook.New(webhook.Config{URL: "http://h/", Headers: headers})
		require.Error(t, err, "%q", headers)
	}
}
