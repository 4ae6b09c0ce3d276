package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"fencepost/edge"
	"fencepost/edge/api"

	"github.com/stretchr/testify/require"
)

// The status, the body and the expiry of the first answer come again, failures
// included, whatever has become of the deliveries; another payload is 422.
func TestIdempotencyKey_ReplaysStatusAndBody(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	keep := func() time.Duration { return 30 * 24 * time.Hour }
	address := serve(t, n, api.Options{Keep: keep}, api.Timeouts{}, 0)
	const key = "Idempotency-Key: k"
	event := func(id, data string) string {
		return strings.Replace(envelope(`,"subject":"s","data":"`+data+`"`), `"id":"1"`, `"id":"`+id+`"`, 1)
	}
	require.Equal(t, http.StatusAccepted, raw(t, address, postTo("/v1/events", event("taken", "a"), "Content-Type: "+structured)).status)
	for name, c := range map[string]struct {
		text, other string
		status      int
	}{
		"plain":       {post("x", key+"1"), post("y", key+"1"), 202},
		"plain, id":   {postTo("/v1/events?type=t&id=7", "x", key+"2"), postTo("/v1/events?type=t&id=8", "x", key+"2"), 202},
		"binary":      {postTo("/v1/events", "x", key+"3", "ce-specversion: 1.0", "ce-id: 9", "ce-source: /s", "ce-type: t", "ce-a: 1"), postTo("/v1/events", "x", key+"3", "ce-specversion: 1.0", "ce-id: 9", "ce-source: /s", "ce-type: t", "ce-a: 2"), 202},
		"structured":  {postTo("/v1/events", event("10", "a"), key+"4", "Content-Type: "+structured), postTo("/v1/events", event("10", "b"), key+"4", "Content-Type: "+structured), 202},
		"existing":    {postTo("/v1/events", event("taken", "a"), key+"5", "Content-Type: "+structured), post("x", key+"5"), 200},
		"conflict":    {postTo("/v1/events", event("taken", "b"), key+"6", "Content-Type: "+structured), post("x", key+"6"), 409},
		"batch":       {postTo("/v1/events", "["+event("taken", "b")+","+event("11", "a")+"]", key+"7", "Content-Type: "+batch), postTo("/v1/events", "["+event("11", "a")+"]", key+"7", "Content-Type: "+batch), 207},
		"not a batch": {postTo("/v1/events", "["+event("12", "a")+"]", key+"8", "Content-Type: "+batch), postTo("/v1/events", event("12", "a"), key+"8", "Content-Type: "+structured), 202},
	} {
		first := raw(t, address, c.text)
		require.Equal(t, c.status, first.status, "%s: %s", name, first.body)
		require.Empty(t, first.header.Get(api.HeaderReplayed), name)
		n.model.Clock().Advance(time.Hour)
		again := raw(t, address, strings.Replace(c.text, "\r\n", "\r\nTraceparent: "+hop+"\r\n", 1))
		require.Equal(t, first.status, again.status, name)
		require.Equal(t, string(first.body), string(again.body), name)
		require.Equal(t, "true", again.header.Get(api.HeaderReplayed), name)
		require.Equal(t, first.header.Get(api.HeaderExpires), again.header.Get(api.HeaderExpires), name)
		if c.status != http.StatusConflict {
			until, err := http.ParseTime(first.header.Get(api.HeaderExpires))
			require.NoError(t, err, name)
			require.WithinDuration(t, time.UnixMilli(n.model.Clock().NowMS()).Add(keep()-time.Hour), until, time.Second)
		}
		events := len(n.events(t))
		other := raw(t, address, c.other)
		require.Equal(t, http.StatusUnprocessableEntity, other.status, name)
		require.Equal(t, api.CodeKeyReused, other.problem(t).Code, name)
		require.Len(t, n.events(t), events, name)
	}
	plain := raw(t, address, post("x"))
	require.Empty(t, plain.header.Get(api.HeaderExpires), "no key, nothing to expire")
}

