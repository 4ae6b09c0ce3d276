package sqlite_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/edgetest"
	"fencepost/edge/sqlite"
)

// bounded opens a store that holds at most n deliveries of submission's size that
// are not final.
func bounded(t *testing.T, n int64, drops ...string) (*sqlite.Store, string) {
	t.Helper()
	path := dbPath(t)
	sub := submission("1000", "bob", "hook")
	share := edge.ShareBytes(&sub.Event, 1)
	s, err := sqlite.Open(path, sqlite.Options{
		Clock: edge.ManualClock(1_700_000_000_000), Limits: sqlite.Limits{MaxBacklogBytes: n*share + 100, DropOldest: drops},
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		edgetest.CheckInvariants(t, s)
		require.NoError(t, s.Close())
	})
	register(t, s, edge.Registration{Name: "hook"}, edge.Registration{Name: "pay"})
	return s, path
}

// take accepts one event of a fixed size.
func take(t *testing.T, s *sqlite.Store, n int, key, handler string) edge.Accepted {
	t.Helper()
	as, err := s.Accept(t.Context(), []edge.Submission{submission(fmt.Sprint(1000+n), key, handler)})
	require.NoError(t, err)
	return as[0]
}

func TestBacklogBound_Refuses(t *testing.T) {
	t.Parallel()
	s, _ := bounded(t, 3)
	for i := range 3 {
		require.NoError(t, take(t, s, i, "bob", "hook").Err)
	}
	full := take(t, s, 3, "bob", "hook")
	require.ErrorIs(t, full.Err, edge.ErrBacklogFull)
	require.ErrorIs(t, full.Err, edge.ErrUnavailable, "it may be sent again")
	require.Zero(t, full.Event)
	require.True(t, take(t, s, 1, "bob", "hook").Existing, "what is there is known at the bound too")
	_, err := s.Accept(t.Context(), []edge.Submission{submission("nobody's", "bob")})
	require.NoError(t, err, "what nobody is owed does not wait")

	// A follow-up is exempt: its parent has happened.
	c := claimOne(t, s)
	st := settlement(c, edge.OutcomeSucceeded)
	st.FollowUps = []edge.Submission{submission("2000", "bob", "hook"), submission("2001", "bob", "hook")}
	settled, err := s.Settle(t.Context(), st)
	require.NoError(t, err)
	require.Len(t, settled.FollowUps, 2)
	require.ErrorIs(t, take(t, s, 4, "bob", "hook").Err, edge.ErrBacklogFull)

	for range 2 { // room again
		_, err = s.Settle(t.Context(), settlement(claimOne(t, s), edge.OutcomeSucceeded))
		require.NoError(t, err)
	}
	require.NoError(t, take(t, s, 3, "bob", "hook").Err, "the same event, sent again")
	require.EqualValues(t, 2, s.Storage().Refused)
}

