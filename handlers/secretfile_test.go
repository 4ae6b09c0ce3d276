package handlers_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/handlers"
)

// R97, T17: a secret that others can use is refused with the way out, and one
// that was mended is read.
func TestR97_ASecretThatOthersCanUseIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(path, []byte(canary), 0o600))
	for _, mode := range []fs.FileMode{0o640, 0o604, 0o644, 0o620, 0o602, 0o666} {
		require.NoError(t, os.Chmod(path, mode))
		_, err := handlers.ResolveSecret("file:" + path)
		require.ErrorIs(t, err, handlers.ErrSecretMissing, mode)
		require.ErrorContains(t, err, "chmod 600")
		require.ErrorContains(t, err, path)
		require.NotContains(t, err.Error(), canary)
	}
	for _, mode := range []fs.FileMode{0o600, 0o400} {
		require.NoError(t, os.Chmod(path, mode))
		s, err := handlers.ResolveSecret("file:" + path)
		require.NoError(t, err, mode)
		require.Equal(t, canary, s.Reveal())
	}
}

func TestT16_ASecretIsAFileOfOurs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	_, err := handlers.ResolveSecret("file:" + fifo) // and it does not wait for a writer
	require.ErrorContains(t, err, "not a regular file")

	loose, link := filepath.Join(dir, "loose"), filepath.Join(dir, "link")
	require.NoError(t, os.WriteFile(loose, []byte(canary), 0o600))
	require.NoError(t, os.Symlink(loose, link))
	s, err := handlers.ResolveSecret("file:" + link)
	require.NoError(t, err, "a link is how secrets are often supplied")
	require.Equal(t, canary, s.Reveal())
	require.NoError(t, os.Chmod(loose, 0o644))
	_, err = handlers.ResolveSecret("file:" + link)
	require.ErrorContains(t, err, "chmod 600", "what the link leads to counts")

	foreign := filepath.Join(dir, "foreign")
	if os.Geteuid() == 0 { // only root can make a file of another
		require.NoError(t, os.WriteFile(foreign, []byte(canary), 0o600))
		require.NoError(t, os.Chown(foreign, 12345, -1))
		_, err = handlers.ResolveSecret("file:" + foreign)
		require.ErrorContains(t, err, "belongs to user 12345")
	}
}

// systemd shows the mask of the access list of a credential as group bits.
func TestACredentialMayShowGroupBits(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "hook")
	require.NoError(t, os.WriteFile(path, []byte(canary), 0o600))
	require.NoError(t, os.Chmod(path, 0o440))
	_, err := handlers.ResolveSecret("file:" + path)
	require.ErrorContains(t, err, "chmod 600")
	t.Setenv("CREDENTIALS_DIRECTORY", dir+"/")
	s, err := handlers.ResolveSecret("file:" + path)
	require.NoError(t, err)
	require.Equal(t, canary, s.Reveal())
	require.NoError(t, os.Chmod(path, 0o444))
	_, err = handlers.ResolveSecret("file:" + path)
	require.ErrorContains(t, err, "chmod 600")
}