// What was refused before anything was carried out leaves the key free.
func TestIdempotencyKey_ARefusedRequestKeepsNothing(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	address := serve(t, n, api.Options{}, api.Timeouts{}, 0)
	const key = "Idempotency-Key: k"
	late := func(at string) string {
		return postTo("/v1/events", "["+envelope(`,"expirytime":"`+at+`"`)+"]", key, "Content-Type: "+batch)
	}
	require.Equal(t, http.StatusBadRequest, raw(t, address, late("soon")).status)
	n.model.FailNext("AcceptOnce", 1)
	a := raw(t, address, late("2100-01-01T00:00:00Z"))
	require.Equal(t, http.StatusServiceUnavailable, a.status, "R74")
	require.NotEmpty(t, a.header.Get("Retry-After"))
	a = raw(t, address, late("2100-01-01T00:00:00Z"))
	require.Equal(t, http.StatusAccepted, a.status, string(a.body))
	require.Empty(t, a.header.Get(api.HeaderReplayed))
	require.Empty(t, raw(t, address, postTo("/v1/events", "[]", key, "Content-Type: "+batch)).header.Get(api.HeaderReplayed), "an empty batch does nothing")
}

// The network and the socket are two scopes of keys, and so are two tokens.
func TestIdempotencyKey_IsScoped(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	one, other := serve(t, n, api.Options{}, api.Timeouts{}, 0), serve(t, n, api.Options{Token: api.HashToken("another-token-of-32-characters-xx")}, api.Timeouts{}, 0)
	text := func(id int, token string) string {
		return postTo(fmt.Sprint("/v1/events?type=t&id=", id), "x", "Idempotency-Key: k", "Authorization: Bearer "+token)
	}
	require.Equal(t, http.StatusAccepted, raw(t, one, text(1, goodToken)).status)
	require.Equal(t, http.StatusUnprocessableEntity, raw(t, one, text(2, goodToken)).status)
	require.Equal(t, http.StatusAccepted, raw(t, other, text(2, "another-token-of-32-characters-xx")).status)
	c := dial(t, serveLocal(t, n))
	_, err := c.Send(t.Context(), edge.Event{ID: "3", Source: "/s", Type: "t"})
	require.NoError(t, err)
	require.Len(t, n.events(t), 3)
}

const hop = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// The trace of the request and the one that the event tells of are kept apart.
func TestTrace_HopAndOriginAreKeptApart(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	address := serve(t, n, api.Options{}, api.Timeouts{}, 0)
	const origin = "00-11111111111111111111111111111111-2222222222222222-00"
	raw(t, address, postTo("/v1/events", "x", "traceparent: "+hop, "tracestate: a=1", "tracestate: b=2",
		"ce-specversion: 1.0", "ce-id: 1", "ce-source: /s", "ce-type: t", "ce-traceparent: "+origin, "ce-tracestate: o=1"))
	raw(t, address, post("x", "Traceparent: "+hop, "Traceparent: "+hop))
	raw(t, address, post("x", "Tracestate: a=1"))
	raw(t, address, postTo("/v1/events", "["+strings.Replace(envelope(""), `"id":"1"`, `"id":"2"`, 1)+"]", "Content-Type: "+batch, "Traceparent: "+hop))
	es := n.events(t)
	require.Len(t, es, 4)
	require.Equal(t, edge.Trace{Parent: hop, State: "a=1,b=2"}, es[0].Trace)
	require.Equal(t, map[string]string{"traceparent": origin, "tracestate": "o=1"}, es[0].Extensions)
	require.Equal(t, edge.Trace{}, es[1].Trace, "two of them: a new trace")
	require.Equal(t, edge.Trace{}, es[2].Trace, "no traceparent, no tracestate")
	require.Equal(t, hop, es[3].Trace.Parent)
}
