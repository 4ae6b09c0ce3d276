package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/sqlite"
)

// hang is how long a test waits for an event before it says that it hangs.
const hang = 20 * time.Second

// inOneBatch lets the calls reach the writer in this order while it is held up,
// so that one transaction has them all, and waits for their answers.
func inOneBatch(t *testing.T, s *sqlite.Store, calls ...func()) {
	t.Helper()
	release := s.HoldUpForTest()
	defer release()
	var wg sync.WaitGroup
	for i, call := range calls {
		wg.Go(call)
		require.Eventually(t, func() bool { return s.QueuedForTest() == i+1 }, hang, 50*time.Microsecond)
	}
	release()
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	wait(t, done, "the writer did not answer")
}

func wait[T any](t *testing.T, c <-chan T, what string) (got T) {
	t.Helper()
	select {
	case got = <-c:
	case <-time.After(hang):
		t.Fatal(what)
	}
	return got
}

// acceptOne accepts one event of hook and returns its delivery.
func acceptOne(t testing.TB, s *sqlite.Store, id, subject string) edge.DeliveryID {
	t.Helper()
	as, err := s.Accept(context.Background(), []edge.Submission{submission(id, subject, "hook")})
	require.NoError(t, err)
	require.NoError(t, as[0].Err)
	return as[0].Deliveries[0].ID
}

func claimOne(t testing.TB, s *sqlite.Store) edge.Claimed {
	t.Helper()
	cs, err := s.Claim(context.Background(), 1)
	require.NoError(t, err)
	require.Len(t, cs, 1)
	return cs[0]
}

func settlement(c edge.Claimed, o edge.Outcome) edge.Settlement {
	return edge.Settlement{Execution: c.Fence, Token: c.Token, Outcome: o, Code: "test"}
}

func stateOf(t testing.TB, s *sqlite.Store, id edge.DeliveryID) edge.State {
	t.Helper()
	d, err := s.Delivery(context.Background(), id)
	require.NoError(t, err)
	return d.State
}

// TestGroupCommit has 64 callers wait at once: one commit answers them all.
func TestGroupCommit(t *testing.T) {
	t.Parallel()
	s := open(t)
	register(t, s, edge.Registration{Name: "hook"})
	before := s.Commits()
	release := s.HoldUpForTest()
	const callers = 64
	errs := make(chan error, callers)
	for i := range callers {
		go func() {
			_, err := s.Accept(context.Background(), []edge.Submission{submission(fmt.Sprint(i), "bob", "hook")})
			errs <- err
		}()
	}
	require.Eventually(t, func() bool { return s.QueuedForTest() == callers }, hang, 100*time.Microsecond, "all wait at the same time")
	require.Equal(t, before, s.Commits())
	require.Empty(t, errs, "nobody is answered before the commit")
	release()
	for range callers {
		require.NoError(t, wait(t, errs, "not answered"))
	}
	require.Equal(t, before+1, s.Commits())
}

// TestOneCommitPerOperation is the control: with MaxBatch 1 the same work takes as
// many commits as calls.
func TestOneCommitPerOperation(t *testing.T) {
	t.Parallel()
	s := openAt(t, dbPath(t), sqlite.Options{MaxBatch: 1})
	register(t, s, edge.Registration{Name: "hook"})
	before := s.Commits()
	var calls []func()
	for i := range 8 {
		calls = append(calls, func() { acceptOne(t, s, fmt.Sprint(i), "bob") })
	}
	inOneBatch(t, s, calls...)
	require.Equal(t, before+8, s.Commits())
}

// TestSettlesComeFirst queues accept, claim and settle in the worst order: the one
// commit settles, accepts and claims the freed target again.
func TestSettlesComeFirst(t *testing.T) {
	t.Parallel()
	s := open(t)
	register(t, s, edge.Registration{Name: "hook", Limit: 1})
	acceptOne(t, s, "1", "bob")
	first := claimOne(t, s)
	before := s.Commits()
	var second edge.DeliveryID
	var claims []edge.Claimed
	inOneBatch(t, s,
		func() { second = acceptOne(t, s, "2", "bob") },
		func() { claims, _ = s.Claim(context.Background(), 1) },
		func() { _, _ = s.Settle(context.Background(), settlement(first, edge.OutcomeSucceeded)) },
	)
	require.Equal(t, before+1, s.Commits())
	require.Len(t, claims, 1)
	require.Equal(t, second, claims[0].Delivery)
	require.Equal(t, edge.Succeeded, stateOf(t, s, first.Delivery))
}

