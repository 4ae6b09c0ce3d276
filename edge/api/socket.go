package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"time"

	"fencepost/edge"
)

// maxSocketPath is the longest path that every system takes for a socket.
const maxSocketPath = 103

// staleWait is how long a socket that is there may take to answer.
const staleWait = time.Second

// SocketOptions say who may use a socket beside root and the user who listens.
type SocketOptions struct {
	// Group is the name or number of a group whose members may connect, and so
	// may do all that an operator can; "" is none. The user who listens must be
	// a member of it, or root.
	Group string
}

// ListenUnix listens on a unix socket: mode 0600, or 0660 with a group. Its
// directory must be ours or root's and not writable by others. A socket file
// that is there already is removed only if it is a socket, ours, and nobody
// answers on it; anything else at the path is refused and not touched. Where the
// system tells who connects (Linux), others are refused whatever the modes are.
// ErrConflict: someone answers. Closing the listener removes the file.
func ListenUnix(path string, o SocketOptions) (net.Listener, error) {
	l, err := listenUnix(path, o)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", fullPath(path), err)
	}
	return l, nil
}

func listenUnix(path string, o SocketOptions) (net.Listener, error) {
	gid, err := checkSocket(path, o)
	if err != nil {
		return nil, err
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	l, err := listenPrivate(path)
	if err != nil {
		return nil, err
	}
	if err := admit(path, gid); err != nil {
		_ = l.Close()
		return nil, err
	}
	return &peerListener{Listener: l, group: gid}, nil
}

// admit gives the socket its final modes.
func admit(path string, gid int) error {
	if gid < 0 {
		return os.Chmod(path, 0o600)
	}
	if err := os.Lchown(path, -1, gid); err != nil {
		return fmt.Errorf("%w: it cannot be given to group %d: %w: make the user of the node a member of that group (in a unit: SupplementaryGroups=)", edge.ErrInvalid, gid, err)
	}
	return os.Chmod(path, 0o660)
}

// CheckSocket looks whether a socket can be made at path, and changes nothing.
// It returns the number of the group, -1 for none.
func CheckSocket(path string, o SocketOptions) (gid int, err error) {
	if gid, err = checkSocket(path, o); err != nil {
		return -1, fmt.Errorf("socket %s: %w", fullPath(path), err)
	}
	return gid, nil
}

func checkSocket(path string, o SocketOptions) (gid int, err error) {
	if len(path) > maxSocketPath {
		return -1, fmt.Errorf("%w: the path has %d bytes, the limit is %d: choose a shorter one", edge.ErrInvalid, len(path), maxSocketPath)
	}
	if err := privateDir(filepath.Dir(path)); err != nil {
		return -1, err
	}
	if fi, err := os.Lstat(path); err == nil {
		if err := ourSocket(fi); err != nil {
			return -1, err
		}
	}
	if o.Group == "" {
		return -1, nil
	}
	if gid, err = groupID(o.Group); err != nil {
		return -1, err
	}
	return gid, reachable(filepath.Dir(path), gid)
}

func groupID(name string) (int, error) {
	g, err := user.LookupGroup(name)
	if err != nil {
		if g, err = user.LookupGroupId(name); err != nil {
			return -1, fmt.Errorf("%w: there is no group %q here: make it (groupadd %s), or name another", edge.ErrInvalid, name, name)
		}
	}
	return strconv.Atoi(g.Gid)
}

// reachable refuses a directory that members of the group cannot get into.
func reachable(dir string, gid int) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	for at := dir; ; at = filepath.Dir(at) {
		fi, err := os.Stat(at)
		if err != nil {
			return err
		}
		if mode := fi.Mode().Perm(); mode&0o001 == 0 && (mode&0o010 == 0 || !ofGroup(fi, gid)) {
			return fmt.Errorf("%w: members of the group cannot get into %s (mode %04o): put the socket into a directory that they can enter, such as /run/fencepost", edge.ErrInvalid, at, mode)
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

// privateDir refuses a directory in which others could replace the socket.
func privateDir(dir string) error {
	fi, err := os.Stat(dir)
	if err != nil {
		return err
	}
	switch {
	case !fi.IsDir():
		return fmt.Errorf("%w: %s is not a directory", edge.ErrInvalid, fullPath(dir))
	case fi.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%w: directory %s has mode %04o, so others could replace the socket: run chmod go-w on it, or choose another", edge.ErrInvalid, fullPath(dir), fi.Mode().Perm())
	}
	if err := ours(fi); err != nil && !rootOwns(fi) {
		return fmt.Errorf("%w: directory %s %w", edge.ErrInvalid, fullPath(dir), err)
	}
	return nil
}

func ourSocket(fi fs.FileInfo) error {
	if fi.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%w: something that is no socket is there (%s): move it away, or choose another path", edge.ErrInvalid, kindOf(fi))
	}
	if err := ours(fi); err != nil {
		return fmt.Errorf("%w: the socket that is there %w", edge.ErrInvalid, err)
	}
	return nil
}

func kindOf(fi fs.FileInfo) string {
	switch t := fi.Mode().Type(); {
	case t == 0:
		return "a file"
	case t&fs.ModeSymlink != 0:
		return "a symbolic link"
	case t.IsDir():
		return "a directory"
	case t&fs.ModeNamedPipe != 0:
		return "a named pipe"
	default:
		return t.String()
	}
}

func removeStale(path string) error {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := ourSocket(fi); err != nil {
		return err
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
