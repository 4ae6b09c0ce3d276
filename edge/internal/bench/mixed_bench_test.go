package bench

import (
	"context"
	"path/filepath"
	"testing"

	"fencepost/edge/config"
	"fencepost/edge/node"
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

// BenchmarkHTTP is one POST per event and one webhook per delivery, for profiles.
func BenchmarkHTTP(b *testing.B) {
	r := newReceiver()
	defer r.Close()
	run := &bench{Options: Options{N: b.N, Rounds: 1}, dir: b.TempDir()}
	h := config.Handler{Kind: config.KindWebhook, Webhook: &config.Webhook{URL: r.URL + "/"}}
	rate, err := run.httpRound(context.Background(), h, b.N, 1, func(ctx context.Context, _ *node.Node) error {
		return r.done.wait(ctx, int64(b.N))
	})
	require.NoError(b, err)
	b.ReportMetric(rate, "deliveries/s")
}
