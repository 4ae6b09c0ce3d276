package edgetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
)

func rateLimitHoldsClaims(t *testing.T, r *rig) {
	h, free := started("h", edge.Idempotent), started("free", edge.Idempotent)
	h.Rate = edge.Rate{Interval: 250 * time.Millisecond, Burst: 3}
	r.register(h, free)
	r.manyTargets("h", "h", 20)
	r.manyTargets("free", "free", 5)
	require.Len(t, r.claim(100), 3+5, "a full bucket, and another handler is not held up")
	require.Empty(t, r.claim(100))
	held := r.gate("h")
	require.Equal(t, h.Rate, held.Rate)
	require.Equal(t, r.clock.NowMS()+250, held.RateReadyMS)
	require.Zero(t, r.gate("free").RateReadyMS)
	r.pass(249 * time.Millisecond)
	require.Empty(t, r.claim(100))
	r.pass(time.Millisecond)
	cs := r.claim(100)
	require.Len(t, cs, 1)
	require.Zero(t, r.delivery(cs[0].Delivery).Attempts, "what waits for the limit is not charged")
	r.pass(time.Second)
	require.Len(t, r.claim(2), 2)
	require.Len(t, r.claim(100), 1, "never more than the burst")
	f, err := r.s.Facts(r.ctx, cs[0].Delivery)
	require.NoError(t, err)
	require.Equal(t, r.clock.NowMS()+250, f.Handler.RateReadyMS)
}

func rateLimitHoldsWhatIsAccepted(t *testing.T, r *rig) {
	h := started("h", edge.Idempotent)
	h.Rate = edge.Rate{Interval: time.Hour, Burst: 3}
	r.register(h)
	ctx, stop := context.WithCancel(r.ctx)
	claims := make(chan edge.Claimed, 100)
	ended := make(chan error, 1)
	go func() {
		ended <- r.s.Dispatch(ctx, func(cs []edge.Claimed) {
			for _, c := range cs {
				claims <- c
			}
		})
	}()
	for i := range 10 { // claimable in the very commits that accept them
		r.manyTargets(fmt.Sprint("h", i), "h", 1)
	}
	var cs []edge.Claimed
	for range 3 {
		select {
		case c := <-claims:
			cs = append(cs, c)
		case <-time.After(guard):
			require.Fail(t, "nothing was dispatched")
		}
	}
	for _, c := range cs {
		r.settle(c, edge.OutcomeSucceeded, "ok")
	}
	r.manyTargets("last", "h", 1)
	stop()
	require.NoError(t, <-ended)
	require.Empty(t, claims)
	waiting, err := r.s.Deliveries(r.ctx, edge.DeliveryFilter{State: edge.Pending})
	require.NoError(t, err)
	require.Len(t, waiting, 8)
}

func rateLimitSurvivesARestart(t *testing.T, r *rig) {
	h := started("h", edge.Idempotent)
	h.Rate = edge.Rate{Interval: time.Second, Burst: 5}
	r.register(h)
	r.manyTargets("h", "h", 20)
	for _, c := range r.claim(100) {
		r.settle(c, edge.OutcomeSucceeded, "ok")
	}
	r.pass(2 * time.Second)
	r.restart(h)
	require.Len(t, r.claim(100), 2, "a restart fills no bucket")
	// Another limit takes over what the bucket held.
	h.Rate = edge.Rate{Interval: 100 * time.Millisecond, Burst: 5}
	r.register(h)
	require.Empty(t, r.claim(100))
	r.pass(100 * time.Millisecond)
	require.Len(t, r.claim(100), 1)
	// Without a limit all goes; with a wrong one nothing changes.
	h.Rate = edge.Rate{Interval: time.Second}
	require.ErrorIs(t, r.s.Register(r.ctx, []edge.Registration{h}, 100, rigLease.Milliseconds()), edge.ErrInvalid)
	require.Empty(t, r.claim(100))
	h.Rate = edge.Rate{}
	r.register(h)
	require.Len(t, r.claim(100), 12)
	require.Zero(t, r.gate("h").Rate)
}

func rateLimitAndClockStepBack(t *testing.T, r *rig) {
	h := started("h", edge.Idempotent)
	h.Rate = edge.Rate{Interval: time.Second, Burst: 2}
	r.register(h)
	r.manyTargets("h", "h", 20)
	require.Len(t, r.claim(100), 2)
	r.clock.Step(-time.Hour)
	_, err := r.s.ClockStepped(r.ctx, -time.Hour.Milliseconds(), time.Second.Milliseconds(), 0, 100)
	require.NoError(t, err)
	require.Empty(t, r.claim(100))
	r.pass(time.Second)
	require.Len(t, r.claim(100), 1, "a bucket is never emptier than empty")
}

func limitOfNoneHoldsAll(t *testing.T, r *rig) {
	h := started("h", edge.Idempotent)
	r.register(h)
	r.manyTargets("h", "h", 3)
	r.s.SetLimit("h", 0, 100)
	require.Empty(t, r.claim(100))
	r.s.SetLimit("h", 1, 100)
	require.Len(t, r.claim(100), 1)
	r.s.SetLimit("h", 0, 100)
	require.Empty(t, r.claim(100))
	r.register(h)
	require.Len(t, r.claim(100), 2, "Register sets the limit anew")
}

func episodesAreKept(t *testing.T, r *rig) {
	h, other := started("h", edge.Idempotent), started("other", edge.Idempotent)
	r.register(h, other)
	require.ErrorIs(t, r.s.SetEpisode(r.ctx, "nobody", edge.Episode{BeganMS: 1}), edge.ErrNotFound)
	e := edge.Episode{BeganMS: 5, SinceMS: 6, Failures: 7, Code: "connect_refused"}
	require.NoError(t, r.s.SetEpisode(r.ctx, "h", e))
	require.Equal(t, e, r.gate("h").Episode)
	require.Zero(t, r.gate("other").Episode)
	e.SinceMS = 9
	require.NoError(t, r.s.SetEpisode(r.ctx, "h", e))
	r.restart(h, other)
	require.Equal(t, e, r.gate("h").Episode)
	require.NoError(t, r.s.SetEpisode(r.ctx, "h", edge.Episode{}))
	require.NoError(t, r.s.SetEpisode(r.ctx, "h", edge.Episode{}))
	require.Zero(t, r.gate("h").Episode)
}
