package sqlite_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/sqlite"
)

// T16: whatever stands where a file beside the database will be is refused, with
// the name and the way out, and is as it was.
func TestT16_WhatIsPlantedBesideTheDatabaseIsRefused(t *testing.T) {
	t.Parallel()
	plants := map[string]struct {
		plant func(t *testing.T, path string)
		says  string
	}{
		"symbolic link": {func(t *testing.T, path string) {
			victim := filepath.Join(t.TempDir(), "victim")
			require.NoError(t, os.WriteFile(victim, []byte("precious"), 0o600))
			require.NoError(t, os.Symlink(victim, path))
		}, "is a symbolic link"},
		"dangling link": {func(t *testing.T, path string) { require.NoError(t, os.Symlink(path+".nowhere", path)) }, "is a symbolic link"},
		"hard link": {func(t *testing.T, path string) {
			require.NoError(t, os.WriteFile(path, nil, 0o600))
			require.NoError(t, os.Link(path, path+".other"))
		}, "has 2 names"},
		"FIFO":      {func(t *testing.T, path string) { require.NoError(t, syscall.Mkfifo(path, 0o600)) }, "is not a plain file"},
		"directory": {func(t *testing.T, path string) { require.NoError(t, os.Mkdir(path, 0o700)) }, "is not a plain file"},
		"loose file": {func(t *testing.T, path string) {
			require.NoError(t, os.WriteFile(path, nil, 0o600))
			require.NoError(t, os.Chmod(path, 0o644))
		}, "run: chmod 600"},
	}
	for _, suffix := range []string{"-wal", "-shm", "-journal", ".lock"} {
		for name, p := range plants {
			t.Run(suffix+" "+name, func(t *testing.T) {
				t.Parallel()
				db := fresh(t)
				require.NoError(t, os.RemoveAll(db+suffix))
				p.plant(t, db+suffix)
				before, err := os.Lstat(db + suffix)
				require.NoError(t, err)
				was := tree(t, filepath.Dir(db))
				_, err = sqlite.Open(db, sqlite.Options{})
				require.ErrorIs(t, err, edge.ErrInvalid)
				require.ErrorContains(t, err, db+suffix)
				require.ErrorContains(t, err, p.says)
				after, err := os.Lstat(db + suffix)
				require.NoError(t, err)
				require.True(t, os.SameFile(before, after))
				require.Equal(t, was, tree(t, filepath.Dir(db)))
			})
		}
	}
}

// tree is name, kind, mode and size of all that is in a directory.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		fi, err := e.Info()
		require.NoError(t, err)
		found[e.Name()] = fi.Mode().String() + fi.ModTime().String()
	}
	return found
}

func TestT16_TheDirectoryMustBeOurs(t *testing.T) {
	t.Parallel()
	for _, mode := range []fs.FileMode{0o777, 0o770, 0o722, 0o777 | fs.ModeSticky} {
		dir := t.TempDir()
		require.NoError(t, os.Chmod(dir, mode))
		_, err := sqlite.Open(filepath.Join(dir, "x.db"), sqlite.Options{})
		require.ErrorIs(t, err, edge.ErrInvalid, mode)
		require.ErrorContains(t, err, "chmod go-w "+dir)
		require.Empty(t, tree(t, dir), "nothing was made")
	}
	if os.Geteuid() == 0 {
		dir := t.TempDir()
		require.NoError(t, os.Chown(dir, 12345, -1))
		_, err := sqlite.Open(filepath.Join(dir, "x.db"), sqlite.Options{})
		require.ErrorIs(t, err, edge.ErrInvalid)
		require.ErrorContains(t, err, "belongs to user 12345")
		require.Empty(t, tree(t, dir))
	}
}
