package bench

import (
	"context"
	"path/filepath"
	"testing"

	"fencepost/edge"
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

// BenchmarkOneTarget drains one strict line, for profiles.
func BenchmarkOneTarget(b *testing.B) {
	ctx := context.Background()
	o, err := openOurs(ctx, filepath.Join(b.TempDir(), "b.db"), sqlite.DurabilityFull, nil)
	require.NoError(b, err)
	_, err = o.store.SetGate(ctx, "noop", edge.GateOff, "bench", 0)
	require.NoError(b, err)
	require.NoError(b, produce(ctx, o, int64(b.N), 1))
	b.ResetTimer()
	_, err = o.store.SetGate(ctx, "noop", edge.GateOn, "", 0)
	require.NoError(b, err)
	require.NoError(b, o.wait(ctx, int64(b.N)))
	b.StopTimer()
	require.NoError(b, o.close())
}

// BenchmarkBatches is batches of 100 into a handler inside the process, for
// profiles.
func BenchmarkBatches(b *testing.B) {
	run := &bench{Options: Options{N: b.N, Rounds: 1}, dir: b.TempDir()}
	n := max(b.N/100, 1) * 100
	rate, err := run.httpRound(context.Background(), config.Handler{Kind: config.KindLog}, n, 100, func(ctx context.Context, nd *node.Node) error {
		return awaitTotals(ctx, nd.Engine(), int64(n))
	})
	require.NoError(b, err)
	b.ReportMetric(rate, "deliveries/s")
}
