package api_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"fencepost/edge"
	"fencepost/edge/api"

	"github.com/stretchr/testify/require"
)

// sentinels are all errors that a caller can tell apart, with what design says
// of them: HTTP status and exit code.
var sentinels = map[error][2]int{
	edge.ErrInvalid:          {400, 2},
	edge.ErrNotFound:         {404, 3},
	edge.ErrConflict:         {409, 4},
	edge.ErrLeaseLost:        {409, 4},
	edge.ErrBusy:             {409, 4},
	edge.ErrClosed:           {503, 5},
	edge.ErrUnavailable:      {503, 6},
	edge.ErrKeyReused:        {422, 4},
	edge.ErrBacklogFull:      {507, 6},
	edge.ErrLowSpace:         {507, 6},
	edge.ErrStorage:          {503, 6},
	context.DeadlineExceeded: {503, 1},
	api.ErrNoNode:            {0, 5},
}

func TestClasses_EveryErrorHasOneRow(t *testing.T) {
	t.Parallel()
	codes := map[string]bool{}
	rows := map[error]bool{}
	for _, c := range api.Classes {
		require.True(t, edge.ValidCode(c.Code), c.Code)
		require.False(t, codes[c.Code], c.Code)
		codes[c.Code] = true
		require.NotEmpty(t, c.Title)
		require.True(t, c.Exit >= api.ExitFailed && c.Exit <= api.ExitStorage)
		if c.Is == nil {
			continue
		}
		rows[c.Is] = true
		want, ok := sentinels[c.Is]
		require.True(t, ok, "%v is in the table only", c.Is)
		require.Equal(t, want, [2]int{c.Status, c.Exit}, c.Code)
		require.Equal(t, c, api.ClassOf(fmt.Errorf("wrapped: %w", c.Is)))
	}
	require.Len(t, rows, len(sentinels))
	require.Equal(t, api.CodeConflict, api.ClassOf(&edge.TransitionError{}).Code)
	require.Equal(t, api.CodeInvalid, api.ClassOf(&edge.FieldError{}).Code)
	require.Equal(t, api.CodeInternal, api.ClassOf(fmt.Errorf("anything else")).Code)
	require.Equal(t, 1, api.ClassOf(fmt.Errorf("anything else")).Exit)
}

func TestClasses_SurviveTheWire(t *testing.T) {
	t.Parallel()
	for want := range sentinels {
		class := api.ClassOf(want)
		if class.Status == 0 {
			continue // never sent
		}
		n := newNode(t)
		n.fail = fmt.Errorf("read /var/secret: %w", want)
		_, err := dial(t, serveLocal(t, n)).Delivery(t.Context(), "1")
		require.ErrorIs(t, err, want)
		var p *api.Problem
		require.ErrorAs(t, err, &p)
		require.Equal(t, class.Code, p.Code)
		require.Equal(t, class, api.ClassOf(err))
		for other := range sentinels {
			require.Equal(t, errors.Is(want, other), errors.Is(err, other), "%v is not %v", want, other)
		}
	}
}

func TestR74_StorageErrorsAreNeverNotFoundOrUnauthorized(t *testing.T) {
	t.Parallel()
	for _, storage := range []error{edge.ErrStorage, edge.ErrUnavailable} {
		for _, other := range []error{edge.ErrNotFound, edge.ErrInvalid, edge.ErrConflict, edge.ErrClosed} {
			c := api.ClassOf(fmt.Errorf("%w: %w", other, storage))
			require.Equal(t, 503, c.Status)
			require.Equal(t, api.ExitStorage, c.Exit)
		}
	}
}
