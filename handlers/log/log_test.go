package log_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/handlers/log"
)

func claim(data string) *edge.Claim {
	return &edge.Claim{
		DeliveryID: "dlv-n-1", EventID: "evt-n-1", Target: edge.Target{Handler: "audit", Key: "k"},
		Attempt: 2, Fence: 7,
		Event: &edge.Event{ID: "1", Source: "/s", Type: "t", Subject: "sub\u2028ject", Data: []byte(data)},
	}
}

func TestHandleWritesOneLine(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	h, err := log.New(log.Config{Logger: slog.New(slog.NewJSONHandler(&out, nil)), MaxBody: 8})
	require.NoError(t, err)
	r := h.Handle(t.Context(), claim("a\nb\x1b[0m and more"))
	require.Equal(t, edge.OutcomeSucceeded, r.Outcome)
	require.Equal(t, 1, strings.Count(out.String(), "\n"))
	var line map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &line))
	require.Equal(t, "event received", line["msg"])
	require.Equal(t, "dlv-n-1", line["delivery"])
	require.Equal(t, "audit:k", line["target"])
	require.InDelta(t, 7, line["fence"], 0)
	require.InDelta(t, 16, line["bytes"], 0)
	require.Equal(t, `sub\u2028ject`, line["subject"])
	require.Equal(t, `a\nb\x1b [truncated]`, line["data"])
}

func TestHandleWithoutBody(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	h, err := log.New(log.Config{Logger: slog.New(slog.NewTextHandler(&out, nil)), MaxBody: -1})
	require.NoError(t, err)
	require.Equal(t, edge.OutcomeSucceeded, h.Handle(t.Context(), claim("canary")).Outcome)
	require.NotContains(t, out.String(), "canary")
}

func TestNewNeedsALogger(t *testing.T) {
	t.Parallel()
	_, err := log.New(log.Config{})
	require.ErrorContains(t, err, "Logger")
}