// The oldest pending work of the handlers that may lose some makes room; what is
// running, blocked or of another handler stays, and each drop is a fact.
func TestBacklogBound_DropsTheOldest(t *testing.T) {
	t.Parallel()
	s, _ := bounded(t, 6, "hook")
	ctx := t.Context()
	running := take(t, s, 0, "run", "hook").Deliveries[0].ID
	require.Equal(t, running, claimOne(t, s).Delivery)
	paid := take(t, s, 1, "p", "pay").Deliveries[0].ID
	held := take(t, s, 2, "h", "hook").Deliveries[0].ID
	require.NoError(t, s.HoldForTest(ctx, held))
	var line []edge.DeliveryID
	for i := 3; i < 6; i++ {
		line = append(line, take(t, s, i, "line", "hook").Deliveries[0].ID)
	}
	for i := range 2 {
		require.NoError(t, take(t, s, 10+i, "line", "hook").Err)
		d, err := s.Delivery(ctx, line[i])
		require.NoError(t, err)
		require.Equal(t, edge.Expired, d.State)
		require.Equal(t, edge.CodeDroppedBacklog, d.Code)
	}
	for id, want := range map[edge.DeliveryID]edge.State{running: edge.Running, paid: edge.Pending, held: edge.Held, line[2]: edge.Pending} {
		d, err := s.Delivery(ctx, id)
		require.NoError(t, err)
		require.Equal(t, want, d.State)
	}
	listed, err := s.Deliveries(ctx, edge.DeliveryFilter{State: edge.Expired, Code: edge.CodeDroppedBacklog})
	require.NoError(t, err)
	require.Len(t, listed, 2)
	counters, err := s.Counters(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 2, counters["backlog_dropped"])

	next, err := s.Claim(ctx, 10) // the line goes on with what is left of it
	require.NoError(t, err)
	var claimed []edge.DeliveryID
	for _, c := range next {
		claimed = append(claimed, c.Delivery)
	}
	require.ElementsMatch(t, []edge.DeliveryID{paid, line[2]}, claimed)
	for i := range 2 { // what is left of the pending ones, then there is nothing to drop
		require.NoError(t, take(t, s, 20+i, "line", "hook").Err)
	}
	for i := range 2 {
		a := take(t, s, 30+i, "other", "pay")
		require.NoError(t, a.Err)
	}
	require.ErrorIs(t, take(t, s, 40, "other", "pay").Err, edge.ErrBacklogFull, "nothing is left to drop")
	big := submission("big", "bob", "hook")
	big.Event.Data = make([]byte, 64<<10)
	as, err := s.Accept(ctx, []edge.Submission{big})
	require.NoError(t, err)
	require.ErrorIs(t, as[0].Err, edge.ErrBacklogFull, "nothing is dropped for what cannot fit")
}

// finish accepts and ends n deliveries with an outcome, one millisecond apart.
func finish(t *testing.T, s *sqlite.Store, from, n int, o edge.Outcome) {
	t.Helper()
	for i := from; i < from+n; i++ {
		require.NoError(t, take(t, s, i, fmt.Sprint(i), "hook").Err)
		c := claimOne(t, s)
		_, err := s.Settle(t.Context(), settlement(c, o))
		require.NoError(t, err)
		s.Clock().Advance(time.Millisecond)
	}
}

func stateCounts(t *testing.T, s *sqlite.Store) map[string]int64 {
	t.Helper()
	counters, err := s.Counters(t.Context())
	require.NoError(t, err)
	states := map[string]int64{}
	for name, n := range counters {
		if state, ok := strings.CutPrefix(name, "state."); ok && n > 0 {
			states[state] = n
		}
	}
	return states
}

// Age and bytes of each class are their own.
func TestPrune_EachClassHasItsOwnBounds(t *testing.T) {
	t.Parallel()
	s := open(t)
	register(t, s, edge.Registration{Name: "hook"})
	finish(t, s, 10, 10, edge.OutcomeSucceeded)
	finish(t, s, 20, 10, edge.OutcomeFailed)
	sub := submission("1000", "10", "hook")
	share := edge.ShareBytes(&sub.Event, 1)
	prune := func(p edge.PrunePolicy) edge.Swept {
		p.Limit = 100
		swept, err := s.Prune(t.Context(), p)
		require.NoError(t, err)
		return swept
	}
	require.Equal(t, edge.Swept{Done: 3}, prune(edge.PrunePolicy{SucceededBytes: 7 * share}))
	require.Equal(t, map[string]int64{"succeeded": 7, "failed": 10}, stateCounts(t, s))
	require.Zero(t, prune(edge.PrunePolicy{SucceededBytes: 7 * share}), "at the bound nothing goes")
	require.Equal(t, 4, prune(edge.PrunePolicy{FailedBytes: 6*share + 1}).Done)
	d, err := s.Deliveries(t.Context(), edge.DeliveryFilter{State: edge.Failed, Limit: 1000})
	require.NoError(t, err)
	require.Len(t, d, 6)
	require.EqualValues(t, 15, d[5].ID, "the oldest went first")
	require.Equal(t, 7, prune(edge.PrunePolicy{SucceededBeforeMS: s.Clock().NowMS(), FailedBeforeMS: 1}).Done)
	require.Equal(t, map[string]int64{"failed": 6}, stateCounts(t, s))
	require.Equal(t, 6, prune(edge.PrunePolicy{FailedBeforeMS: s.Clock().NowMS()}).Done)
	st := s.Storage()
	require.Zero(t, st.OpenBytes+st.SucceededBytes+st.FailedBytes)
}

