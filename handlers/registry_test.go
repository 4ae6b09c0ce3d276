package handlers_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/handlers"
)

func TestKinds(t *testing.T) {
	t.Parallel()
	var names []string
	for _, k := range handlers.Kinds() {
		names = append(names, k.Name)
		require.Positive(t, k.Concurrency, k.Name)
		require.Positive(t, k.Timeout, k.Name)
	}
	require.Equal(t, []string{"command", "log", "webhook"}, names)

	w, ok := handlers.LookupKind("webhook")
	require.True(t, ok)
	require.Equal(t, edge.Idempotent, w.Effect)
	require.Equal(t, 20*time.Second, w.Timeout)
	require.Equal(t, 16, w.Concurrency)
	require.Equal(t, 5*time.Second, w.Retry.Schedule[0])
	require.Equal(t, 24*time.Hour, w.Retry.GiveUpAfter)
	w.Retry.Schedule[0] = 0
	require.Equal(t, 5*time.Second, edge.WebhookSchedule[0], "the caller's copy is its own")

	c, ok := handlers.LookupKind("command")
	require.True(t, ok)
	require.Equal(t, edge.Once, c.Effect)
	require.Equal(t, 5*time.Minute, c.Timeout)
	require.Equal(t, edge.RetryPolicy{Base: time.Second, Max: time.Minute, MaxAttempts: 5}, c.Retry)

	_, ok = handlers.LookupKind("fax")
	require.False(t, ok)
}

func TestKindSpec(t *testing.T) {
	t.Parallel()
	k, _ := handlers.LookupKind("log")
	h := edge.HandlerFunc(func(context.Context, *edge.Claim) edge.Result { return edge.Done() })
	s := k.Spec("audit", h)
	require.Equal(t, "audit", s.Name)
	require.NotNil(t, s.Handler)
	require.Equal(t, edge.Idempotent, s.Effect)
	require.Equal(t, k.Timeout, s.Timeout)
	require.Equal(t, k.Retry, s.Retry)
}
