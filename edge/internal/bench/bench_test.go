package bench_test

import (
	"bytes"
	"context"
	"testing"

	"fencepost/edge/internal/bench"

	"github.com/stretchr/testify/require"
)

// TestRunMeasuresEverything runs a small benchmark to its end. Figures are not
// judged here; that is what `make bench` is for.
func TestRunMeasuresEverything(t *testing.T) {
	var out bytes.Buffer
	r, err := bench.Run(context.Background(), bench.Options{Dir: t.TempDir(), N: 500, Rounds: 1}, &out)
	require.NoError(t, err, out.String())
	names := map[string]bool{}
	for _, row := range r.Rows {
		names[row.Name] = true
		require.Positive(t, row.Value, row.Name)
	}
	require.Contains(t, names, "full: over naive")
	require.Contains(t, names, "pick-up p99: the disk's p99 + 3 ms")
	require.Contains(t, names, "batches of 100 into a handler inside the process (aim: 10,000)")
	t.Log("\n" + out.String())
}
