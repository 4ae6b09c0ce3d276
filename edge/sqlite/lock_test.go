package sqlite_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/sqlite"
)

const leaseMS = 60_000

var (
	idemHandler = edge.Registration{Name: "idem", Effect: edge.Idempotent, Slots: 1, Limit: 8}
	onceHandler = edge.Registration{Name: "once", Effect: edge.Once, Slots: 1, Limit: 8}
	// inspectedHandler is once work that is claimed before it is started.
	inspectedHandler = edge.Registration{Name: "inspected", Effect: edge.Once, Slots: 1, Limit: 8, Inspect: true}
	allHandlers      = []edge.Registration{idemHandler, onceHandler, inspectedHandler}
)

// TestP12_SecondProcessIsRefused: the one who comes second is told who holds the
// file, and after kill -9 of the holder the next one needs no cleaning up.
func TestP12_SecondProcessIsRefused(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	holder := opened(t, path, false)
	says := fmt.Sprintf("is in use by process %d (owner %s)", holder.cmd.Process.Pid, holder.Owner)
	for _, share := range []bool{false, true} {
		_, r := start(t, path, share)
		require.True(t, r.Conflict, r.Err)
		require.Contains(t, r.Err, says)
		require.Contains(t, r.Err, path)
		_, err := sqlite.Open(path, sqlite.Options{Share: share})
		require.ErrorIs(t, err, edge.ErrConflict)
		require.ErrorContains(t, err, says)
	}
	require.Empty(t, holder.do(order{Do: "register", Regs: allHandlers, LeaseMS: leaseMS}).Err, "the holder does not notice")

	holder.kill()
	begin := time.Now()
	s := openAt(t, path, sqlite.Options{})
	require.Less(t, time.Since(begin), 5*time.Second)
	require.NotEqual(t, holder.Owner, s.Owner())
	left, err := filepath.Glob(path + ".owner-*")
	require.NoError(t, err)
	require.Equal(t, []string{path + ".owner-" + s.Owner()}, left, "the dead one's lock file is gone")
}

// TestClosedStoreLeavesNoLocks: the next opening in the same process works.
func TestClosedStoreLeavesNoLocks(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	for range 2 {
		s, err := sqlite.Open(path, sqlite.Options{})
		require.NoError(t, err)
		_, err = sqlite.Open(path, sqlite.Options{})
		require.ErrorIs(t, err, edge.ErrConflict)
		require.ErrorContains(t, err, fmt.Sprintf("process %d", os.Getpid()))
		require.NoError(t, s.Close())
		left, err := filepath.Glob(path + ".owner-*")
		require.NoError(t, err)
		require.Empty(t, left)
	}
}

// TestSharers: several processes work on one file; whoever wants it alone waits
// until the last of them is gone.
func TestSharers(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	var sharers []*child
	for i := range 3 {
		c := opened(t, path, true)
		c.must(order{Do: "register", Regs: allHandlers, LeaseMS: leaseMS})
		c.must(order{Do: "accept", Subs: []edge.Submission{submission(fmt.Sprint(i), "bob", "idem")}})
		sharers = append(sharers, c)
	}
	_, err := sqlite.Open(path, sqlite.Options{})
	require.ErrorIs(t, err, edge.ErrConflict)
	sharers[0].kill()
	sharers[1].close()
	_, err = sqlite.Open(path, sqlite.Options{})
	require.ErrorIs(t, err, edge.ErrConflict, "one is left")
	sharers[2].close()

	s := openAt(t, path, sqlite.Options{})
	list, err := s.Deliveries(t.Context(), edge.DeliveryFilter{})
	require.NoError(t, err)
	require.Len(t, list, 3)
	_, r := start(t, path, true)
	require.True(t, r.Conflict, "and the other way round")
}

