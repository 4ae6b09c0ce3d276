package sqlite_test

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/sqlite"
)

const mib = 1 << 20

// Below the low-water mark nothing is taken or begun, what is under way ends, and
// with space it goes on by itself.
func TestStorage_BelowTheLowWaterMark(t *testing.T) {
	t.Parallel()
	s := openAt(t, dbPath(t), sqlite.Options{Limits: sqlite.Limits{LowWaterBytes: 64 * mib}})
	register(t, s, edge.Registration{Name: "hook"})
	require.NoError(t, take(t, s, 0, "a", "hook").Err)
	running := claimOne(t, s)
	require.NoError(t, take(t, s, 1, "b", "hook").Err)

	s.DiskForTest(63*mib, false)
	s.CheckSpaceForTest()
	st := s.Storage()
	require.Equal(t, edge.StorageLow, st.State)
	require.Contains(t, st.Reason, "low_water_bytes")
	require.EqualValues(t, 63*mib, st.FreeBytes)
	require.False(t, st.SpentReserve)

	_, err := s.Accept(t.Context(), []edge.Submission{submission("new", "c", "hook")})
	require.ErrorIs(t, err, edge.ErrLowSpace)
	require.ErrorIs(t, err, edge.ErrUnavailable)
	cs, err := s.Claim(t.Context(), 10)
	require.NoError(t, err)
	require.Empty(t, cs)
	got := make(chan edge.Claimed, 16)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- s.Dispatch(ctx, func(cs []edge.Claimed) {
			for _, c := range cs {
				got <- c
			}
		})
	}()
	settled, err := s.Settle(t.Context(), settlement(running, edge.OutcomeSucceeded))
	require.NoError(t, err)
	require.Equal(t, edge.Succeeded, settled.State)
	require.Empty(t, got)

	s.DiskForTest(66*mib, false) // a little more than the mark is not enough
	s.CheckSpaceForTest()
	require.Equal(t, edge.StorageLow, s.Storage().State)
	s.DiskForTest(80*mib, false)
	s.CheckSpaceForTest()
	require.Equal(t, edge.StorageHealthy, s.Storage().State)
	select {
	case c := <-got:
		require.Equal(t, "1001", c.Event.ID)
	case <-time.After(30 * time.Second):
		t.Fatal("nothing was claimed when there was space again")
	}
	require.NoError(t, take(t, s, 2, "c", "hook").Err)
	require.EqualValues(t, 1, s.Storage().Refused)
	cancel()
	require.NoError(t, <-ended)
}

