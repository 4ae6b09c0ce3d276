package sqlite_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"fencepost/edge"
	"fencepost/edge/sqlite"

	"github.com/stretchr/testify/require"
)

// open opens a fresh store whose clock is moved by hand, and ends the test with
// the full check.
func open(t *testing.T) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(filepath.Join(t.TempDir(), "test.db"), sqlite.Options{Clock: edge.ManualClock(1_700_000_000_000)})
	require.NoError(t, err)
	t.Cleanup(func() {
		vs, err := s.Check(context.Background(), true)
		require.NoError(t, err)
		require.Empty(t, vs)
		require.NoError(t, s.Close())
	})
	return s
}

func register(t *testing.T, s *sqlite.Store, rs ...edge.Registration) {
	t.Helper()
	for i := range rs {
		rs[i].Effect = edge.Idempotent
		rs[i].Slots = max(rs[i].Slots, 1)
		rs[i].Limit = max(rs[i].Limit, 8)
	}
	require.NoError(t, s.Register(context.Background(), rs, 64, 60_000))
}

func submission(id, subject string, handlers ...string) edge.Submission {
	sub := edge.Submission{Event: edge.Event{ID: id, Source: "/test", Type: "test.made", Subject: subject, Data: []byte("data of " + id)}}
	for _, h := range handlers {
		sub.Routes = append(sub.Routes, edge.Routed{Route: "r-" + h, Handler: h, Key: subject})
	}
	return sub
}

// TestWalkingSkeleton goes the main road once: accept, claim, settle.
func TestWalkingSkeleton(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := open(t)
	register(t, s, edge.Registration{Name: "hook"})

	answers, err := s.Accept(ctx, []edge.Submission{submission("1", "bob", "hook"), submission("2", "bob", "hook")})
	require.NoError(t, err)
	require.Len(t, answers, 2)
	require.NoError(t, answers[0].Err)

	claims, err := s.Claim(ctx, 10)
	require.NoError(t, err)
	require.Len(t, claims, 1, "one at a time in a strict line")
	require.Equal(t, []byte("data of 1"), claims[0].Event.Data)
	require.True(t, claims[0].Started)

	settled, err := s.Settle(ctx, edge.Settlement{Execution: claims[0].Fence, Token: claims[0].Token, Outcome: edge.OutcomeSucceeded, Code: "ok"})
	require.NoError(t, err)
	require.Equal(t, edge.Succeeded, settled.State)

	d, err := s.Delivery(ctx, answers[0].Deliveries[0].ID)
	require.NoError(t, err)
	require.Equal(t, edge.Succeeded, d.State)
	require.Equal(t, "hook:bob", d.Target.String())

	again, err := s.Accept(ctx, []edge.Submission{submission("1", "bob", "hook")})
	require.NoError(t, err)
	require.True(t, again[0].Existing)
	require.Equal(t, edge.Succeeded, again[0].Deliveries[0].State)
}

// TestDispatchClaimsInTheSettlingCommit shows the standing dispatch: accept and
// settle wake it without a poll.
func TestDispatchClaimsInTheSettlingCommit(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	s := open(t)
	register(t, s, edge.Registration{Name: "hook"})
	got := make(chan edge.Claimed, 16)
	done := make(chan error, 1)
	go func() {
		done <- s.Dispatch(ctx, func(cs []edge.Claimed) {
			for _, c := range cs {
				got <- c
			}
		})
	}()
	for _, id := range []string{"1", "2", "3"} {
		_, err := s.Accept(ctx, []edge.Submission{submission(id, "bob", "hook")})
		require.NoError(t, err)
	}
	for _, id := range []string{"1", "2", "3"} {
		select {
		case c := <-got:
			require.Equal(t, id, c.Event.ID)
			_, err := s.Settle(ctx, edge.Settlement{Execution: c.Fence, Token: c.Token, Outcome: edge.OutcomeSucceeded, Code: "ok"})
			require.NoError(t, err)
		case <-time.After(10 * time.Second):
			t.Fatal("nothing was claimed")
		}
	}
	cancel()
	require.NoError(t, <-done)
}
