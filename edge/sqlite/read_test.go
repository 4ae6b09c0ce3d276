package sqlite_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/sqlite"
)

// library is a store with deliveries of two handlers in several states: per
// subject, the first one succeeded, the second failed, the others wait.
func library(t *testing.T) *sqlite.Store {
	t.Helper()
	s := open(t)
	register(t, s, edge.Registration{Name: "hook", Limit: 64}, edge.Registration{Name: "log", Limit: 64})
	var subs []edge.Submission
	for i := range 30 {
		subs = append(subs, submission(fmt.Sprint(i), fmt.Sprint("key", i%3), "hook", "log"))
	}
	_, err := s.Accept(t.Context(), subs)
	require.NoError(t, err)
	for _, o := range []edge.Outcome{edge.OutcomeSucceeded, edge.OutcomeFailed} {
		cs, err := s.Claim(t.Context(), 64)
		require.NoError(t, err)
		require.Len(t, cs, 6)
		for _, c := range cs {
			_, err := s.Settle(t.Context(), settlement(c, o))
			require.NoError(t, err)
		}
	}
	return s
}

// pages follows the cursor to the end.
func pages(t *testing.T, s *sqlite.Store, f edge.DeliveryFilter) []edge.Delivery {
	t.Helper()
	var all []edge.Delivery
	for {
		page, err := s.Deliveries(t.Context(), f)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page), f.Limit)
		all = append(all, page...)
		if len(page) < f.Limit {
			return all
		}
		f.Before = page[len(page)-1].ID
	}
}

func TestDeliveriesFilters(t *testing.T) {
	t.Parallel()
	s := library(t)
	all := pages(t, s, edge.DeliveryFilter{Limit: 1000})
	require.Len(t, all, 60)
	for name, c := range map[string]struct {
		filter edge.DeliveryFilter
		match  func(edge.Delivery) bool
		n      int
	}{
		"state":   {edge.DeliveryFilter{State: edge.Failed}, func(d edge.Delivery) bool { return d.State == edge.Failed }, 6},
		"blocked": {edge.DeliveryFilter{State: edge.Blocked}, func(d edge.Delivery) bool { return d.State == edge.Blocked }, 0},
		"handler": {edge.DeliveryFilter{Handler: "log"}, func(d edge.Delivery) bool { return d.Target.Handler == "log" }, 30},
		"target": {edge.DeliveryFilter{Target: &edge.Target{Handler: "hook", Key: "key1"}},
			func(d edge.Delivery) bool { return d.Target == edge.Target{Handler: "hook", Key: "key1"} }, 10},
		"code":  {edge.DeliveryFilter{Code: "test"}, func(d edge.Delivery) bool { return d.Code == "test" }, 12},
		"event": {edge.DeliveryFilter{Event: 7}, func(d edge.Delivery) bool { return d.Event == 7 }, 2},
		"several": {edge.DeliveryFilter{State: edge.Pending, Handler: "hook", Code: "", Event: 7},
			func(d edge.Delivery) bool {
				return d.State == edge.Pending && d.Target.Handler == "hook" && d.Event == 7
			}, 1},
		"before": {edge.DeliveryFilter{Before: 10}, func(d edge.Delivery) bool { return d.ID < 10 }, 9},
		"hostile text": {edge.DeliveryFilter{Handler: "log' OR '1'='1", Code: `"; DROP TABLE deliveries; --`},
			func(edge.Delivery) bool { return false }, 0},
	} {
		want := []edge.Delivery{}
		for _, d := range all {
			if c.match(d) {
				want = append(want, d)
			}
		}
		require.Len(t, want, c.n, name)
		c.filter.Limit = 1000
		require.Equal(t, want, append([]edge.Delivery{}, pages(t, s, c.filter)...), name)
		c.filter.Limit = 4
		require.Equal(t, want, append([]edge.Delivery{}, pages(t, s, c.filter)...), "%s, page by page", name)
	}
}

