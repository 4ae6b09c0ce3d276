package sqlite_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/sqlite"
)

// TestP15_OwnLeaseWithoutWorkIsGivenUpAfterAStepBack: a lease of this process that
// nobody works under is voided when its length has passed, however far the clock
// was set back meanwhile.
func TestP15_OwnLeaseWithoutWorkIsGivenUpAfterAStepBack(t *testing.T) {
	t.Parallel()
	for name, back := range map[string]time.Duration{
		"less than a lease": 30 * time.Second, "an hour": time.Hour, "a day": 24 * time.Hour, "ten years": 10 * 365 * 24 * time.Hour,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := edge.ManualClock(1_700_000_000_000)
			s := openAt(t, dbPath(t), sqlite.Options{Clock: clock})
			register(t, s, edge.Registration{Name: "hook"}, edge.Registration{Name: "pay", Effect: edge.Once})
			acceptOne(t, s, "1", "bob")
			_, err := s.Accept(t.Context(), []edge.Submission{submission("2", "eve", "pay")})
			require.NoError(t, err)
			c, kept := claimOne(t, s), claimOne(t, s)
			clock.Advance(10 * time.Second)
			clock.Step(-back)
			swept, err := s.ClockStepped(t.Context(), -back.Milliseconds(), 60_000, 0, 100)
			require.NoError(t, err)
			require.False(t, swept.More)
			r, err := s.Renew(t.Context(), []edge.Token{kept.Token})
			require.NoError(t, err)
			require.Empty(t, r.Voided, "its length has not passed")
			clock.Advance(60*time.Second + time.Millisecond) // at most a whole lease more
			r, err = s.Renew(t.Context(), []edge.Token{kept.Token})
			require.NoError(t, err)
			require.Empty(t, r.Lost)
			require.Len(t, r.Voided, 1)
			require.Equal(t, c.Delivery, r.Voided[0].Delivery)
			d, err := s.Delivery(t.Context(), c.Delivery)
			require.NoError(t, err)
			require.Equal(t, edge.Pending, d.State)
		})
	}
}

// TestP15_ADeadOwnersLeasesGoAtOnce, by who holds them and not by the clock: set
// back by a day, they would stand for a day.
func TestP15_ADeadOwnersLeasesGoAtOnce(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]time.Duration{"back": -24 * time.Hour, "forward": 24 * time.Hour, "to 1970": -1_700_000_000 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := dbPath(t)
			clock := edge.ManualClock(1_700_000_000_000)
			s, err := sqlite.Open(path, sqlite.Options{Clock: clock})
			require.NoError(t, err)
			register(t, s, edge.Registration{Name: "hook"})
			acceptOne(t, s, "1", "bob")
			c := claimOne(t, s)
			require.NoError(t, s.Close())
			clock.Step(step)
			s = openAt(t, path, sqlite.Options{Clock: clock})
			register(t, s, edge.Registration{Name: "hook"})
			dead, err := s.DeadOwners(t.Context())
			require.NoError(t, err)
			require.Len(t, dead, 1)
			vs, err := s.VoidOwner(t.Context(), dead[0])
			require.NoError(t, err)
			require.Len(t, vs, 1)
			require.Equal(t, c.Delivery, vs[0].Delivery)
			require.Equal(t, step < 0, clock.Doubted(), "a clock that reads less than what is stored is doubted")
		})
	}
}
