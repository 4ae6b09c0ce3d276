package api_test

import (
	"context"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"fencepost/edge"
	"fencepost/edge/api"

	"github.com/stretchr/testify/require"
)

func TestT16_TheSocketIsOurs(t *testing.T) {
	t.Parallel()
	path := socketPath(t)
	l, err := api.ListenUnix(path, api.SocketOptions{})
	require.NoError(t, err)
	fi, err := os.Lstat(path)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), fi.Mode().Perm())

	_, err = api.ListenUnix(path, api.SocketOptions{})
	require.ErrorIs(t, err, edge.ErrConflict, "somebody answers")
	_, err = os.Lstat(path)
	require.NoError(t, err, "and keeps the socket")

	require.NoError(t, l.Close())
	_, err = os.Lstat(path)
	require.ErrorIs(t, err, fs.ErrNotExist, "closing removes it")
}

func TestT16_AStaleSocketIsReplaced(t *testing.T) {
	t.Parallel()
	path := socketPath(t)
	addr := &net.UnixAddr{Name: path, Net: "unix"}
	old, err := net.ListenUnix("unix", addr)
	require.NoError(t, err)
	old.SetUnlinkOnClose(false) // as a process that was killed
	require.NoError(t, old.Close())
	l, err := api.ListenUnix(path, api.SocketOptions{})
	require.NoError(t, err)
	require.NoError(t, l.Close())
}

func TestT16_WhatIsNoSocketIsNotTouched(t *testing.T) {
	t.Parallel()
	for name, plant := range map[string]func(t *testing.T, path string){
		"file":      func(t *testing.T, path string) { require.NoError(t, os.WriteFile(path, []byte("mine"), 0o600)) },
		"directory": func(t *testing.T, path string) { require.NoError(t, os.Mkdir(path, 0o700)) },
		"fifo":      func(t *testing.T, path string) { require.NoError(t, syscall.Mkfifo(path, 0o600)) },
		"link to a stale socket": func(t *testing.T, path string) {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path + "x", Net: "unix"})
			require.NoError(t, err)
			l.SetUnlinkOnClose(false)
			require.NoError(t, l.Close())
			require.NoError(t, os.Symlink(path+"x", path))
		},
		"dangling link": func(t *testing.T, path string) { require.NoError(t, os.Symlink("/nowhere/at/all", path)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := socketPath(t)
			plant(t, path)
			before, err := os.Lstat(path)
			require.NoError(t, err)
			_, err = api.ListenUnix(path, api.SocketOptions{})
			require.ErrorIs(t, err, edge.ErrInvalid)
			require.ErrorContains(t, err, "no socket")
			require.ErrorContains(t, err, path)
			after, err := os.Lstat(path)
			require.NoError(t, err)
			require.True(t, os.SameFile(before, after))
		})
	}
}

func TestT16_TheDirectoryMustBePrivate(t *testing.T) {
	t.Parallel()
	path := socketPath(t)
	dir := filepath.Dir(path)
	for _, mode := range []fs.FileMode{0o777, 0o770, 0o722} {
		require.NoError(t, os.Chmod(dir, mode))
		_, err := api.ListenUnix(path, api.SocketOptions{})
		require.ErrorIs(t, err, edge.ErrInvalid, mode)
		require.ErrorContains(t, err, "chmod")
		_, err = os.Lstat(path)
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
	_, err := api.ListenUnix(filepath.Join(dir, "none", "s"), api.SocketOptions{})
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = api.ListenUnix(filepath.Join(dir, strings.Repeat("x", 120)), api.SocketOptions{})
	require.ErrorIs(t, err, edge.ErrInvalid)
	require.ErrorContains(t, err, "shorter")
}

func TestDial_NoNode(t *testing.T) {
	t.Parallel()
	path := socketPath(t)
	_, err := api.Dial(t.Context(), path)
	require.ErrorIs(t, err, api.ErrNoNode)
	require.ErrorContains(t, err, "fencepost serve")
	require.Equal(t, api.ExitNoNode, api.ClassOf(err).Exit)

	old, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	old.SetUnlinkOnClose(false)
	require.NoError(t, old.Close())
	_, err = api.Dial(t.Context(), path)
	require.ErrorIs(t, err, api.ErrNoNode, "a socket that a killed node left")
}

func TestClient_NodeGoesAway(t *testing.T) {
	t.Parallel()
	path := socketPath(t)
	l, err := api.ListenUnix(path, api.SocketOptions{})
	require.NoError(t, err)
	n := newNode(t)
	s := api.NewServer(api.NewLocalHandler(n, api.LocalOptions{}), nil, api.Timeouts{})
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	c := dial(t, path)
	_, err = c.Status(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.ErrorIs(t, <-done, http.ErrServerClosed)
	_, err = c.Status(t.Context())
	require.ErrorIs(t, err, api.ErrNoNode)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.Status(ctx)
	require.ErrorIs(t, err, context.Canceled)
}