// TestSharersCreateOneFile starts processes at the same moment on a path where
// nothing is yet: they make one database, not one each.
func TestSharersCreateOneFile(t *testing.T) {
	t.Parallel()
	for range 3 {
		path := dbPath(t)
		const n = 4
		reports := make(chan report, 2*n)
		var group sync.WaitGroup
		for i := range n {
			cmd := childCommand(t, "store", path, "share")
			in, err := cmd.StdinPipe()
			require.NoError(t, err)
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			group.Go(func() {
				dec := json.NewDecoder(bufio.NewReader(out))
				_ = json.NewEncoder(in).Encode(order{Do: "accept", Subs: []edge.Submission{submission(fmt.Sprint(i), "bob", "idem")}})
				for range 2 {
					var r report
					if err := dec.Decode(&r); err != nil {
						r.Err = err.Error()
					}
					reports <- r
				}
				_ = in.Close()
				_ = cmd.Wait()
			})
		}
		group.Wait()
		for range 2 * n {
			require.Empty(t, (<-reports).Err)
		}
		s := openAt(t, path, sqlite.Options{})
		require.EqualValues(t, n, number(t, raw(t, path), `SELECT count(*) FROM events`))
		require.NotEmpty(t, s.Node())
	}
}

// TestTidyingSparesTheLiving has others tidy up while owners come: no owner that
// lives is ever taken for dead.
func TestTidyingSparesTheLiving(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	stop := make(chan struct{})
	var tidiers sync.WaitGroup
	for range 2 {
		tidiers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					sqlite.TidyForTest(path)
				}
			}
		})
	}
	defer tidiers.Wait()
	defer close(stop)
	for i := range 500 {
		owner := fmt.Sprint("owner", i)
		release, err := sqlite.LockOwnerForTest(path, owner)
		require.NoError(t, err)
		for range 3 {
			require.False(t, sqlite.OwnerIsDeadForTest(path, owner))
			runtime.Gosched()
		}
		release()
		require.Eventually(t, func() bool { return sqlite.OwnerIsDeadForTest(path, owner) }, hang, 100*time.Microsecond)
	}
}

// deadWork is a file on which a process was killed while it held three leases.
func deadWork(t *testing.T, share bool) (path string, dead *child, observer *sqlite.Store) {
	t.Helper()
	path = dbPath(t)
	dead = opened(t, path, share)
	if share {
		observer = openAt(t, path, sqlite.Options{Share: true, Clock: edge.NewClock(nil)})
	}
	dead.must(order{Do: "register", Regs: allHandlers, LeaseMS: leaseMS})
	dead.must(order{Do: "accept", Subs: []edge.Submission{
		submission("1", "bob", "idem"), submission("2", "bob", "once"), submission("3", "bob", "inspected"),
	}})
	require.Len(t, dead.must(order{Do: "claim", Limit: 8}).Claims, 3)
	if share {
		owners, err := observer.DeadOwners(t.Context())
		require.NoError(t, err)
		require.Empty(t, owners, "it lives")
		_, err = observer.VoidOwner(t.Context(), dead.Owner)
		require.ErrorIs(t, err, edge.ErrConflict)
		require.ErrorContains(t, err, "is alive")
	}
	dead.kill()
	if !share {
		observer = openAt(t, path, sqlite.Options{Clock: edge.NewClock(nil)})
	}
	require.NoError(t, observer.Register(t.Context(), allHandlers, 64, leaseMS))
	return path, dead, observer
}

