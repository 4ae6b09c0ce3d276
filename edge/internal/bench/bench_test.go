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
	require.Contains(t, names, "pick-up p50 (promise: 2 x the disk's fdatasync p50)")
	t.Log("\n" + out.String())
}