// TestClaimsComeBeforeAccepts: what is ready is claimed before a newcomer.
func TestClaimsComeBeforeAccepts(t *testing.T) {
	t.Parallel()
	s := open(t)
	register(t, s, edge.Registration{Name: "hook"})
	ready := acceptOne(t, s, "1", "bob")
	var claims []edge.Claimed
	inOneBatch(t, s,
		func() { acceptOne(t, s, "2", "alice") },
		func() { claims, _ = s.Claim(context.Background(), 1) },
	)
	require.Len(t, claims, 1)
	require.Equal(t, ready, claims[0].Delivery)
}

// TestRefusedOperationWritesNothing mixes operations whose guard refuses with
// others: these stand, and the refused ones leave the file as it was.
func TestRefusedOperationWritesNothing(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	s := openAt(t, path, sqlite.Options{})
	register(t, s, edge.Registration{Name: "hook"})
	acceptOne(t, s, "1", "bob")
	c := claimOne(t, s)
	db := raw(t, path)
	execution := func() string {
		var text string
		require.NoError(t, db.QueryRow(`SELECT format('%s %s %s %s', started_ms, ended_ms, outcome, late_outcome) FROM executions`).Scan(&text))
		return text
	}
	was, before := execution(), s.Commits()
	stale := settlement(c, edge.OutcomeSucceeded)
	stale.Token++
	var errStale, errMissing, errOther error
	inOneBatch(t, s,
		func() { _, errStale = s.Settle(context.Background(), stale) },
		func() { _, errMissing = s.Cancel(context.Background(), 4711) },
	)
	require.ErrorIs(t, errStale, edge.ErrLeaseLost)
	require.ErrorIs(t, errMissing, edge.ErrNotFound)
	require.Equal(t, before, s.Commits(), "a batch of refusals commits nothing")
	require.Equal(t, was, execution())

	var errGood error
	inOneBatch(t, s,
		func() { _, errStale = s.Settle(context.Background(), stale) },
		func() { _, errGood = s.Settle(context.Background(), settlement(c, edge.OutcomeSucceeded)) },
		func() { _, errOther = s.Settle(context.Background(), settlement(c, edge.OutcomeFailed)) },
		func() { acceptOne(t, s, "2", "bob") },
	)
	require.ErrorIs(t, errStale, edge.ErrLeaseLost)
	require.NoError(t, errGood)
	require.ErrorIs(t, errOther, edge.ErrConflict)
	require.Equal(t, before+1, s.Commits())
	require.Equal(t, edge.Succeeded, stateOf(t, s, c.Delivery))
}

// TestRefusedRegisterChangesNothing: one wrong declaration refuses them all.
func TestRefusedRegisterChangesNothing(t *testing.T) {
	t.Parallel()
	s := open(t)
	register(t, s, edge.Registration{Name: "hook"})
	id := acceptOne(t, s, "1", "bob")
	before := s.Commits()
	for _, bad := range []edge.Registration{
		{Name: "bad", Effect: edge.Idempotent, Slots: 0, Limit: 1},
		{Name: "bad", Effect: edge.Idempotent, Slots: 1, Limit: 0},
		{Name: "bad", Effect: "perhaps", Slots: 1, Limit: 1},
	} {
		for range 4 { // the order in which they are looked at must not matter
			good := []edge.Registration{bad}
			for i := range 8 {
				good = append(good, edge.Registration{Name: fmt.Sprint("new", i), Effect: edge.Once, Slots: 1, Limit: 1})
			}
			require.ErrorIs(t, s.Register(context.Background(), good, 64, 60_000), edge.ErrInvalid)
		}
	}
	require.Equal(t, before, s.Commits())
	hs, err := s.Handlers(context.Background())
	require.NoError(t, err)
	require.Len(t, hs, 1)
	require.Equal(t, id, claimOne(t, s).Delivery, "the registration before still holds")
}

// poison makes the database refuse events of one type, by a trigger that another
// connection creates.
func poison(t *testing.T, db *sql.DB) {
	t.Helper()
	exe(t, db, `CREATE TRIGGER poison BEFORE INSERT ON events WHEN new.type = 'poison'
	            BEGIN SELECT RAISE(ABORT, 'poisoned'); END`)
}