// TestDeadOwner voids what a killed process held, at once, by what its handlers
// declared.
func TestDeadOwner(t *testing.T) {
	t.Parallel()
	for _, share := range []bool{false, true} {
		t.Run(fmt.Sprintf("share=%t", share), func(t *testing.T) {
			t.Parallel()
			path, dead, s := deadWork(t, share)
			ctx := t.Context()
			_, err := s.VoidOwner(ctx, s.Owner())
			require.ErrorIs(t, err, edge.ErrConflict, "oneself is alive")
			owners, err := s.DeadOwners(ctx)
			require.NoError(t, err)
			require.Equal(t, []string{dead.Owner}, owners)

			voided, err := s.VoidOwner(ctx, dead.Owner)
			require.NoError(t, err)
			require.Len(t, voided, 3)
			want := map[string]edge.Voided{
				"idem":      {Started: true, State: edge.Pending, Code: edge.CodeLeaseLost},
				"once":      {Started: true, State: edge.Blocked, Code: edge.CodeLostAfterStart},
				"inspected": {Started: false, State: edge.Pending, Code: edge.CodeLeaseLost},
			}
			db := raw(t, path)
			for _, v := range voided {
				w := want[v.Target.Handler]
				require.Equal(t, dead.Owner, v.Owner)
				require.Equal(t, w, edge.Voided{Started: v.Started, State: v.State, Code: v.Code}, v.Target.Handler)
				d, err := s.Delivery(ctx, v.Delivery)
				require.NoError(t, err)
				require.Equal(t, w.State, d.State)
				require.Equal(t, 1, d.Losses)
				require.Zero(t, d.Attempts, "a loss is not charged to the attempts")
				xs, err := s.Executions(ctx, v.Delivery)
				require.NoError(t, err)
				require.Len(t, xs, 1)
				require.Equal(t, edge.OutcomeLost, xs[0].Outcome)
				require.Equal(t, dead.Owner, xs[0].Owner)
				open := number(t, db, `SELECT count(*) FROM recoveries WHERE execution = ? AND closed_ms IS NULL`, int64(v.Execution))
				require.Equal(t, w.State == edge.Blocked, open == 1)
			}
			owners, err = s.DeadOwners(ctx)
			require.NoError(t, err)
			require.Empty(t, owners)
			again, err := s.VoidOwner(ctx, dead.Owner)
			require.NoError(t, err)
			require.Empty(t, again)
			claims, err := s.Claim(ctx, 8)
			require.NoError(t, err)
			require.Len(t, claims, 2, "what may be repeated is, the rest waits for a person")
		})
	}
}

// sharing is two sharing openings of one file, each with a clock of its own.
func sharing(t *testing.T) (path string, a, b *sqlite.Store, clockA, clockB *edge.Clock) {
	t.Helper()
	path = dbPath(t)
	clockA, clockB = edge.ManualClock(1_700_000_000_000), edge.ManualClock(1_700_000_000_000)
	a = openAt(t, path, sqlite.Options{Share: true, Clock: clockA})
	b = openAt(t, path, sqlite.Options{Share: true, Clock: clockB})
	require.NoError(t, a.Register(t.Context(), allHandlers, 64, leaseMS))
	return path, a, b, clockA, clockB
}

func stale(t *testing.T, s *sqlite.Store) []edge.Voided {
	t.Helper()
	voided, err := s.VoidStale(context.Background())
	require.NoError(t, err)
	return voided
}

// TestVoidStaleGoesByTheMonotonicClock: a foreign lease is taken only when its
// expiry has stood still for a full lease as this process has measured it. The
// wall clock, and the stored expiry itself, do not matter.
func TestVoidStaleGoesByTheMonotonicClock(t *testing.T) {
	t.Parallel()
	for _, registered := range []bool{true, false} {
		_, a, b, _, clockB := sharing(t)
		if registered {
			require.NoError(t, b.Register(t.Context(), allHandlers, 64, leaseMS))
		}
		_, err := a.Accept(t.Context(), []edge.Submission{submission("1", "bob", "idem")})
		require.NoError(t, err)
		claim := claimOne(t, a)
		require.Empty(t, stale(t, b), "seen for the first time")
		clockB.Step(100 * 24 * time.Hour)
		require.Empty(t, stale(t, b), "a step of the wall clock proves nothing")
		clockB.Step(-200 * 24 * time.Hour)
		require.Empty(t, stale(t, b))
		clockB.Advance(leaseMS*time.Millisecond - time.Millisecond)
		require.Empty(t, stale(t, b), "a millisecond short")
		require.Empty(t, stale(t, a), "one's own are never stale")
		clockB.Advance(time.Millisecond)
		voided := stale(t, b)
		require.Len(t, voided, 1)
		require.Equal(t, claim.Delivery, voided[0].Delivery)
		require.Equal(t, a.Owner(), voided[0].Owner)
		require.Empty(t, stale(t, b))
	}
}

