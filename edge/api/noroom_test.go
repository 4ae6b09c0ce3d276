package api_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/api"
)

// Producers that keep sending while there is no room fill no log: on a full disk
// it would take the last of it.
func TestIntake_NoRoomIsNotLoggedForEachRequest(t *testing.T) {
	t.Parallel()
	for _, refusal := range []error{edge.ErrLowSpace, edge.ErrBacklogFull} {
		n := newNode(t)
		n.accept = func(context.Context, []edge.Event) ([]edge.Accepted, error) {
			return nil, fmt.Errorf("accept: %w", refusal)
		}
		var log lockedBuffer
		address := serve(t, n, api.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, api.Timeouts{}, 0)
		for range 3 {
			a := raw(t, address, post("x"))
			require.Equal(t, http.StatusInsufficientStorage, a.status)
			require.NotEmpty(t, a.header.Get("Retry-After"))
		}
		require.Empty(t, log.String())
	}
}

// Who asked to see something is not told that nothing was stored.
func TestLocal_AReadThatWasCutIsNoStoreThatFailed(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.fail = fmt.Errorf("%w: cut", edge.ErrUnavailable)
	_, err := dial(t, serveLocal(t, n)).Delivery(t.Context(), "1")
	require.ErrorIs(t, err, edge.ErrUnavailable)
	require.ErrorContains(t, err, "it could not be read now")
	require.NotContains(t, err.Error(), "stored")
}