// TestStorageErrorVoidsTheBatch has one operation of a batch that cannot be
// stored: nothing of the common commit is acknowledged, and each other operation
// gets a commit of its own.
func TestStorageErrorVoidsTheBatch(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	s := openAt(t, path, sqlite.Options{})
	register(t, s, edge.Registration{Name: "hook"})
	acceptOne(t, s, "0", "bob")
	running := claimOne(t, s)
	poison(t, raw(t, path))
	var mu sync.Mutex
	var seen []edge.Change
	s.Watch(func(cs []edge.Change) { mu.Lock(); seen = append(seen, cs...); mu.Unlock() })

	before := s.Commits()
	errs := make([]error, 5)
	accept := func(i int, kind string) func() {
		return func() {
			sub := submission(fmt.Sprint("n", i), "alice", "hook")
			sub.Event.Type = kind
			_, errs[i] = s.Accept(context.Background(), []edge.Submission{sub})
		}
	}
	inOneBatch(t, s,
		accept(0, "good"),
		accept(1, "good"),
		accept(2, "poison"),
		accept(3, "good"),
		func() { _, errs[4] = s.Settle(context.Background(), settlement(running, edge.OutcomeSucceeded)) },
	)
	require.ErrorIs(t, errs[2], edge.ErrUnavailable)
	for _, i := range []int{0, 1, 3, 4} {
		require.NoError(t, errs[i])
	}
	require.Equal(t, before+4, s.Commits())
	require.Equal(t, edge.Succeeded, stateOf(t, s, running.Delivery))
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, seen, 4, "what was voided is not published")
	for i := 1; i < len(seen); i++ {
		require.Equal(t, seen[i-1].Seq+1, seen[i].Seq, "no gap")
	}
	select {
	case <-s.Failed():
		t.Fatal("one event that cannot be stored is not the end")
	default:
	}
	exe(t, raw(t, path), `DROP TRIGGER poison`)
}

// TestFailedOperationIsUndone: an operation that fails after a write takes the
// write with it, and only that.
func TestFailedOperationIsUndone(t *testing.T) {
	t.Parallel()
	s := open(t)
	register(t, s, edge.Registration{Name: "hook"})
	boom := errors.New("boom")
	var err error
	inOneBatch(t, s,
		func() { acceptOne(t, s, "1", "bob") },
		func() { err = s.SpoilForTest(context.Background(), boom) },
		func() { acceptOne(t, s, "2", "bob") },
	)
	require.ErrorIs(t, err, boom)
	require.NotEqual(t, "spoilt", readText(t, s, `SELECT value FROM settings WHERE name = 'created_ms'`))
}

// TestAcknowledgedStaysAcknowledged: when the retry of a voided batch ends in a
// terminal fault, those of it that were answered before keep their answer.
func TestAcknowledgedStaysAcknowledged(t *testing.T) {
	t.Parallel()
	for range 20 {
		s, err := sqlite.Open(dbPath(t), sqlite.Options{Clock: edge.ManualClock(1_700_000_000_000)})
		require.NoError(t, err)
		register(t, s, edge.Registration{Name: "hook"})
		var errs [3]error
		accept := func(i int) func() {
			return func() {
				_, errs[i] = s.Accept(context.Background(), []edge.Submission{submission(fmt.Sprint(i), "bob", "hook")})
			}
		}
		inOneBatch(t, s,
			accept(0),
			func() {
				errs[1] = s.RunForTest(context.Background(), func(run int) []string {
					if run == 1 {
						return []string{`INSERT INTO sequences SELECT * FROM sequences`} // voids the batch
					}
					return []string{`PRAGMA query_only=1`, `UPDATE settings SET value = 'x'`} // terminal
				})
			},
			accept(2),
		)
		require.NoError(t, errs[0], "it was committed")
		require.ErrorIs(t, errs[1], edge.ErrStorage)
		require.ErrorIs(t, errs[2], edge.ErrStorage)
		e, err := s.Event(context.Background(), 1)
		require.NoError(t, err)
		require.Equal(t, "0", e.ID)
		require.NoError(t, s.Close())
	}
}

// TestBusyIsPassing has another program hold the write lock.
func TestBusyIsPassing(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	s := openAt(t, path, sqlite.Options{})
	register(t, s, edge.Registration{Name: "hook"})
	require.NoError(t, s.OnWriterForTest(t.Context(), `PRAGMA busy_timeout=20`))
	db := raw(t, path)
	exe(t, db, `BEGIN IMMEDIATE`)
	_, err := s.Accept(t.Context(), []edge.Submission{submission("1", "bob", "hook")})
	require.ErrorIs(t, err, edge.ErrUnavailable)
	exe(t, db, `ROLLBACK`)
	acceptOne(t, s, "1", "bob")
}