// TestRenewingOwnerIsNeverVoided renews every 20 s while the other looks every
// 59 s of its own.
func TestRenewingOwnerIsNeverVoided(t *testing.T) {
	t.Parallel()
	_, a, b, clockA, clockB := sharing(t)
	_, err := a.Accept(t.Context(), []edge.Submission{submission("1", "bob", "once")})
	require.NoError(t, err)
	claim := claimOne(t, a)
	for range 20 {
		require.Empty(t, stale(t, b))
		clockA.Advance(20 * time.Second)
		clockB.Advance(59 * time.Second)
		r, err := a.Renew(t.Context(), []edge.Token{claim.Token})
		require.NoError(t, err)
		require.Empty(t, r.Lost)
	}
	_, err = a.Settle(t.Context(), settlement(claim, edge.OutcomeSucceeded))
	require.NoError(t, err)
}

// TestVoidedSlotIsFree: what another process took is no longer counted as held,
// by whichever way its owner learns of it.
func TestVoidedSlotIsFree(t *testing.T) {
	t.Parallel()
	for way, learn := range map[string]func(a *sqlite.Store, c edge.Claimed) error{
		"settle": func(a *sqlite.Store, c edge.Claimed) error {
			_, err := a.Settle(context.Background(), settlement(c, edge.OutcomeRetry))
			return err
		},
		"release": func(a *sqlite.Store, c edge.Claimed) error {
			_, err := a.Release(context.Background(), settlement(c, edge.OutcomeInterrupted))
			return err
		},
		"start": func(a *sqlite.Store, c edge.Claimed) error {
			_, err := a.Start(context.Background(), c.Fence, c.Token)
			return err
		},
		"renew": func(a *sqlite.Store, c edge.Claimed) error {
			r, err := a.Renew(context.Background(), []edge.Token{c.Token})
			if len(r.Lost) == 1 {
				err = edge.ErrLeaseLost
			}
			return err
		},
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			_, a, b, clockA, clockB := sharing(t)
			handler := "idem"
			if way == "release" || way == "start" {
				handler = "inspected"
			}
			_, err := a.Accept(t.Context(), []edge.Submission{submission("1", "bob", handler)})
			require.NoError(t, err)
			claim := claimOne(t, a)
			stale(t, b)
			clockB.Advance(leaseMS * time.Millisecond)
			require.Len(t, stale(t, b), 1)
			clockA.Advance(leaseMS * time.Millisecond)
			require.ErrorIs(t, learn(a, claim), edge.ErrLeaseLost)
			n, err := a.HeldForTest(t.Context())
			require.NoError(t, err)
			require.Zero(t, n)
			claimOne(t, a)
		})
	}
}

