package bench

import (
	"context"
	"path/filepath"
	"testing"

	"fencepost/edge/sqlite"

	"github.com/stretchr/testify/require"
)

// BenchmarkMixed is the mixed load on the engine alone, for profiles.
func BenchmarkMixed(b *testing.B) {
	ctx := context.Background()
	o, err := openOurs(ctx, filepath.Join(b.TempDir(), "b.db"), sqlite.DurabilityFull, nil)
	require.NoError(b, err)
	cpu := cpuTime()
	b.ResetTimer()
	r, err := round(ctx, o, int64(b.N), targets, true)
	require.NoError(b, err)
	b.ReportMetric(r.rate, "deliveries/s")
	b.ReportMetric(float64((cpuTime()-cpu).Microseconds())/float64(b.N), "cpu-us/delivery")
	require.NoError(b, o.close())
}
