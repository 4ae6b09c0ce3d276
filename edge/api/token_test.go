package api_test

import (
	"encoding/base64"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"fencepost/edge/api"

	"github.com/stretchr/testify/require"
)

func TestEnsureToken_WritesOneAtFirstStart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	h, created, err := api.EnsureToken(path)
	require.NoError(t, err)
	require.True(t, created)
	fi, err := os.Lstat(path)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), fi.Mode())
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	token := strings.TrimSuffix(string(text), "\n")
	secret, err := base64.RawURLEncoding.DecodeString(token)
	require.NoError(t, err)
	require.Len(t, secret, 32, "256 bits")
	require.Equal(t, api.HashToken(token), h)

	again, created, err := api.EnsureToken(path)
	require.NoError(t, err)
	require.False(t, created)
	require.Equal(t, h, again)

	other, _, err := api.EnsureToken(filepath.Join(t.TempDir(), "token"))
	require.NoError(t, err)
	require.NotEqual(t, h, other)
}

func TestR92_EnsureToken_Refuses(t *testing.T) {
	t.Parallel()
	const secret = "do-not-show-this-canary"
	for name, c := range map[string]struct {
		plant func(t *testing.T, path string)
		want  string
	}{
		"empty":       {write("", 0o600), "empty"},
		"blank":       {write(" \n", 0o600), "empty"},
		"newline":     {write("\n", 0o600), "empty"},
		"short":       {write("abc\n", 0o600), "characters"},
		"long":        {write(strings.Repeat("x", 5000), 0o600), "characters"},
		"two":         {write(secret+"\n"+secret+"\n", 0o600), "more than one"},
		"binary":      {write(secret+"\x00", 0o600), "printable"},
		"group reads": {write(secret, 0o640), "chmod 600"},
		"world reads": {write(secret, 0o604), "chmod 600"},
		"group":       {write(secret, 0o620), "chmod 600"},
		"directory":   {func(t *testing.T, path string) { require.NoError(t, os.Mkdir(path, 0o700)) }, "regular"},
		"fifo":        {func(t *testing.T, path string) { require.NoError(t, syscall.Mkfifo(path, 0o600)) }, "regular"},
		"link": {func(t *testing.T, path string) {
			write(secret, 0o600)(t, path+"x")
			require.NoError(t, os.Symlink(path+"x", path))
		}, "symbolic link"},
		"dangling link": {func(t *testing.T, path string) { require.NoError(t, os.Symlink(path+"x", path)) }, "symbolic link"},
		"hard link": {func(t *testing.T, path string) {
			write(secret, 0o600)(t, path+"x")
			require.NoError(t, os.Link(path+"x", path))
		}, "more than one name"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "token")
			c.plant(t, path)
			before, err := os.Lstat(path)
			require.NoError(t, err)
			h, created, err := api.EnsureToken(path)
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, path)
			require.NotContains(t, err.Error(), secret)
			require.False(t, created)
			require.Equal(t, api.TokenHash{}, h, "closed")
			after, err := os.Lstat(path)
			require.NoError(t, err)
			require.True(t, os.SameFile(before, after))
			require.Equal(t, before.Size(), after.Size())
		})
	}
	_, _, err := api.EnsureToken(filepath.Join(t.TempDir(), "no", "directory"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func write(content string, mode fs.FileMode) func(*testing.T, string) {
	return func(t *testing.T, path string) {
		t.Helper()
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		require.NoError(t, os.Chmod(path, mode))
	}
}