// TestPagesLoseAndRepeatNothing reads page by page while deliveries come and
// others end.
func TestPagesLoseAndRepeatNothing(t *testing.T) {
	t.Parallel()
	s := library(t)
	was := pages(t, s, edge.DeliveryFilter{Limit: 1000})
	require.True(t, slices.IsSortedFunc(was, func(a, b edge.Delivery) int { return int(b.ID - a.ID) }), "newest first")
	for limit := 1; limit <= 61; limit += 12 {
		f := edge.DeliveryFilter{Limit: limit}
		var ids []edge.DeliveryID
		for n := 0; ; n++ {
			page, err := s.Deliveries(t.Context(), f)
			require.NoError(t, err)
			for _, d := range page {
				ids = append(ids, d.ID)
			}
			if len(page) < limit {
				break
			}
			f.Before = page[len(page)-1].ID
			_, err = s.Cancel(t.Context(), f.Before)
			require.NoError(t, err)
			_, err = s.Accept(t.Context(), []edge.Submission{submission(fmt.Sprint("during", limit, "-", n), "new", "hook")})
			require.NoError(t, err)
		}
		ids = ids[len(ids)-len(was):] // those accepted before this round's first page come first
		for i, d := range was {
			require.Equal(t, d.ID, ids[i])
		}
	}
}

func TestPageLimits(t *testing.T) {
	t.Parallel()
	s := open(t)
	register(t, s, edge.Registration{Name: "hook"})
	var subs []edge.Submission
	for i := range 1000 {
		subs = append(subs, submission(fmt.Sprint(i), fmt.Sprint(i), "hook"))
	}
	for range 1 {
		_, err := s.Accept(t.Context(), subs)
		require.NoError(t, err)
	}
	acceptOne(t, s, "one more", "one more")
	for limit, want := range map[int]int{0: 50, 1: 1, 2: 2, 999: 999, 1000: 1000} {
		ds, err := s.Deliveries(t.Context(), edge.DeliveryFilter{Limit: limit})
		require.NoError(t, err)
		require.Len(t, ds, want)
		ts, err := s.Targets(t.Context(), edge.TargetFilter{Limit: limit})
		require.NoError(t, err)
		require.Len(t, ts, want)
	}
	for _, limit := range []int{-1, 1001, 1 << 40} {
		_, err := s.Deliveries(t.Context(), edge.DeliveryFilter{Limit: limit})
		require.ErrorIs(t, err, edge.ErrInvalid)
		require.ErrorContains(t, err, "must be 1 to 1000")
		_, err = s.Targets(t.Context(), edge.TargetFilter{Limit: limit})
		require.ErrorIs(t, err, edge.ErrInvalid)
	}
}

// TestTargetsPages includes the key that is empty and names that sort by bytes.
func TestTargetsPages(t *testing.T) {
	t.Parallel()
	s := open(t)
	register(t, s, edge.Registration{Name: "hook"}, edge.Registration{Name: "hook-2"}, edge.Registration{Name: "log"})
	for i, key := range []string{"", "a", "A", "é", "zz", "a:b", "!", "a\x7f"} {
		_, err := s.Accept(t.Context(), []edge.Submission{submission(fmt.Sprint(i), key, "hook", "log", "hook-2")})
		require.NoError(t, err)
	}
	all, err := s.Targets(t.Context(), edge.TargetFilter{Limit: 1000})
	require.NoError(t, err)
	require.Len(t, all, 24)
	require.True(t, slices.IsSortedFunc(all, func(a, b edge.TargetInfo) int {
		return slices.Compare([]string{a.Target.Handler, a.Target.Key}, []string{b.Target.Handler, b.Target.Key})
	}))
	for _, handler := range []string{"", "hook"} {
		for limit := 1; limit < 26; limit++ {
			f := edge.TargetFilter{Handler: handler, Limit: limit}
			var got []edge.TargetInfo
			for {
				page, err := s.Targets(t.Context(), f)
				require.NoError(t, err)
				got = append(got, page...)
				if len(page) < limit {
					break
				}
				f.After = page[len(page)-1].Target
			}
			if handler == "" {
				require.Equal(t, all, got, limit)
			} else {
				require.Equal(t, all[:8], got, limit)
			}
		}
	}
	stalled, err := s.Targets(t.Context(), edge.TargetFilter{OnlyStalled: true})
	require.NoError(t, err)
	require.Empty(t, stalled)
}

func TestNotFoundNamesTheThing(t *testing.T) {
	t.Parallel()
	s := open(t)
	ctx := t.Context()
	_, err := s.Delivery(ctx, 4711)
	require.ErrorIs(t, err, edge.ErrNotFound)
	require.EqualError(t, err, "not found: delivery 4711")
	_, err = s.Executions(ctx, 4711)
	require.EqualError(t, err, "not found: delivery 4711")
	_, err = s.Facts(ctx, 4711)
	require.EqualError(t, err, "not found: delivery 4711")
	_, err = s.Event(ctx, 4712)
	require.ErrorIs(t, err, edge.ErrNotFound)
	require.EqualError(t, err, "not found: event 4712")
}