// TestFullIsPassing fills the file up to a bound that is then raised: the node
// goes on without a restart.
func TestFullIsPassing(t *testing.T) {
	t.Parallel()
	s := open(t)
	register(t, s, edge.Registration{Name: "hook"})
	acceptOne(t, s, "0", "bob")
	running := claimOne(t, s)
	require.NoError(t, s.OnWriterForTest(t.Context(), `PRAGMA max_page_count=1`)) // SQLite takes the present size instead
	big := submission("1", "bob", "hook")
	big.Event.Data = make([]byte, 200_000)
	for range 3 {
		_, err := s.Accept(t.Context(), []edge.Submission{big})
		require.ErrorIs(t, err, edge.ErrLowSpace)
	}
	_, err := s.Settle(t.Context(), settlement(running, edge.OutcomeSucceeded))
	require.NoError(t, err, "what needs no room is still stored")
	require.Equal(t, edge.StorageLow, s.Storage().State)
	s.CheckSpaceForTest() // the disk itself has room
	require.Equal(t, edge.StorageHealthy, s.Storage().State)
	require.NoError(t, s.OnWriterForTest(t.Context(), `PRAGMA max_page_count=1000000`))
	as, err := s.Accept(t.Context(), []edge.Submission{big})
	require.NoError(t, err)
	require.False(t, as[0].Existing)
	select {
	case <-s.Failed():
		t.Fatal("a full disk is not the end")
	default:
	}
}

// TestFailedCommitGivesHeldSlotsBack: claims of a commit that failed are not
// counted as held.
func TestFailedCommitGivesHeldSlotsBack(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	s := openAt(t, path, sqlite.Options{})
	register(t, s, edge.Registration{Name: "hook", Limit: 8})
	acceptOne(t, s, "1", "bob")
	db := raw(t, path)
	exe(t, db, `CREATE TRIGGER noleases BEFORE INSERT ON leases BEGIN SELECT RAISE(ABORT, 'no'); END`)
	_, err := s.Claim(t.Context(), 1)
	require.ErrorIs(t, err, edge.ErrUnavailable)
	n, err := s.HeldForTest(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
	exe(t, db, `DROP TRIGGER noleases`)
	claimOne(t, s)
}

// standing waits until the writer knows of a dispatch.
func standing(t *testing.T, s *sqlite.Store) {
	t.Helper()
	require.Eventually(t, func() bool {
		yes, err := s.StandingForTest(context.Background())
		return yes && err == nil
	}, hang, time.Millisecond)
}

// TestTerminalFault: nobody is acknowledged after it, the standing dispatch ends
// with it, reading goes on, and closing ends the writer.
func TestTerminalFault(t *testing.T) {
	t.Parallel()
	for _, d := range []sqlite.Durability{sqlite.DurabilityFull, sqlite.DurabilityNormal} {
		clock := edge.ManualClock(1_700_000_000_000)
		s, err := sqlite.Open(dbPath(t), sqlite.Options{Clock: clock, Durability: d})
		require.NoError(t, err)
		register(t, s, edge.Registration{Name: "hook"})
		dispatched := make(chan error, 1)
		claims := make(chan edge.Claimed, 8)
		go func() {
			dispatched <- s.Dispatch(context.Background(), func(cs []edge.Claimed) {
				for _, c := range cs {
					claims <- c
				}
			})
		}()
		standing(t, s)
		acceptOne(t, s, "1", "bob")
		running := wait(t, claims, "nothing was claimed")

		var errs [4]error
		inOneBatch(t, s,
			func() { _ = s.OnWriterForTest(context.Background(), `PRAGMA query_only=1`) },
			func() { _, errs[0] = s.Accept(context.Background(), []edge.Submission{submission("2", "bob", "hook")}) },
			func() { _, errs[1] = s.Settle(context.Background(), settlement(running, edge.OutcomeSucceeded)) },
		)
		wait(t, s.Failed(), "the fault was not told")
		_, errs[2] = s.Claim(context.Background(), 1)
		_, errs[3] = s.Renew(context.Background(), nil)
		for i, err := range errs {
			require.ErrorIs(t, err, edge.ErrStorage, i)
		}
		require.ErrorIs(t, wait(t, dispatched, "dispatch goes on"), edge.ErrStorage)
		require.Equal(t, edge.Running, stateOf(t, s, running.Delivery))
		clock.Advance(time.Minute)
		closed := make(chan error, 1)
		go func() { closed <- s.Close() }()
		require.NoError(t, wait(t, closed, "close hangs"))
	}
}

// TestFailedStoreIsIdle: a store that has failed does not burn the processor until
// somebody closes it.
func TestFailedStoreIsIdle(t *testing.T) {
	t.Parallel()
	clock := edge.ManualClock(1_700_000_000_000)
	s, err := sqlite.Open(dbPath(t), sqlite.Options{Clock: clock, Durability: sqlite.DurabilityNormal})
	require.NoError(t, err)
	register(t, s, edge.Registration{Name: "hook"})
	acceptOne(t, s, "1", "bob")
	st := settlement(claimOne(t, s), edge.OutcomeRetry)
	st.DelayMS = 60_000
	_, err = s.Settle(context.Background(), st)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- s.Dispatch(context.Background(), func([]edge.Claimed) {}) }()
	standing(t, s)
	// The next transaction cannot begin.
	require.NoError(t, s.OnWriterForTest(context.Background(), `PRAGMA query_only=1`))
	_, err = s.Accept(context.Background(), []edge.Submission{submission("2", "bob", "hook")})
	require.ErrorIs(t, err, edge.ErrStorage)
	require.ErrorIs(t, wait(t, ended, "dispatch goes on"), edge.ErrStorage)
	clock.Advance(time.Hour) // the retry would be due, and a sync too
	_, err = s.Renew(context.Background(), nil)
	require.ErrorIs(t, err, edge.ErrStorage)
	idle(t, s)
	require.NoError(t, s.Close())
}

