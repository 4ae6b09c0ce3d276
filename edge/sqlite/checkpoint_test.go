package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/sqlite"
)

// write accepts n events of 16 KiB each, one commit each. While the log is at its
// bound it comes again, as a producer does that is told to.
func write(t *testing.T, s *sqlite.Store, from, n int) {
	t.Helper()
	for i := from; i < from+n; i++ {
		sub := submission(fmt.Sprint(i), "k")
		sub.Event.Data = make([]byte, 16<<10)
		_, err := s.Accept(t.Context(), []edge.Submission{sub})
		for errors.Is(err, edge.ErrLowSpace) {
			runtime.Gosched()
			_, err = s.Accept(t.Context(), []edge.Submission{sub})
		}
		require.NoError(t, err)
	}
}

// overlap keeps a few snapshots of this process open all the time, each as long as
// it is let, until stop is called. It returns how many were ended by the store.
func overlap(t *testing.T, s *sqlite.Store) (stop func() (cut int)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var mu sync.Mutex
	var readers sync.WaitGroup
	cut := 0
	first := make(chan struct{}, 2)
	for range 2 {
		readers.Go(func() {
			for ctx.Err() == nil {
				err := s.SnapshotForTest(ctx, func() {
					select {
					case first <- struct{}{}:
					default:
					}
				})
				mu.Lock()
				if err != nil && ctx.Err() == nil {
					cut++
				}
				mu.Unlock()
			}
		})
	}
	<-first
	<-first
	return func() int {
		cancel()
		readers.Wait()
		return cut
	}
}

// TestP10_R76_ReadersDoNotGrowTheLog: snapshots that never end, of this process,
// are cut before the log reaches its bound. Without that it goes past it.
func TestP10_R76_ReadersDoNotGrowTheLog(t *testing.T) {
	t.Parallel()
	const part = 32
	for _, kept := range []bool{true, false} {
		t.Run(fmt.Sprint("kept ", kept), func(t *testing.T) {
			t.Parallel()
			s := openAt(t, dbPath(t), sqlite.Options{Clock: edge.NewClock(nil), ReadTimeout: time.Hour})
			most, err := s.LogForTest(t.Context(), part)
			require.NoError(t, err)
			if !kept {
				_, err := s.LogForTest(t.Context(), 0)
				require.NoError(t, err)
			}
			write(t, s, 0, 1) // so that there is something to see
			stop := overlap(t, s)
			write(t, s, 1, 300) // about 5 MiB, of which 2 are allowed to the log
			cut := stop()
			peak, tries, err := s.LogPeakForTest(t.Context())
			require.NoError(t, err)
			t.Logf("the log was at most %d bytes of %d; %d reads were ended, %d tries failed", peak, most, cut, tries)
			if !kept {
				require.Greater(t, peak, most, "the control: the readers did hold the log")
				require.Zero(t, cut)
				return
			}
			require.LessOrEqual(t, peak, most)
			require.Positive(t, cut, "no reader was in the way: nothing was shown")
			require.Positive(t, tries)
			require.EqualValues(t, cut, s.Storage().ReadersCut)
			require.NoError(t, s.ReadForTest(t.Context(), new(int), `SELECT count(*) FROM events`), "reads go on")
		})
	}
}

// TestR77_AForeignSnapshotStopsNobody: a snapshot of another process cannot be
// ended. Writers go on beside it and never wait for it; at the bound of the log
// no more events are taken, and when it is gone all goes on.
func TestR77_AForeignSnapshotStopsNobody(t *testing.T) {
	t.Parallel()
	const part = 32
	path := dbPath(t)
	s := openAt(t, path, sqlite.Options{Clock: edge.NewClock(nil)})
	most, err := s.LogForTest(t.Context(), part)
	require.NoError(t, err)
	register(t, s, edge.Registration{Name: "hook"})
	require.NoError(t, take(t, s, 0, "a", "hook").Err)
	running := claimOne(t, s)

	foreign, err := raw(t, path).Conn(t.Context())
	require.NoError(t, err)
	defer foreign.Close()
	for _, text := range []string{`BEGIN`, `SELECT count(*) FROM events`} {
		rows, err := foreign.QueryContext(t.Context(), text)
		require.NoError(t, err)
		for rows.Next() {
		}
		require.NoError(t, rows.Err())
		require.NoError(t, rows.Close())
	}
	taken := 0
	for ; taken < 1000; taken++ {
		sub := submission(fmt.Sprint("f", taken), "k")
		sub.Event.Data = make([]byte, 16<<10)
		if _, err = s.Accept(t.Context(), []edge.Submission{sub}); err != nil {
			break
		}
	}
	require.ErrorIs(t, err, edge.ErrLowSpace)
	require.Greater(t, taken, 20)
	require.Contains(t, s.Storage().Reason, "another process reads")
	_, err = s.Settle(t.Context(), settlement(running, edge.OutcomeSucceeded))
	require.NoError(t, err, "ends are stored")
	peak, tries, err := s.LogPeakForTest(t.Context())
	require.NoError(t, err)
	require.LessOrEqual(t, peak, most)
	require.Positive(t, tries)

	_, err = foreign.ExecContext(t.Context(), `ROLLBACK`)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return s.Storage().State == edge.StorageHealthy }, 30*time.Second, 10*time.Millisecond,
		"without a restart, and without a commit that would look")
	write(t, s, 0, 1)
	require.NoError(t, s.VerifyWriterForTest(t.Context()), "the connection is as it was")
}

// A commit adds a bounded number of bytes to the log, whatever waits.
func TestP10_ABatchIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	s := openAt(t, dbPath(t), sqlite.Options{})
	const n = 40
	release := s.HoldUpForTest()
	before := s.Commits()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			sub := submission(fmt.Sprint(i), "k")
			sub.Event.Data = make([]byte, 1<<20)
			_, err := s.Accept(context.Background(), []edge.Submission{sub})
			if err != nil {
				t.Error(err)
			}
		})
	}
	require.Eventually(t, func() bool { return s.QueuedForTest() == n }, 30*time.Second, time.Millisecond)
	release()
	all.Wait()
	require.GreaterOrEqual(t, s.Commits()-before, int64(n/8))
}
