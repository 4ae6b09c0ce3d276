package edge_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
)

// Whatever comes when, no span of time holds more than the burst and one for each
// interval in it; and a bucket that is left alone is full again.
func TestRateHoldsInEverySpan(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 1))
		rate := edge.Rate{Interval: time.Duration(1+r.IntN(3_000_000)) * time.Microsecond, Burst: 1 + r.IntN(20)}
		rate.Interval = max(rate.Interval, edge.MinRateInterval)
		require.NoError(t, rate.Validate())
		now, full := int64(1_700_000_000_000), int64(0)
		var taken []int64
		over := 0
		for range 300 {
			now += int64(r.IntN(2000))
			for rate.ReadyMS(full) <= now && len(taken) < 400 {
				full = rate.Take(full, now)
				taken = append(taken, now)
				require.LessOrEqual(t, full, now*1000+int64(rate.Burst)*rate.Interval.Microseconds(), "never emptier than empty")
			}
		}
		for i := range taken {
			for j := i; j < len(taken); j++ {
				span := time.Duration(taken[j]-taken[i]+1) * time.Millisecond
				if j-i+1 > rate.Burst+int(span/rate.Interval)+1 {
					over++
				}
			}
		}
		require.Zero(t, over, "%+v", rate)
		now += int64(rate.Burst+1) * rate.Interval.Milliseconds() * 2
		n := 0
		for ; rate.ReadyMS(full) <= now+1; n++ {
			full = rate.Take(full, now+1)
		}
		require.GreaterOrEqual(t, n, rate.Burst, "full again")
	}
}

func TestRateOfNone(t *testing.T) {
	t.Parallel()
	var none edge.Rate
	require.False(t, none.Limited())
	require.NoError(t, none.Validate())
	require.Zero(t, none.ReadyMS(1<<60))
	require.Equal(t, edge.Rate{Interval: 100 * time.Millisecond, Burst: 3}, edge.PerSecond(10, 3))
	require.Equal(t, edge.Rate{Interval: 333333 * time.Microsecond, Burst: 1}, edge.PerSecond(3, 1))
}