// idle requires that the writer sleeps: it does not wake during a good number of
// reads, which take longer than any poll would leave it asleep.
func idle(t *testing.T, s *sqlite.Store) {
	t.Helper()
	reads := func(n int) {
		for range n {
			_, err := s.Counters(context.Background())
			require.NoError(t, err)
		}
	}
	// A wake-up that was owed already may still come.
	require.Eventually(t, func() bool { n := s.Wakeups(); reads(20); return s.Wakeups() == n }, hang, time.Millisecond)
	n := s.Wakeups()
	begin := time.Now()
	for time.Since(begin) < 300*time.Millisecond {
		reads(50)
	}
	require.Equal(t, n, s.Wakeups())
}

// TestIdleStoreSleeps: with a dispatch standing, work running and nothing due, the
// writer is not woken by anything, reads included.
func TestIdleStoreSleeps(t *testing.T) {
	t.Parallel()
	s := open(t)
	register(t, s, edge.Registration{Name: "hook"})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	claims := make(chan edge.Claimed, 8)
	go func() {
		ended <- s.Dispatch(ctx, func(cs []edge.Claimed) {
			for _, c := range cs {
				claims <- c
			}
		})
	}()
	acceptOne(t, s, "1", "bob")
	acceptOne(t, s, "2", "bob")
	wait(t, claims, "nothing was claimed")
	idle(t, s)
	acceptOne(t, s, "3", "alice")
	wait(t, claims, "the commit did not wake the dispatch")
	cancel()
	require.NoError(t, wait(t, ended, "dispatch goes on"))
}

// TestTimerWakesForRetry: a retry is claimed when it is due, by one timer.
func TestTimerWakesForRetry(t *testing.T) {
	t.Parallel()
	s := openAt(t, dbPath(t), sqlite.Options{Clock: edge.NewClock(nil)})
	register(t, s, edge.Registration{Name: "hook"})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	claims := make(chan edge.Claimed, 8)
	go func() {
		ended <- s.Dispatch(ctx, func(cs []edge.Claimed) {
			for _, c := range cs {
				claims <- c
			}
		})
	}()
	acceptOne(t, s, "1", "bob")
	first := wait(t, claims, "nothing was claimed")
	st := settlement(first, edge.OutcomeRetry)
	st.DelayMS = 400
	settled, err := s.Settle(context.Background(), st)
	require.NoError(t, err)
	n := s.Wakeups()
	again := wait(t, claims, "the timer did not wake the dispatch")
	require.Equal(t, first.Delivery, again.Delivery)
	require.True(t, again.Retry)
	require.GreaterOrEqual(t, s.Clock().NowMS(), settled.DueMS)
	require.LessOrEqual(t, s.Wakeups()-n, int64(4), "one timer, not a poll")
	_, err = s.Settle(context.Background(), settlement(again, edge.OutcomeSucceeded))
	require.NoError(t, err)
	cancel()
	require.NoError(t, wait(t, ended, "dispatch goes on"))
}

