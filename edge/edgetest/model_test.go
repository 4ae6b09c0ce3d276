package edgetest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/edgetest"
)

func TestModelDispatchesAtTheDueTimeInsideABubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		m := edgetest.NewModel(nil)
		reg := edge.Registration{Name: "h", Effect: edge.Idempotent, Slots: 1, Limit: 4}
		require.NoError(t, m.Register(ctx, []edge.Registration{reg}, 8, 60_000))
		got := make(chan edge.Claimed, 8)
		ended := make(chan error, 1)
		go func() {
			ended <- m.Dispatch(ctx, func(cs []edge.Claimed) {
				for _, c := range cs {
					got <- c
				}
			})
		}()
		_, err := m.Accept(ctx, []edge.Submission{{
			Event:  edge.Event{ID: "1", Source: "s", Type: "t"},
			Routes: []edge.Routed{{Route: "r", Handler: "h", Key: "k"}},
		}})
		require.NoError(t, err)
		c := <-got
		began := time.Now()
		_, err = m.Settle(ctx, edge.Settlement{
			Execution: c.Fence, Token: c.Token, Outcome: edge.OutcomeRetry, DelayMS: 3_600_000,
		})
		require.NoError(t, err)
		c = <-got
		require.Equal(t, time.Hour, time.Since(began))
		require.Equal(t, 2, c.Attempt)
		require.True(t, c.Retry)
		edgetest.CheckInvariants(t, m)
		cancel()
		require.NoError(t, <-ended)
	})
}

func TestModelConforms(t *testing.T) {
	t.Parallel()
	edgetest.Conformance(t, edgetest.ModelBench())
}

func TestModelMovesAsTheTableSays(t *testing.T) {
	t.Parallel()
	edgetest.Exhaustive(t, edgetest.ModelBench())
}