// With the first commit for which there is no room the reserve goes, and only ends
// are stored; with room the reserve comes back and all goes on.
func TestP4_TheReserveGoesAndComesBack(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	s := openAt(t, path, sqlite.Options{ReserveBytes: mib})
	register(t, s, edge.Registration{Name: "hook"}, edge.Registration{Name: "see", Inspect: true})
	s.CheckSpaceForTest()
	fi, err := os.Lstat(path + "-reserve")
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), fi.Mode())
	require.GreaterOrEqual(t, fi.Sys().(*syscall.Stat_t).Blocks*512, int64(mib), "it really takes the room")
	require.EqualValues(t, mib, s.Storage().ReserveBytes)

	require.NoError(t, take(t, s, 0, "a", "hook").Err)
	running := claimOne(t, s)
	require.NoError(t, take(t, s, 1, "b", "see").Err)
	leased := claimOne(t, s)
	waiting := take(t, s, 2, "c", "hook").Deliveries[0].ID
	require.NoError(t, s.OnWriterForTest(t.Context(), `PRAGMA max_page_count=1`)) // SQLite takes the present size instead
	s.DiskForTest(0, false)
	big := submission("big", "d", "hook")
	big.Event.Data = make([]byte, 200_000)
	_, err = s.Accept(t.Context(), []edge.Submission{big})
	require.ErrorIs(t, err, edge.ErrUnavailable)
	_, err = os.Lstat(path + "-reserve")
	require.ErrorIs(t, err, os.ErrNotExist)
	st := s.Storage()
	require.Equal(t, edge.StorageLow, st.State)
	require.True(t, st.SpentReserve)
	require.Zero(t, st.ReserveBytes)

	// What is not an end is refused, and changes nothing.
	_, err = s.Accept(t.Context(), []edge.Submission{submission("new", "e", "hook")})
	require.ErrorIs(t, err, edge.ErrLowSpace)
	_, err = s.Start(t.Context(), leased.Fence, leased.Token)
	require.ErrorIs(t, err, edge.ErrLowSpace)
	_, err = s.Prune(t.Context(), edge.PrunePolicy{SucceededBeforeMS: 1, Limit: 10})
	require.ErrorIs(t, err, edge.ErrLowSpace)
	_, err = s.Acquire(t.Context(), edge.Target{Handler: "hook", Key: "x"})
	require.ErrorIs(t, err, edge.ErrLowSpace)
	cs, err := s.Claim(t.Context(), 10)
	require.True(t, err == nil && len(cs) == 0 || err != nil, "%v", err)

	// Ends are stored: settle, release, cancel.
	_, err = s.Settle(t.Context(), settlement(running, edge.OutcomeSucceeded))
	require.NoError(t, err)
	_, err = s.Release(t.Context(), settlement(leased, edge.OutcomeInterrupted))
	require.NoError(t, err)
	d, err := s.Cancel(t.Context(), waiting)
	require.NoError(t, err)
	require.Equal(t, edge.Cancelled, d.State)
	_, err = s.Renew(t.Context(), nil)
	require.NoError(t, err)

	s.CheckSpaceForTest()
	require.Equal(t, edge.StorageLow, s.Storage().State, "the disk is still full")
	s.DiskForTest(1<<30, false)
	s.CheckSpaceForTest()
	st = s.Storage()
	require.Equal(t, edge.StorageHealthy, st.State)
	require.False(t, st.SpentReserve)
	require.EqualValues(t, mib, st.ReserveBytes)
	require.FileExists(t, path+"-reserve")
	require.NoError(t, s.OnWriterForTest(t.Context(), `PRAGMA max_page_count=1000000`))
	as, err := s.Accept(t.Context(), []edge.Submission{big})
	require.NoError(t, err)
	require.False(t, as[0].Existing)
}

// A file system that was made read-only, or is not there any more, is noticed
// without a commit, and is the end of this process's store.
func TestP6_AnUnusableFileSystem(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		harm func(t *testing.T, s *sqlite.Store, dir string)
		says string
	}{
		"read-only": {func(_ *testing.T, s *sqlite.Store, _ string) { s.DiskForTest(1<<30, true) }, "is read-only: .*look at the disk and its mount"},
		"gone":      {func(t *testing.T, _ *sqlite.Store, dir string) { require.NoError(t, os.Rename(dir, dir+".gone")) }, "is gone: .*look at the disk and its mount|was deleted or moved while it was in use"}, // whichever look is first

		"another": {func(t *testing.T, _ *sqlite.Store, dir string) {
			require.NoError(t, os.Rename(dir, dir+".gone"))
			require.NoError(t, os.Mkdir(dir, 0o700))
		}, "another directory is in the place of .*look at the disk and its mount|was deleted or moved while it was in use"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			require.NoError(t, os.Mkdir(dir, 0o700))
			s, err := sqlite.Open(filepath.Join(dir, "db"), sqlite.Options{})
			require.NoError(t, err)
			t.Cleanup(func() { _ = s.Close() })
			c.harm(t, s, dir)
			s.CheckSpaceForTest()
			<-s.Failed()
			require.Equal(t, edge.StorageFault, s.Storage().State)
			_, err = s.Accept(t.Context(), []edge.Submission{submission("1", "k")})
			require.ErrorIs(t, err, edge.ErrStorage)
			require.Regexp(t, c.says, err.Error())
		})
	}
}