// TestDispatchEndsBesideReadyWork ends a dispatch in the very commit in which work
// becomes ready for it.
func TestDispatchEndsBesideReadyWork(t *testing.T) {
	t.Parallel()
	s := open(t)
	register(t, s, edge.Registration{Name: "hook"})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	delivered := make(chan edge.Claimed, 8)
	go func() {
		ended <- s.Dispatch(ctx, func(cs []edge.Claimed) {
			for _, c := range cs {
				delivered <- c
			}
		})
	}()
	standing(t, s)
	var id edge.DeliveryID
	inOneBatch(t, s, cancel, func() { id = acceptOne(t, s, "1", "bob") })
	require.NoError(t, wait(t, ended, "dispatch goes on"))
	require.Empty(t, delivered, "after the end of the dispatch nothing is delivered")
	require.Equal(t, edge.Pending, stateOf(t, s, id))
	require.Equal(t, id, claimOne(t, s).Delivery)
}

// TestDispatchEndsAfterAClaimOfTheSameCommit: a settle whose follow-up event is
// claimed at once for the dispatch, and then the end of that dispatch, in one
// commit. The claim is delivered before the dispatch returns.
func TestDispatchEndsAfterAClaimOfTheSameCommit(t *testing.T) {
	t.Parallel()
	s := open(t)
	register(t, s, edge.Registration{Name: "hook"})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	delivered := make(chan edge.Claimed, 8)
	go func() {
		ended <- s.Dispatch(ctx, func(cs []edge.Claimed) {
			for _, c := range cs {
				delivered <- c
			}
		})
	}()
	standing(t, s)
	acceptOne(t, s, "1", "bob")
	st := settlement(wait(t, delivered, "nothing was claimed"), edge.OutcomeSucceeded)
	st.FollowUps = []edge.Submission{submission("2", "alice", "hook")}
	var settled edge.Settled
	inOneBatch(t, s,
		func() { settled, _ = s.Settle(context.Background(), st) },
		cancel,
	)
	require.NoError(t, wait(t, ended, "dispatch goes on"))
	require.Len(t, settled.FollowUps, 1)
	follow := settled.FollowUps[0].Deliveries[0]
	require.Equal(t, edge.Running, follow.State)
	require.Equal(t, follow.ID, wait(t, delivered, "the claim was lost").Delivery)
}

// TestCallbacksRunOutsideTheTransaction takes the write lock inside each callback:
// it is free, and what the callback is told is in the file.
func TestCallbacksRunOutsideTheTransaction(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	s := openAt(t, path, sqlite.Options{})
	register(t, s, edge.Registration{Name: "hook"})
	db := raw(t, path)
	look := func(id edge.DeliveryID, state edge.State) error {
		for _, text := range []string{`PRAGMA busy_timeout=0`, `BEGIN IMMEDIATE`} {
			if _, err := db.Exec(text); err != nil {
				return err
			}
		}
		defer func() { _, _ = db.Exec(`ROLLBACK`) }()
		var got edge.State
		err := db.QueryRow(`SELECT state FROM deliveries WHERE id = ?`, int64(id)).Scan(&got)
		if err == nil && got != state {
			err = fmt.Errorf("delivery %d is %s in the file, told %s", id, got, state)
		}
		return err
	}
	found := make(chan error, 8)
	s.Watch(func(cs []edge.Change) { found <- look(cs[0].Delivery, cs[0].State) })
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- s.Dispatch(ctx, func(cs []edge.Claimed) { found <- look(cs[0].Delivery, edge.Running) })
	}()
	standing(t, s)
	acceptOne(t, s, "1", "bob")
	require.NoError(t, wait(t, found, "the watcher was not called"))
	require.NoError(t, wait(t, found, "nothing was delivered"))
	cancel()
	require.NoError(t, wait(t, ended, "dispatch goes on"))
}

// unsynced is how many frames of the log a checkpoint has not taken over.
func unsynced(t *testing.T, db *sql.DB) int {
	t.Helper()
	var busy, log, done int
	require.NoError(t, db.QueryRow(`PRAGMA wal_checkpoint(NOOP)`).Scan(&busy, &log, &done))
	return log - done
}

