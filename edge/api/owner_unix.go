//go:build unix

package api

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/google/renameio/v2"
)

// noFollow makes opening a symbolic link fail; nonblocking, so that opening a
// FIFO does not hang.
const noFollow = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// ours refuses a file of another user, and one with other names.
func ours(fi fs.FileInfo) error {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return errors.New("has no owner that can be read")
	}
	if uid := os.Geteuid(); int(st.Uid) != uid {
		return fmt.Errorf("belongs to user %d, not to user %d who runs this: choose another, or chown it", st.Uid, uid)
	}
	if !fi.IsDir() && st.Nlink > 1 {
		return errors.New("has more than one name (hard links): remove the others")
	}
	return nil
}

// rootOwns reports whether the file is root's, who could do everything anyway.
func rootOwns(fi fs.FileInfo) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && st.Uid == 0
}

func ofGroup(fi fs.FileInfo, gid int) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && int(st.Gid) == gid
}

// umask is the process's: one change at a time.
var umask sync.Mutex

// listenPrivate makes the socket under a umask that keeps others out from its
// first moment.
func listenPrivate(path string) (net.Listener, error) {
	umask.Lock()
	defer umask.Unlock()
	defer syscall.Umask(syscall.Umask(0o177))
	return net.Listen("unix", path)
}

// nobodyListens reports whether connecting failed because the socket has no
// listener.
func nobodyListens(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist)
}

// writePrivate writes a file that only its owner can read, whole or not at all. It
// is never anywhere but in its own directory.
func writePrivate(path, content string) error {
	return renameio.WriteFile(path, []byte(content), 0o600, renameio.WithStaticPermissions(0o600), renameio.WithTempDir(filepath.Dir(path)))
}