// Data that no route matched counts with what succeeded, and goes first.
func TestPrune_DataOfNobody(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	s := openAt(t, path, sqlite.Options{Clock: edge.ManualClock(1_700_000_000_000)})
	register(t, s, edge.Registration{Name: "hook"})
	unrouted := submission("nobody's", "k")
	unrouted.Event.Data = make([]byte, 10_000)
	_, err := s.Accept(t.Context(), []edge.Submission{unrouted})
	require.NoError(t, err)
	finish(t, s, 0, 2, edge.OutcomeSucceeded)
	require.Greater(t, s.Storage().SucceededBytes, int64(10_000))
	swept, err := s.Prune(t.Context(), edge.PrunePolicy{SucceededBytes: 5000, Limit: 100})
	require.NoError(t, err)
	require.Equal(t, 1, swept.Done)
	require.Equal(t, map[string]int64{"succeeded": 2}, stateCounts(t, s))
	e, err := s.Event(t.Context(), 1)
	require.NoError(t, err, "its identity stays")
	require.Nil(t, e.Data)
	as, err := s.Accept(t.Context(), []edge.Submission{unrouted})
	require.NoError(t, err)
	require.True(t, as[0].Existing)
}

// A step removes what it may and no more, and other writers have their turn
// between two: that is what keeps them from waiting.
func TestP22_PruningGoesInSteps(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	s := openAt(t, path, sqlite.Options{Clock: edge.ManualClock(1_700_000_000_000)})
	register(t, s, edge.Registration{Name: "hook", Slots: 500, Limit: 1000})
	const rows, step = 950, 100
	for i := range rows {
		require.NoError(t, take(t, s, i, "k", "hook").Err)
	}
	for left := rows; left > 0; {
		cs, err := s.Claim(t.Context(), 64)
		require.NoError(t, err)
		for _, c := range cs {
			_, err := s.Settle(t.Context(), settlement(c, edge.OutcomeSucceeded))
			require.NoError(t, err)
		}
		left -= len(cs)
	}
	s.Clock().Advance(time.Hour)
	p := edge.PrunePolicy{SucceededBeforeMS: s.Clock().NowMS(), Limit: step}

	// All steps and as many accepts are in the queue at once.
	release := s.HoldUpForTest()
	const steps = rows/step + 1
	swept := make(chan edge.Swept, steps)
	for range steps {
		go func() {
			out, err := s.Prune(t.Context(), p)
			if err == nil {
				swept <- out
			}
		}()
	}
	require.Eventually(t, func() bool { return s.QueuedForTest() == steps }, 30*time.Second, time.Millisecond)
	release()
	total := 0
	for range steps {
		out := <-swept
		require.LessOrEqual(t, out.Done, step)
		total += out.Done
	}
	require.Equal(t, rows, total)
	require.Zero(t, number(t, raw(t, path), `SELECT count(*) FROM deliveries`))
}