// TestDurabilityNormalBoundsTheLoss: commits are not synced one by one, but no
// later than a second after the first of them; the start of once work is synced
// in its own commit.
func TestDurabilityNormalBoundsTheLoss(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	clock := edge.ManualClock(1_700_000_000_000)
	s := openAt(t, path, sqlite.Options{Clock: clock, Durability: sqlite.DurabilityNormal})
	db := raw(t, path)
	once := edge.Registration{Name: "pay", Effect: edge.Once, Slots: 1, Limit: 8}
	hook := edge.Registration{Name: "hook", Effect: edge.Idempotent, Slots: 1, Limit: 8}
	require.NoError(t, s.Register(t.Context(), []edge.Registration{once, hook}, 64, 60_000))

	acceptOne(t, s, "1", "bob")
	require.Positive(t, unsynced(t, db), "the commit is not synced yet")
	claimOne(t, s)
	require.Positive(t, unsynced(t, db), "nor is the start of work that may be repeated")
	clock.Advance(500 * time.Millisecond)
	acceptOne(t, s, "2", "bob")
	require.Positive(t, unsynced(t, db))
	clock.Advance(500 * time.Millisecond)
	acceptOne(t, s, "3", "bob")
	require.Zero(t, unsynced(t, db), "a second after the first")

	_, err := s.Accept(t.Context(), []edge.Submission{submission("4", "bob", "pay")})
	require.NoError(t, err)
	require.Positive(t, unsynced(t, db))
	claimOne(t, s)
	require.Zero(t, unsynced(t, db), "the start of once work is synced before it is acknowledged")
}

// TestDurabilityNormalSyncsWithoutTraffic: the bound holds when nothing follows.
func TestDurabilityNormalSyncsWithoutTraffic(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	s := openAt(t, path, sqlite.Options{Clock: edge.NewClock(nil), Durability: sqlite.DurabilityNormal})
	db := raw(t, path)
	register(t, s, edge.Registration{Name: "hook"})
	acceptOne(t, s, "1", "bob")
	require.Eventually(t, func() bool { return unsynced(t, db) == 0 }, 5*time.Second, 10*time.Millisecond)
	idle(t, s)
}

// TestDurabilityFullNeedsNoCheckpoint is the control of the tests above.
func TestDurabilityFullNeedsNoCheckpoint(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	clock := edge.ManualClock(1_700_000_000_000)
	s := openAt(t, path, sqlite.Options{Clock: clock})
	register(t, s, edge.Registration{Name: "hook"})
	acceptOne(t, s, "1", "bob")
	clock.Advance(time.Minute)
	acceptOne(t, s, "2", "bob")
	require.Positive(t, unsynced(t, raw(t, path)))
}

// TestIDsAreNeverUsedTwice takes rows away by every way there is.
func TestIDsAreNeverUsedTwice(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	clock := edge.ManualClock(1_700_000_000_000)
	db := (*sql.DB)(nil)
	var last [4]int64
	work := func(s *sqlite.Store, id string) {
		t.Helper()
		register(t, s, edge.Registration{Name: "hook"})
		d := acceptOne(t, s, id, "bob")
		c := claimOne(t, s)
		_, err := s.Settle(t.Context(), settlement(c, edge.OutcomeSucceeded))
		require.NoError(t, err)
		got, err := s.Delivery(t.Context(), d)
		require.NoError(t, err)
		now := [4]int64{int64(got.Event), int64(d), int64(c.Fence), number(t, db, `SELECT max(id) FROM targets`)}
		for i := range now {
			require.Greater(t, now[i], last[i], "event, delivery, execution, target: %d", i)
		}
		last = now
	}
	reopen := func() *sqlite.Store {
		s := openAt(t, path, sqlite.Options{Clock: clock})
		if db == nil {
			db = raw(t, path)
		}
		return s
	}
	pruneAll := func(s *sqlite.Store) {
		t.Helper()
		clock.Advance(time.Hour)
		swept, err := s.Prune(t.Context(), edge.PrunePolicy{SucceededBeforeMS: clock.NowMS(), FailedBeforeMS: clock.NowMS(), DedupeBeforeMS: clock.NowMS(), Limit: 100})
		require.NoError(t, err)
		require.Positive(t, swept.Done)
		for _, table := range []string{"events", "deliveries", "executions", "targets", "consumptions"} {
			require.Zero(t, number(t, db, `SELECT count(*) FROM `+table), table)
		}
	}
	s := reopen()
	work(s, "1")
	pruneAll(s)
	work(s, "2")
	pruneAll(s)
	require.NoError(t, s.Close())

	s = reopen()
	work(s, "3")
	pruneAll(s)
	require.NoError(t, s.Close())

	s = reopen()
	work(s, "4")
	require.NoError(t, s.Close())
	for _, text := range []string{
		`DELETE FROM events`, `DELETE FROM deliveries`, `DELETE FROM executions`, `DELETE FROM targets`, `DELETE FROM consumptions`,
		`DELETE FROM counters`,
	} {
		exe(t, db, text)
	}
	work(reopen(), "5")
}