// TestQ2_R9_StoppedSharer stops a process for longer than its lease. Work that may
// be repeated goes to another one, and the result that comes late is refused and
// kept; work that must not be repeated waits, and its own late result is taken.
func TestQ2_R9_StoppedSharer(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	zombie := opened(t, path, true)
	zombie.must(order{Do: "register", Regs: allHandlers, LeaseMS: leaseMS})
	zombie.must(order{Do: "accept", Subs: []edge.Submission{submission("1", "bob", "idem"), submission("2", "bob", "once")}})
	claims := map[string]edge.Claimed{}
	for _, c := range zombie.must(order{Do: "claim", Limit: 8}).Claims {
		claims[c.Target.Handler] = c
	}
	require.Len(t, claims, 2)
	require.NoError(t, zombie.cmd.Process.Signal(syscall.SIGSTOP))

	clock := edge.ManualClock(time.Now().UnixMilli()) // stands still while the other process's goes on
	s := openAt(t, path, sqlite.Options{Share: true, Clock: clock})
	require.NoError(t, s.Register(t.Context(), allHandlers, 64, leaseMS))
	owners, err := s.DeadOwners(t.Context())
	require.NoError(t, err)
	require.Empty(t, owners, "a stopped process is not a dead one")
	require.Empty(t, stale(t, s))
	clock.Advance(leaseMS * time.Millisecond)
	require.Len(t, stale(t, s), 2)

	repeated := claimOne(t, s)
	require.Equal(t, claims["idem"].Delivery, repeated.Delivery)
	require.Greater(t, repeated.Fence, claims["idem"].Fence, "the fence has grown")
	require.Equal(t, claims["idem"].Key, repeated.Key, "the idempotency key has not")

	require.NoError(t, zombie.cmd.Process.Signal(syscall.SIGCONT))
	late := zombie.do(order{Do: "settle", Settlement: settlement(claims["idem"], edge.OutcomeFailed)})
	require.True(t, late.Lost, late.Err)
	require.Equal(t, edge.Running, stateOf(t, s, repeated.Delivery), "the stale result changed nothing")
	xs, err := s.Executions(t.Context(), repeated.Delivery)
	require.NoError(t, err)
	require.Len(t, xs, 2)
	require.Equal(t, edge.OutcomeLost, xs[0].Outcome)
	require.Equal(t, edge.OutcomeFailed, xs[0].LateOutcome, "it is kept for people to see")
	require.Empty(t, xs[1].Outcome)
	_, err = s.Settle(t.Context(), settlement(repeated, edge.OutcomeSucceeded))
	require.NoError(t, err)
	r := zombie.do(order{Do: "renew", Tokens: []edge.Token{claims["idem"].Token}})
	require.Equal(t, []edge.Token{claims["idem"].Token}, r.Renewed.Lost)

	require.Equal(t, edge.Blocked, stateOf(t, s, claims["once"].Delivery))
	took := zombie.must(order{Do: "settle", Settlement: settlement(claims["once"], edge.OutcomeSucceeded)})
	require.Equal(t, edge.Succeeded, took.Settled.State)
	require.Equal(t, edge.Succeeded, stateOf(t, s, claims["once"].Delivery))
	db := raw(t, path)
	require.EqualValues(t, 1, number(t, db, `SELECT count(*) FROM recoveries WHERE execution = ? AND resolution = 'late'`, int64(claims["once"].Fence)))
	xs, err = s.Executions(t.Context(), claims["once"].Delivery)
	require.NoError(t, err)
	require.Len(t, xs, 1, "it was never started a second time")
}

// TestLateResultAfterADecision: once a person has decided, the late result of the
// execution is only kept.
func TestLateResultAfterADecision(t *testing.T) {
	t.Parallel()
	_, a, b, _, clockB := sharing(t)
	_, err := a.Accept(t.Context(), []edge.Submission{submission("1", "bob", "once")})
	require.NoError(t, err)
	claim := claimOne(t, a)
	stale(t, b)
	clockB.Advance(leaseMS * time.Millisecond)
	require.Len(t, stale(t, b), 1)
	d, err := b.Delivery(t.Context(), claim.Delivery)
	require.NoError(t, err)
	_, err = b.Resolve(t.Context(), edge.Resolution{Delivery: d.ID, Version: d.Version, As: edge.ResolveFailed, Reason: "asked the bank"})
	require.NoError(t, err)
	_, err = a.Settle(t.Context(), settlement(claim, edge.OutcomeSucceeded))
	require.ErrorIs(t, err, edge.ErrLeaseLost)
	require.Equal(t, edge.Failed, stateOf(t, a, claim.Delivery))
	xs, err := a.Executions(t.Context(), claim.Delivery)
	require.NoError(t, err)
	require.Equal(t, edge.OutcomeSucceeded, xs[0].LateOutcome)
}
