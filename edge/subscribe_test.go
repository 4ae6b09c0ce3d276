package edge_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/edgetest"
)

func quiet(t *testing.T) *bench {
	return newBench(t, only(handler("h", edge.Idempotent, edgetest.NewScript().Handle)))
}

func TestSubscriptionGivesCommittedChangesInOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := quiet(t)
		sub := b.Subscribe(0)
		defer sub.Close()
		b.start()
		id := b.enqueue("1", "k")
		var states []edge.State
		var last uint64
		for len(states) == 0 || !states[len(states)-1].Final() {
			c, err := sub.Next(t.Context())
			require.NoError(t, err)
			require.Equal(t, id, c.Delivery)
			require.Greater(t, c.Seq, last)
			last = c.Seq
			states = append(states, c.State)
		}
		require.Equal(t, edge.Succeeded, states[len(states)-1])
		b.finish()
		_, err := sub.Next(t.Context())
		require.ErrorIs(t, err, edge.ErrClosed)
	})
}

func TestSubscriptionResumesAfterASequence(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := quiet(t)
		for i := range 5 {
			b.enqueue(fmt.Sprint(i), "k")
		}
		all := b.tap.Changes()
		sub := b.Subscribe(all[2].Seq)
		defer sub.Close()
		for _, want := range all[3:] {
			c, err := sub.Next(t.Context())
			require.NoError(t, err)
			require.Equal(t, want, c)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := sub.Next(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)

		ahead := b.Subscribe(all[4].Seq + 7)
		defer ahead.Close()
		_, err = ahead.Next(t.Context())
		require.ErrorIs(t, err, edge.ErrGap, "a sequence of another opening of the store")
		id := b.enqueue("5", "k")
		c, err := ahead.Next(t.Context())
		require.NoError(t, err)
		require.Equal(t, id, c.Delivery)
		b.finish()
	})
}

func TestASlowSubscriberGetsAGapAndStopsNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := quiet(t)
		sub := b.Subscribe(0)
		defer sub.Close()
		early := b.enqueue("first", "k")
		evs := make([]edge.Event, 1000)
		for round := range 2 {
			for i := range evs {
				evs[i] = edgetest.NewEvent(fmt.Sprintf("%d-%d", round, i), "k")
			}
			_, err := b.EnqueueBatch(t.Context(), evs)
			require.NoError(t, err)
		}
		_, err := sub.Next(t.Context())
		require.ErrorIs(t, err, edge.ErrGap)
		id := b.enqueue("last", "k")
		c, err := sub.Next(t.Context())
		require.NoError(t, err)
		require.Equal(t, id, c.Delivery, "after the gap it goes on with what is committed from then on")
		old := b.Subscribe(1)
		defer old.Close()
		_, err = old.Next(t.Context())
		require.ErrorIs(t, err, edge.ErrGap, "delivery %d is no longer kept", early)
		sub.Close()
		_, err = sub.Next(t.Context())
		require.ErrorIs(t, err, edge.ErrClosed)
		b.finish()
	})
}
