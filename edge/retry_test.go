package edge_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
)

func TestRetryDelay(t *testing.T) {
	t.Parallel()
	schedule := []time.Duration{5 * time.Second, 5 * time.Minute, 30 * time.Minute}
	for _, tc := range []struct {
		name    string
		policy  edge.RetryPolicy
		attempt int
		asked   time.Duration
		draw    float64
		want    time.Duration
	}{
		{"default first", edge.RetryPolicy{}, 1, 0, 0, time.Second},
		{"default second", edge.RetryPolicy{}, 2, 0, 0, 2 * time.Second},
		{"default sixth", edge.RetryPolicy{}, 6, 0, 0, 32 * time.Second},
		{"default capped", edge.RetryPolicy{}, 7, 0, 0, time.Minute},
		{"far beyond never overflows", edge.RetryPolicy{}, 1 << 30, 0, 0, time.Minute},
		{"attempt zero counts as the first", edge.RetryPolicy{}, 0, 0, 0, time.Second},
		{"base and cap of its own", edge.RetryPolicy{Base: 3 * time.Second, Max: 10 * time.Second}, 3, 0, 0, 10 * time.Second},
		{"asked is longer", edge.RetryPolicy{}, 1, 7 * time.Second, 0, 7 * time.Second},
		{"asked is shorter", edge.RetryPolicy{}, 5, time.Second, 0, 16 * time.Second},
		{"asked is capped", edge.RetryPolicy{}, 1, time.Hour, 0, time.Minute},
		{"schedule first", edge.RetryPolicy{Schedule: schedule}, 1, 0, 0, 5 * time.Second},
		{"schedule repeats its last", edge.RetryPolicy{Schedule: schedule}, 9, 0, 0, 30 * time.Minute},
		{"asked is at most half of what is left to it", edge.RetryPolicy{Schedule: schedule}, 1, 48 * time.Hour, 0, 12 * time.Hour},
		{"asked may be longer when giving up is later", edge.RetryPolicy{Schedule: schedule, GiveUpAfter: 72 * time.Hour}, 1, 48 * time.Hour, 0, 24 * time.Hour},
		{"the schedule itself is not cut", edge.RetryPolicy{Schedule: edge.WebhookSchedule}, 9, 0, 0, 24 * time.Hour},
		{"jitter adds up to a tenth", edge.RetryPolicy{}, 1, 0, 0.999999, 1099 * time.Millisecond},
		{"jitter half", edge.RetryPolicy{}, 1, 0, 0.5, 1050 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := tc.policy.Delay(tc.attempt, tc.asked, func() float64 { return tc.draw })
			require.InDelta(t, float64(tc.want), float64(got), float64(time.Millisecond))
		})
	}
}

func TestRetryDelayAtRandomStaysInItsShare(t *testing.T) {
	t.Parallel()
	for range 1000 {
		d := edge.RetryPolicy{}.Delay(3, 0, nil)
		require.GreaterOrEqual(t, d, 4*time.Second)
		require.Less(t, d, 4400*time.Millisecond)
	}
}

func TestRetryBudget(t *testing.T) {
	t.Parallel()
	n, d := edge.RetryPolicy{}.Budget()
	require.Equal(t, 5, n)
	require.Zero(t, d)
	n, d = edge.RetryPolicy{Schedule: edge.WebhookSchedule}.Budget()
	require.Zero(t, n)
	require.Equal(t, 24*time.Hour, d)
	n, d = edge.RetryPolicy{Schedule: edge.WebhookSchedule, MaxAttempts: 3, GiveUpAfter: time.Hour}.Budget()
	require.Equal(t, 3, n)
	require.Equal(t, time.Hour, d)
}
