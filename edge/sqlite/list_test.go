package sqlite_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
)

// TestListsAreBounded: a page that looked at enough ends early, with a cursor,
// and following the cursors finds everything once.
func TestListsAreBounded(t *testing.T) {
	t.Parallel()
	s := library(t)
	s.BoundListsForTest(4, 5, 9)
	for name, f := range map[string]edge.DeliveryFilter{
		"code": {Code: "test"}, "handler": {Handler: "log"}, "state": {State: edge.Succeeded}, "nothing": {Code: "none"},
		"failed of one handler": {State: edge.Failed, Handler: "log"}, "type": {Type: "none"}, "until": {UntilMS: 1},
		"one line": {State: edge.Pending, Target: &edge.Target{Handler: "hook", Key: "key1"}, Code: "none"},
	} {
		whole, err := s.Deliveries(t.Context(), f)
		require.NoError(t, err, name)
		var got []edge.Delivery
		calls, partial := 0, 0
		for {
			page, err := s.ListDeliveries(t.Context(), f)
			require.NoError(t, err, name)
			got = append(got, page.Deliveries...)
			calls++
			if page.Partial {
				partial++
			}
			if page.Next == 0 {
				break
			}
			require.True(t, f.Before == 0 || page.Next < f.Before, "%s: the cursor moves on", name)
			f.Before = page.Next
		}
		require.Equal(t, whole, append([]edge.Delivery{}, got...), name)
		if f.Event == 0 && f.State != edge.Failed && f.Target == nil {
			require.Greater(t, partial, 3, "%s: 60 rows, 9 at a time", name)
		}
	}
	page, err := s.ListDeliveries(t.Context(), edge.DeliveryFilter{SinceMS: 1 << 60})
	require.NoError(t, err)
	require.Equal(t, edge.DeliveryPage{Deliveries: []edge.Delivery{}}, page, "all is older: the walk ends with the first window")

	f := edge.EventFilter{Type: "none"}
	for calls := 1; ; calls++ {
		page, err := s.ListEvents(t.Context(), f)
		require.NoError(t, err)
		require.Empty(t, page.Events)
		if page.Next == 0 {
			require.Greater(t, calls, 2)
			break
		}
		f.Before = page.Next
	}
	all, err := s.ListEvents(t.Context(), edge.EventFilter{})
	require.NoError(t, err)
	require.True(t, slices.IsSortedFunc(all.Events, func(a, b edge.EventInfo) int { return int(b.N - a.N) }))
	require.Len(t, all.Events, 30)
}
