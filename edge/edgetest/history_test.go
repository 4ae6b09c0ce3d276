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

func registered(t *testing.T, m *edgetest.Model, effect edge.Effect) {
	t.Helper()
	reg := edge.Registration{Name: "h", Effect: effect, Slots: 1, Limit: 8}
	require.NoError(t, m.Register(t.Context(), []edge.Registration{reg}, 8, 60_000))
}

func accepted(t *testing.T, m *edgetest.Model, n int) []edge.DeliveryID {
	t.Helper()
	as, err := m.Accept(t.Context(), edgetest.Events("e", "h", "k", n))
	require.NoError(t, err)
	var ids []edge.DeliveryID
	for _, a := range as {
		require.NoError(t, a.Err)
		ids = append(ids, a.Deliveries[0].ID)
	}
	return ids
}

func TestHistoryFindsBrokenRules(t *testing.T) {
	t.Parallel()
	at := edge.Target{Handler: "h", Key: "k"}
	change := func(id edge.DeliveryID, s edge.State, e edge.ExecutionID) edge.Change {
		return edge.Change{Delivery: id, Event: edge.EventID(id), Target: at, State: s, Execution: e}
	}
	for name, test := range map[string]struct {
		changes []edge.Change
		began   []edge.ExecutionID
		want    string
	}{
		"final changes":      {changes: []edge.Change{change(1, edge.Failed, 0), change(1, edge.Pending, 0)}, want: "was failed"},
		"fence goes back":    {changes: []edge.Change{change(1, edge.Running, 5), change(1, edge.Pending, 5), change(1, edge.Running, 4)}, want: "fence 4 came after 5"},
		"two at once":        {changes: []edge.Change{change(1, edge.Running, 1), change(2, edge.Running, 2)}, want: "while 1 was running"},
		"out of line":        {changes: []edge.Change{change(1, edge.Pending, 0), change(2, edge.Running, 1)}, want: "before it in line"},
		"fence at a handler": {changes: []edge.Change{change(1, edge.Pending, 0)}, began: []edge.ExecutionID{7, 7}, want: "fence 7 came after 7"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := edgetest.NewModel(edge.ManualClock(edgetest.StartMS))
			registered(t, m, edge.Once)
			accepted(t, m, 2)
			h := edgetest.NewHistory()
			h.Record(test.changes)
			for _, e := range test.began {
				h.Began(&edge.Claim{Delivery: 1, Target: at, Fence: e})
			}
			found, err := h.Faults(t.Context(), m)
			require.NoError(t, err)
			require.Len(t, found, 1)
			require.Contains(t, found[0], test.want)
		})
	}
}

func TestHistoryFindsAnEffectDoneTwice(t *testing.T) {
	t.Parallel()
	m := edgetest.NewModel(edge.ManualClock(edgetest.StartMS))
	registered(t, m, edge.Once)
	ids := accepted(t, m, 2)
	h := edgetest.NewHistory()
	for i, id := range ids {
		for _, s := range []edge.State{edge.Running, edge.Succeeded} {
			h.Record([]edge.Change{{Delivery: id, Event: 1, Target: edge.Target{Handler: "h", Key: "k"}, State: s, Execution: edge.ExecutionID(i + 1)}})
		}
	}
	found, err := h.Faults(t.Context(), m)
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Contains(t, found[0], "succeeded twice")
}

func TestTapWaitsForTheChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := edgetest.NewModel(nil)
		registered(t, m, edge.Once)
		tap := edgetest.NewTap(m)
		ids := accepted(t, m, 1)
		go func() {
			<-time.After(time.Hour) // the bubble's
			cs, err := m.Claim(context.Background(), 1)
			if err != nil || len(cs) != 1 {
				return
			}
			_, _ = m.Settle(context.Background(), edge.Settlement{
				Execution: cs[0].Fence, Token: cs[0].Token, Outcome: edge.OutcomeSucceeded,
			})
		}()
		began := time.Now()
		d, err := tap.AwaitState(t.Context(), ids[0], edge.Succeeded)
		require.NoError(t, err)
		require.Equal(t, edge.Succeeded, d.State)
		require.Equal(t, time.Hour, time.Since(began))
		require.NoError(t, tap.AwaitCount(t.Context(), edge.Running, 1), "what has passed counts")
		tap.History().Check(t, m)

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = tap.AwaitState(ctx, ids[0], edge.Failed)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestFaultsBeforeAndAfterTheCommit(t *testing.T) {
	t.Parallel()
	m := edgetest.NewModel(edge.ManualClock(edgetest.StartMS))
	registered(t, m, edge.Once)
	m.FailNext("Accept", 2)
	for range 2 {
		_, err := m.Accept(t.Context(), edgetest.Events("e", "h", "k", 1))
		require.ErrorIs(t, err, edge.ErrUnavailable)
	}
	m.FailAfterNext("Accept", 1)
	_, err := m.Accept(t.Context(), edgetest.Events("e", "h", "k", 1))
	require.ErrorIs(t, err, edge.ErrUnavailable)
	as, err := m.Accept(t.Context(), edgetest.Events("e", "h", "k", 1))
	require.NoError(t, err)
	require.True(t, as[0].Existing, "only the one after its commit was stored")
	m.Break()
	_, err = m.Claim(t.Context(), 1)
	require.ErrorIs(t, err, edge.ErrStorage)
	<-m.Failed()
}

func TestDelayedCommitIsSlowForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := edgetest.NewModel(nil)
		registered(t, m, edge.Once)
		m.DelayCommits("Accept", time.Minute)
		began := time.Now()
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = m.Accept(context.Background(), edgetest.Events("e", "h", "k", 1))
		}()
		synctest.Wait()
		_, err := m.Claim(t.Context(), 1)
		require.NoError(t, err)
		require.Equal(t, time.Minute, time.Since(began))
		<-done
	})
}

func TestOpeningsShareOneState(t *testing.T) {
	t.Parallel()
	clock, other := edge.ManualClock(edgetest.StartMS), edge.ManualClock(edgetest.StartMS)
	a := edgetest.NewModel(clock)
	b := a.Open(other)
	require.NotEqual(t, a.Owner(), b.Owner())
	require.Equal(t, a.Node(), b.Node())
	registered(t, a, edge.Idempotent)
	registered(t, b, edge.Idempotent)
	ids := accepted(t, a, 2)
	cs, err := a.Claim(t.Context(), 1)
	require.NoError(t, err)
	require.Len(t, cs, 1)
	none, err := b.Claim(t.Context(), 1)
	require.NoError(t, err)
	require.Empty(t, none, "the lease keeps them apart")

	// A live owner's lease is void once it has stood still for a full lease on
	// the observer's own clock.
	steps := []time.Duration{0, 30 * time.Second, 30 * time.Second}
	for i, step := range steps {
		other.Advance(step)
		voided, err := b.VoidStale(t.Context())
		require.NoError(t, err)
		require.Equal(t, i == len(steps)-1, len(voided) == 1, "step %d", i)
	}
	_, err = a.Settle(t.Context(), edge.Settlement{Execution: cs[0].Fence, Token: cs[0].Token, Outcome: edge.OutcomeSucceeded})
	require.ErrorIs(t, err, edge.ErrLeaseLost)

	cs, err = b.Claim(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, ids[0], cs[0].Delivery)
	_, err = a.VoidOwner(t.Context(), b.Owner())
	require.ErrorIs(t, err, edge.ErrConflict, "it is alive")
	b.Kill()
	dead, err := a.DeadOwners(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{b.Owner()}, dead)
	_, err = b.Claim(t.Context(), 1)
	require.ErrorIs(t, err, edge.ErrClosed)
	voided, err := a.VoidOwner(t.Context(), b.Owner())
	require.NoError(t, err)
	require.Len(t, voided, 1)
	edgetest.CheckInvariants(t, a)
}

func TestScriptPlaysItsSteps(t *testing.T) {
	t.Parallel()
	l := edgetest.NewLatch()
	s := edgetest.NewScript(append(edgetest.Times(2, edgetest.Retry("down")), edgetest.Block(l, edgetest.Succeed()))...)
	s.For("own", edgetest.Panic("boom"))
	c := &edge.Claim{Event: &edge.Event{ID: "1"}, Fence: 1}
	require.Equal(t, edge.OutcomeRetry, s.Handle(t.Context(), c).Outcome)
	require.Equal(t, edge.OutcomeRetry, s.Handle(t.Context(), c).Outcome)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, edge.OutcomeIndeterminate, s.Handle(ctx, c).Outcome)
	l.Release()
	require.Equal(t, edge.OutcomeSucceeded, s.Handle(t.Context(), c).Outcome)
	require.PanicsWithValue(t, "boom", func() { s.Handle(t.Context(), &edge.Claim{Event: &edge.Event{ID: "own"}}) })
	for range 5 {
		_, err := s.Next(t.Context())
		require.NoError(t, err)
	}
	_, err := s.Next(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, s.Calls(), 5)
}