// TestSequencesAreNotLowered: a commit that fails uses no numbers up, and one that
// follows does not go below what was acknowledged.
func TestSequencesAreNotLowered(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	s := openAt(t, path, sqlite.Options{})
	register(t, s, edge.Registration{Name: "hook"})
	db := raw(t, path)
	poison(t, db)
	const all = `SELECT event + delivery * 1000 + execution * 1000000 + target * 1000000000 FROM sequences`
	was := number(t, db, all)
	for i := range 6 {
		id := acceptOne(t, s, fmt.Sprint(i), fmt.Sprint(i))
		bad := submission(fmt.Sprint("bad", i), "bob", "hook")
		bad.Event.Type = "poison"
		_, err := s.Accept(t.Context(), []edge.Submission{bad})
		require.ErrorIs(t, err, edge.ErrUnavailable)
		is := number(t, db, all)
		require.Greater(t, is, was)
		require.Equal(t, int64(id), number(t, db, `SELECT delivery FROM sequences`))
		was = is
	}
	exe(t, db, `DROP TRIGGER poison`)
}

// TestPruneLooksAtABoundedNumberOfEvents: events that are kept cost a step no more
// than its window, and what lies behind them is reached by the steps that follow.
func TestPruneLooksAtABoundedNumberOfEvents(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	clock := edge.ManualClock(1_700_000_000_000)
	s := openAt(t, path, sqlite.Options{Clock: clock})
	register(t, s, edge.Registration{Name: "hook"})
	for i := range 25 {
		var kept []edge.Submission
		for j := range 1000 {
			kept = append(kept, submission(fmt.Sprint(i, "-", j), "bob", "hook"))
		}
		_, err := s.Accept(t.Context(), kept)
		require.NoError(t, err)
	}
	_, err := s.Accept(t.Context(), []edge.Submission{submission("unrouted", "bob")})
	require.NoError(t, err)
	clock.Advance(time.Hour)
	p := edge.PrunePolicy{DedupeBeforeMS: clock.NowMS(), Limit: 100}
	steps := 0
	for more := true; more; steps++ {
		swept, err := s.Prune(t.Context(), p)
		require.NoError(t, err)
		more = swept.More
	}
	require.Equal(t, 26, steps, "a thousand events a step")
	swept, err := s.Prune(t.Context(), p)
	require.NoError(t, err)
	require.Zero(t, swept, "a walk looks at each event once")
	require.EqualValues(t, 25_000, number(t, raw(t, path), `SELECT count(*) FROM events`))
}

// TestDurabilityNormalSyncsPastReaders: a reader's snapshot keeps a checkpoint from
// its end, where SQLite may then sync nothing. The start of once work is synced
// all the same: by a commit at FULL, which triggers witness here.
func TestDurabilityNormalSyncsPastReaders(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	clock := edge.ManualClock(1_700_000_000_000)
	s := openAt(t, path, sqlite.Options{Clock: clock, Durability: sqlite.DurabilityNormal})
	require.NoError(t, s.Register(t.Context(), []edge.Registration{
		{Name: "pay", Effect: edge.Once, Slots: 1, Limit: 8},
		{Name: "hook", Effect: edge.Idempotent, Slots: 1, Limit: 8},
	}, 64, 60_000))
	db := raw(t, path)
	for _, column := range []string{"syncs", "event"} {
		exe(t, db, `INSERT INTO counters VALUES ('wrote `+column+`', 0)`)
		exe(t, db, `CREATE TRIGGER witness_`+column+` AFTER UPDATE OF `+column+` ON sequences
		            BEGIN UPDATE counters SET value = value + 1 WHERE name = 'wrote `+column+`'; END`)
	}
	release, err := s.HoldReadForTest(t.Context())
	require.NoError(t, err)
	defer release()
	// A commit of work writes all sequences, one that only syncs the log counts itself.
	synced := func() int64 {
		return number(t, db, `SELECT value FROM counters WHERE name = 'wrote syncs'`)
	}

	acceptOne(t, s, "1", "bob")
	claimOne(t, s)
	require.Zero(t, synced(), "nothing is owed yet")
	_, err = s.Accept(t.Context(), []edge.Submission{submission("2", "bob", "pay")})
	require.NoError(t, err)
	claimOne(t, s)
	require.EqualValues(t, 1, synced(), "the start of once work")
	acceptOne(t, s, "3", "bob")
	clock.Advance(time.Second)
	acceptOne(t, s, "4", "bob")
	require.EqualValues(t, 2, synced(), "a second after the first unsynced commit")
	release()
	n, err := s.VerifyAllForTest(t.Context())
	require.NoError(t, err, "it is NORMAL again")
	require.Equal(t, 3, n)
}