func TestClosedStoreAnswersClosed(t *testing.T) {
	t.Parallel()
	s, err := sqlite.Open(dbPath(t), sqlite.Options{})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	ctx := t.Context()
	for name, call := range map[string]func() error{
		"Delivery":   func() error { _, err := s.Delivery(ctx, 1); return err },
		"Deliveries": func() error { _, err := s.Deliveries(ctx, edge.DeliveryFilter{}); return err },
		"Event":      func() error { _, err := s.Event(ctx, 1); return err },
		"Facts":      func() error { _, err := s.Facts(ctx, 1); return err },
		"Targets":    func() error { _, err := s.Targets(ctx, edge.TargetFilter{}); return err },
		"Handlers":   func() error { _, err := s.Handlers(ctx); return err },
		"Counters":   func() error { _, err := s.Counters(ctx); return err },
		"Check":      func() error { _, err := s.Check(ctx, true); return err },
		"DeadOwners": func() error { _, err := s.DeadOwners(ctx); return err },
		"Accept":     func() error { _, err := s.Accept(ctx, nil); return err },
		"Claim":      func() error { _, err := s.Claim(ctx, 1); return err },
		"Dispatch":   func() error { return s.Dispatch(ctx, func([]edge.Claimed) {}) },
	} {
		require.ErrorIs(t, call(), edge.ErrClosed, name)
	}
}

// endless is a query that never ends by itself.
const endless = `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n`

// TestReadsHaveADeadline cuts a query that would never end, on each connection,
// and the connections are sound after it.
func TestReadsHaveADeadline(t *testing.T) {
	t.Parallel()
	s := openAt(t, dbPath(t), sqlite.Options{ReadTimeout: 150 * time.Millisecond})
	var wg sync.WaitGroup
	errs := make(chan error, 6)
	for range cap(errs) {
		wg.Go(func() {
			var n int
			errs <- s.ReadForTest(context.Background(), &n, endless)
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	wait(t, done, "the query was not cut")
	for range cap(errs) {
		require.ErrorIs(t, <-errs, edge.ErrUnavailable)
	}
	for range 8 {
		_, err := s.Counters(t.Context())
		require.NoError(t, err)
	}
	n, err := s.VerifyAllForTest(t.Context())
	require.NoError(t, err)
	require.Equal(t, 3, n)
}

func TestReadWithADoneContext(t *testing.T) {
	t.Parallel()
	s := library(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Delivery(ctx, 1)
	require.ErrorIs(t, err, context.Canceled)
	_, err = s.Deliveries(ctx, edge.DeliveryFilter{})
	require.ErrorIs(t, err, context.Canceled)
	before := s.Commits()
	_, err = s.Accept(ctx, []edge.Submission{submission("late", "bob", "hook")})
	require.ErrorIs(t, err, context.Canceled)
	_, err = s.Delivery(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, before, s.Commits())
}

// TestReadersNeverBlockTheWriter holds every reader's snapshot open while 1,000
// accepts commit.
func TestReadersNeverBlockTheWriter(t *testing.T) {
	t.Parallel()
	s := open(t)
	register(t, s, edge.Registration{Name: "hook"})
	for range 2 {
		release, err := s.HoldReadForTest(context.Background())
		require.NoError(t, err)
		defer release()
	}
	var wg sync.WaitGroup
	errs := make(chan error, 1000)
	for g := range 10 {
		wg.Go(func() {
			for i := range 100 {
				_, err := s.Accept(context.Background(), []edge.Submission{submission(fmt.Sprint(g, "-", i), "bob", "hook")})
				errs <- err
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	wait(t, done, "the writer is blocked")
	for range cap(errs) {
		require.NoError(t, <-errs)
	}
}

// TestReadsSeeOneSnapshot: what a read has begun to see does not change under it.
func TestReadsSeeOneSnapshot(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	s := openAt(t, path, sqlite.Options{})
	register(t, s, edge.Registration{Name: "hook"})
	db := raw(t, path)
	exe(t, db, `BEGIN`)
	require.Zero(t, number(t, db, `SELECT count(*) FROM events`))
	acceptOne(t, s, "1", "bob")
	require.Zero(t, number(t, db, `SELECT count(*) FROM events`))
	exe(t, db, `COMMIT`)
	require.EqualValues(t, 1, number(t, db, `SELECT count(*) FROM events`))
}
