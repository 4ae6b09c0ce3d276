package edgetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
)

// guard bounds a wait that a sound store ends at once.
const guard = 30 * time.Second

// CheckInvariants fails the test when the store reports a broken invariant.
// Every test against a store ends with it.
func CheckInvariants(t testing.TB, s edge.Reader) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), guard)
	defer cancel()
	found, err := s.Check(ctx, true)
	require.NoError(t, err, "check")
	require.Empty(t, found, "broken invariants")
}
