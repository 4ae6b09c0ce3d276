package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/edgetest"
	"fencepost/edge/sqlite"
)

// A declaration that could not be stored leaves the one before in force, in the
// file and in memory.
func TestRegister_WhatIsNotStoredIsNotInForce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "db")
	s, err := sqlite.Open(path, sqlite.Options{})
	require.NoError(t, err)
	defer s.Close()
	old := edge.Registration{Name: "h", Revision: "a", Effect: edge.Once, Serial: 1, Slots: 1, Limit: 2}
	other := edge.Registration{Name: "other", Revision: "a", Effect: edge.Once, Serial: 1, Slots: 1, Limit: 2}
	require.NoError(t, s.Register(t.Context(), []edge.Registration{old, other}, 2, 60_000))
	exe(t, raw(t, path), `CREATE TRIGGER poison BEFORE INSERT ON revisions BEGIN SELECT RAISE(ABORT, 'no'); END`)

	next := edge.Registration{Name: "h", Revision: "b", Effect: edge.Idempotent, Serial: 2, Slots: 1, Limit: 50}
	require.Error(t, s.Register(t.Context(), []edge.Registration{next}, 50, 30_000))
	var subs []edge.Submission
	for _, key := range []string{"x", "y", "z"} {
		subs = append(subs, edgetest.Owe(key, "h", key))
	}
	subs = append(subs, edgetest.Owe("o", "other", "o"))
	_, err = s.Accept(t.Context(), subs)
	require.NoError(t, err)
	cs, err := s.Claim(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, cs, 2, "the old limit")
	left := 3 // of h; which handler is served first is open
	for _, c := range cs {
		if c.Target.Handler == "h" {
			left--
		}
		require.Equal(t, int64(1), c.Serial)
		require.Equal(t, edge.Once, c.Effect)
		xs, err := s.Executions(t.Context(), c.Delivery)
		require.NoError(t, err)
		require.Equal(t, edge.Once, xs[0].Effect)
		require.Equal(t, "a", xs[0].Revision)
	}
	hs, err := s.Handlers(t.Context())
	require.NoError(t, err)
	require.Equal(t, edge.GateOn, hs[1].Gate, "it was not left out")

	exe(t, raw(t, path), `DROP TRIGGER poison`)
	require.NoError(t, s.Register(t.Context(), []edge.Registration{next}, 50, 30_000))
	cs, err = s.Claim(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, cs, left)
	for _, c := range cs {
		require.Equal(t, int64(2), c.Serial)
	}
	edgetest.CheckInvariants(t, s)
}

// Among sharers a digest changes only to what every live one has.
func TestReconfigure(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "db")
	open := func(config string) (*sqlite.Store, error) {
		return sqlite.Open(path, sqlite.Options{Share: true, Config: config})
	}
	one, err := open("a")
	require.NoError(t, err)
	defer one.Close()
	require.NoError(t, one.Reconfigure(t.Context(), "b"), "alone it may have any")
	_, err = open("a")
	require.ErrorIs(t, err, edge.ErrConflict)
	two, err := open("b")
	require.NoError(t, err)
	require.ErrorIs(t, one.Reconfigure(t.Context(), "c"), edge.ErrConflict)
	require.ErrorIs(t, two.Reconfigure(t.Context(), "c"), edge.ErrConflict)
	require.NoError(t, one.Reconfigure(t.Context(), "b"))
	require.NoError(t, two.Close())
	require.NoError(t, one.Reconfigure(t.Context(), "c"), "the other is gone")
	edgetest.CheckInvariants(t, one)
}
