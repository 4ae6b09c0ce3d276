package cli_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/api"
)

// What has ended is not called off, and is not counted as if it were.
func TestBulk_CancelOfWhatHasEndedIsNoCancel(t *testing.T) {
	t.Parallel()
	s := newSite(t, `
[[handler]]
name = "note"
kind = "log"
[[route]]
name = "note"
type = "note.*"
handler = "note"
`)
	p := s.start(t)
	for _, id := range s.send(t, "note.x", 3) {
		s.await(t, id, edge.Succeeded)
	}
	r := s.bulk(t, api.ExitConflict, "cancel", "--state", "succeeded", "--yes")
	require.Equal(t, 3, r.Matched)
	require.Zero(t, r.Done)
	require.Equal(t, 3, r.Skipped)
	require.Equal(t, map[string]int{"it is succeeded already: nothing to call off": 3}, r.Reasons)
	require.EqualValues(t, 3, s.counters(t)["state.succeeded"])
	require.Zero(t, p.stop(t))
}

// An empty id, as of a variable of a script that is not set, names nothing.
func TestAnEmptyIDIsAnErrorOfUse(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	for _, verb := range []string{"cancel", "delivery", "explain", "redrive", "retry-now", "event"} {
		r := s.run(t, verb, "")
		require.Equal(t, api.ExitUsage, r.code, "%s: %s", verb, r.err)
		require.Contains(t, r.err, "give the id of one", verb)
	}
}
