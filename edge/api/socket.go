package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"fencepost/edge"
)

// maxSocketPath is the longest path that every system takes for a socket.
const maxSocketPath = 103

// staleWait is how long a socket that is there may take to answer.
const staleWait = time.Second

// ListenUnix listens on a unix socket that only this user can connect to. Its
// directory must be ours and not writable by others. A socket file that is there
// already is removed only if it is a socket, ours, and nobody answers on it;
// anything else at the path is refused and not touched. ErrConflict: someone
// answers. Closing the listener removes the file.
func ListenUnix(path string) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("%w: socket %s: the path has %d bytes, the limit is %d: choose a shorter one", edge.ErrInvalid, path, len(path), maxSocketPath)
	}
	if err := privateDir(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	if err := removeStale(path); err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	l, err := listenPrivate(path)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	return l, nil
}

// privateDir refuses a directory in which others could replace the socket.
func privateDir(dir string) error {
	fi, err := os.Stat(dir)
	if err != nil {
		return err
	}
	switch {
	case !fi.IsDir():
		return fmt.Errorf("%w: %s is not a directory", edge.ErrInvalid, dir)
	case fi.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%w: directory %s has mode %04o, so others could replace the socket: chmod go-w it, or choose another", edge.ErrInvalid, dir, fi.Mode().Perm())
	}
	if err := ours(fi); err != nil {
		return fmt.Errorf("%w: directory %s %w", edge.ErrInvalid, dir, err)
	}
	return nil
}

func removeStale(path string) error {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if fi.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%w: something that is no socket is there (%s): move it away, or choose another path", edge.ErrInvalid, fi.Mode().Type())
	}
	if err := ours(fi); err != nil {
		return fmt.Errorf("%w: the socket that is there %w", edge.ErrInvalid, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), staleWait)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err == nil {
		_ = c.Close()
		return fmt.Errorf("%w: a node answers on it: stop that one, or choose another path", edge.ErrConflict)
	}
	if !nobodyListens(err) {
		return fmt.Errorf("%w: it is not certain that nobody uses it: %w", edge.ErrConflict, err)
	}
	return os.Remove(path)
}
