package webhook_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/handlers/webhook"
)

// What an event puts into a request is sent and signed; a value that looks like a
// reference to a secret is none.
func TestContentOfAnEvent(t *testing.T) {
	t.Parallel()
	s := newServer(t, status(http.StatusNoContent))
	h := newHandler(t, webhook.Config{
		URL:     s.URL,
		Headers: map[string]string{"X-Fixed": "fixed"},
		Secrets: []string{secretFile(t, secret1)},
		Fill: func(e *edge.Event) (webhook.Content, error) {
			return webhook.Content{
				Headers: map[string]string{"X-Type": e.Type, "X-Ref": "env:HOME"}, Body: []byte("made of " + e.ID), ContentType: "text/plain",
			}, nil
		},
	})
	c := claim(body1)
	c.Event.ContentType = "application/json"
	require.Equal(t, edge.OutcomeSucceeded, h.Handle(within(t, hang), c).Outcome)
	got := s.all()[0]
	require.Equal(t, "made of 1", string(got.body))
	require.Equal(t, []string{"text/plain"}, got.header["Content-Type"])
	require.Equal(t, []string{"9"}, got.header["Content-Length"])
	require.Equal(t, "com.example.test", got.header.Get("X-Type"))
	require.Equal(t, "env:HOME", got.header.Get("X-Ref"))
	require.Equal(t, "fixed", got.header.Get("X-Fixed"))
	require.NoError(t, webhook.Verify([]webhook.Key{key(t, secret1)}, got.header, got.body, time.Now()))
}

func TestAnEmptyBodyOfAnEvent(t *testing.T) {
	t.Parallel()
	s := newServer(t, status(http.StatusNoContent))
	h := newHandler(t, webhook.Config{URL: s.URL, Fill: func(*edge.Event) (webhook.Content, error) {
		return webhook.Content{ContentType: "text/plain"}, nil
	}})
	require.Equal(t, edge.OutcomeSucceeded, h.Handle(within(t, hang), claim(body1)).Outcome)
	require.Empty(t, s.all()[0].body)
}

// Whoever makes the content, nothing that may not be sent is, and nothing begins.
func TestContentThatMayNotBeSent(t *testing.T) {
	t.Parallel()
	many := map[string]string{}
	for i := range 33 {
		many[fmt.Sprintf("X-%d", i)] = "1"
	}
	for name, content := range map[string]webhook.Content{
		"a line end":      {Headers: map[string]string{"X-A": "canary\r\nX-B: 1"}},
		"NUL":             {Headers: map[string]string{"X-A": "canary\x00"}},
		"a long value":    {Headers: map[string]string{"X-A": strings.Repeat("canary", 2000)}},
		"a name":          {Headers: map[string]string{"X-A: 1\r\nX-B": "canary"}},
		"Host":            {Headers: map[string]string{"hOST": "canary"}},
		"a length":        {Headers: map[string]string{"Content-Length": "1"}},
		"framing":         {Headers: map[string]string{"Transfer-Encoding": "chunked"}},
		"a signature":     {Headers: map[string]string{"Webhook-Signature": "canary"}},
		"an attribute":    {Headers: map[string]string{"Ce-Id": "canary"}},
		"a repetition":    {Headers: map[string]string{"Idempotency-Key": "canary"}},
		"many":            {Headers: many},
		"a type of lines": {ContentType: "text/plain\r\nX-B: 1", Body: []byte("canary")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, status(http.StatusNoContent))
			h := newHandler(t, webhook.Config{URL: s.URL, Fill: func(*edge.Event) (webhook.Content, error) { return content, nil }})
			r := h.Handle(within(t, hang), claim(body1))
			require.Equal(t, edge.OutcomeBlocked, r.Outcome)
			require.Equal(t, "template_error", r.Code)
			require.NotContains(t, r.Detail, "canary")
			require.Empty(t, s.all())
		})
	}
}

func TestContentThatCannotBeMade(t *testing.T) {
	t.Parallel()
	s := newServer(t, status(http.StatusNoContent))
	h := newHandler(t, webhook.Config{URL: s.URL, Fill: func(*edge.Event) (webhook.Content, error) {
		return webhook.Content{}, errors.New("headers.X-A: data.city is missing")
	}})
	require.Equal(t, edge.Misconfigured("template_error", "headers.X-A: data.city is missing"), h.Handle(within(t, hang), claim(body1)))
	require.Empty(t, s.all())
}
