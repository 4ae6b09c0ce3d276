package edge_test

import (
	"context"
	"crypto/sha256"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/edgetest"
)

// TestTheNodesOwnSourceIsForNoOneElse: whichever way an event comes, and in whatever
// case, it cannot pass for one that the node has made.
func TestTheNodesOwnSourceIsForNoOneElse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var own string
		b := newBench(t, only(handler("h", edge.Transactional, func(context.Context, *edge.Claim) edge.Result {
			ev := edgetest.NewEvent("forged", "k")
			ev.Source = own
			return edge.Done(ev)
		}))).start()
		for i, source := range []string{b.NoticeSource(), strings.ToUpper(b.NoticeSource())} {
			own = source
			ev := edgetest.NewEvent("1", "k")
			ev.Source = own
			_, err := b.Enqueue(t.Context(), ev)
			require.ErrorIs(t, err, edge.ErrInvalid, own)
			_, err = b.EnqueueOnce(t.Context(), edge.RequestKey{Key: sha256.Sum256([]byte(own))}, []edge.Event{ev})
			require.ErrorIs(t, err, edge.ErrInvalid, own)
			id := b.enqueue("makes "+own, "k")
			b.awaitNow(id, edge.Failed)
			d, err := b.model.Delivery(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, edge.CodeFollowUpRefused, d.Code)
			ds, err := b.model.Deliveries(t.Context(), edge.DeliveryFilter{})
			require.NoError(t, err)
			require.Len(t, ds, i+1)
		}
		b.finish()
	})
}
