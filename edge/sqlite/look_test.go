package sqlite_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/sqlite"
)

// A look at the file of a node that is down neither keeps the node from starting
// nor another look from being taken, and is not blamed on the node that ended.
func TestOffline_ALookIsWaitedForAndALivingNodeIsNot(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	s := openAt(t, path, sqlite.Options{})
	tries := 0
	held := func() (bool, error) { tries++; return false, nil }
	ok, err := sqlite.TakePatientlyForTest(path, held)
	require.NoError(t, err)
	require.False(t, ok)
	require.Equal(t, 1, tries, "who works on the file is not waited for")
	require.NoError(t, s.Close())

	look, err := sqlite.OpenReadOnly(t.Context(), path, edge.NewClock(nil))
	require.NoError(t, err)
	tries = 0
	ok, err = sqlite.TakePatientlyForTest(path, func() (bool, error) {
		if tries++; tries == 3 {
			require.NoError(t, look.Close())
			return true, nil
		}
		return false, nil
	})
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, 3, tries)

	// The same with locks: the one opens when the other has closed.
	look, err = sqlite.OpenReadOnly(t.Context(), path, edge.NewClock(nil))
	require.NoError(t, err)
	opened := make(chan error, 1)
	go func() {
		s, err := sqlite.Open(path, sqlite.Options{})
		if err == nil {
			err = s.Close()
		}
		opened <- err
	}()
	require.NoError(t, look.Close())
	require.NoError(t, <-opened)
}