// What ended while the clock stood in 1970 is not older than all else once the
// clock is right: it is kept as long as what ends then. So is what ended in a
// future that was none.
func TestPrune_DoubtedFinishTimes(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]time.Duration{"1970": -1_700_000_000 * time.Second, "2031": 5 * 365 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, clock := dbPath(t), edge.ManualClock(1_700_000_000_000)
			s := openAt(t, path, sqlite.Options{Clock: clock})
			register(t, s, edge.Registration{Name: "hook"})
			finish(t, s, 0, 1, edge.OutcomeSucceeded)
			clock.Advance(time.Hour)
			clock.Step(at)
			clock.Doubt()
			finish(t, s, 1, 2, edge.OutcomeSucceeded)
			finish(t, s, 3, 1, edge.OutcomeFailed)
			require.NoError(t, s.Close())

			clock.Step(-at)
			s = openAt(t, path, sqlite.Options{Clock: clock})
			clock.Confirm()
			prune := func() {
				t.Helper()
				p := edge.PrunePolicy{SucceededBeforeMS: clock.NowMS() - 60_000, FailedBeforeMS: clock.NowMS() - 60_000, Limit: 100}
				_, err := s.Prune(t.Context(), p)
				require.NoError(t, err)
			}
			prune()
			require.Equal(t, map[string]int64{"succeeded": 2, "failed": 1}, stateCounts(t, s))
			clock.Advance(30 * time.Second)
			prune()
			require.Equal(t, map[string]int64{"succeeded": 2, "failed": 1}, stateCounts(t, s))
			clock.Advance(time.Minute)
			prune()
			require.Empty(t, stateCounts(t, s))
		})
	}
}

// Owners and revisions are bounded; those that are needed stay.
func TestPrune_OwnersAndRevisions(t *testing.T) {
	t.Parallel()
	path, clock := dbPath(t), edge.ManualClock(1_700_000_000_000)
	s := openAt(t, path, sqlite.Options{Clock: clock})
	register(t, s, edge.Registration{Name: "hook", Revision: "needed"})
	require.NoError(t, take(t, s, 0, "k", "hook").Err)
	c := claimOne(t, s) // its owner and its revision are the oldest
	register(t, s, edge.Registration{Name: "hook", Revision: "later"})
	require.NoError(t, s.RunForTest(t.Context(), func(int) []string { return manyOpenings }))
	db := raw(t, path)
	const count = `SELECT (SELECT count(*) FROM owners) * 10000 + (SELECT count(*) FROM revisions)`
	require.EqualValues(t, 1201*10000+1202, number(t, db, count))
	for range 10 {
		_, err := s.Prune(t.Context(), edge.PrunePolicy{SucceededBeforeMS: 1, Limit: 100})
		require.NoError(t, err)
	}
	require.EqualValues(t, 1001*10000+1002, number(t, db, count), "the newest thousand, the present, and what is under way")
	require.EqualValues(t, 1, number(t, db, `SELECT count(*) FROM revisions WHERE revision = 'needed'`))
	_, err := s.Settle(t.Context(), settlement(c, edge.OutcomeSucceeded))
	require.NoError(t, err)
	xs, err := s.Executions(t.Context(), c.Delivery)
	require.NoError(t, err)
	require.Equal(t, "needed", xs[0].Revision)
}

// The space of what was pruned is given back to the file system, a few pages in
// each step.
func TestPrune_GivesSpaceBack(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	s := openAt(t, path, sqlite.Options{})
	register(t, s, edge.Registration{Name: "hook"})
	big := func(n int) edge.Submission {
		sub := submission(fmt.Sprint(n), "k")
		sub.Event.Data = make([]byte, 1<<20)
		return sub
	}
	const mebibytes = 40
	for i := range mebibytes {
		_, err := s.Accept(t.Context(), []edge.Submission{big(i)})
		require.NoError(t, err)
	}
	db := raw(t, path)
	pages := func() int64 { return number(t, db, `PRAGMA page_count`) }
	full := pages()
	require.Greater(t, full, int64(mebibytes*256))
	steps := 0
	for more := true; more; steps++ {
		was := pages()
		swept, err := s.Prune(t.Context(), edge.PrunePolicy{SucceededBytes: 1, Limit: 10})
		require.NoError(t, err)
		require.LessOrEqual(t, was-pages(), int64(64+1), "a bounded number of pages in a step, and one that told where they belong")
		more = swept.More
	}
	require.Greater(t, steps, 100)
	require.Less(t, pages(), int64(2200), "what is left is for use")
	require.Zero(t, s.Storage().SucceededBytes)
}
