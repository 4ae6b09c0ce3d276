package sqlite_test

import (
	"testing"

	"fencepost/edge"

	"github.com/stretchr/testify/require"
)

// TestADecisionCanBeReadBack keeps who resolved a blocked delivery and why, both
// for an unknown outcome and for a configuration fault, and explains it.
func TestADecisionCanBeReadBack(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		outcome edge.Outcome
	}{{"unknown outcome", edge.OutcomeIndeterminate}, {"configuration", edge.OutcomeBlocked}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			require.NoError(t, s.Register(t.Context(), []edge.Registration{{Name: "hook", Effect: edge.Once, Slots: 1, Limit: 8}}, 64, 60_000))
			_, err := s.Accept(t.Context(), []edge.Submission{submission("1", "bob", "hook")})
			require.NoError(t, err)
			claims, err := s.Claim(t.Context(), 1)
			require.NoError(t, err)
			require.Len(t, claims, 1)
			c := claims[0]
			_, err = s.Settle(t.Context(), edge.Settlement{Execution: c.Fence, Token: c.Token, Outcome: tc.outcome, Code: "x"})
			require.NoError(t, err)
			f, err := s.Facts(t.Context(), c.Delivery)
			require.NoError(t, err)
			require.Nil(t, f.Decision)
			_, err = s.Resolve(t.Context(), edge.Resolution{Delivery: c.Delivery, Version: f.Delivery.Version, As: edge.ResolveFailed, Reason: "seen it", By: "ann"})
			require.NoError(t, err)
			f, err = s.Facts(t.Context(), c.Delivery)
			require.NoError(t, err)
			require.Equal(t, &edge.Decision{As: edge.ResolveFailed, Reason: "seen it", By: "ann", AtMS: s.Clock().NowMS()}, f.Decision)
			require.Contains(t, edge.Explain(f, s.Clock().NowMS()), `resolved as failed by "ann": "seen it"`)
		})
	}
}
