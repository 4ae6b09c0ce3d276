//go:build unix

package sqlite

import (
	"os"
	"sync"
	"syscall"
)

// keepsModes says that files have modes that mean something.
const keepsModes = true

// ownership tells who owns a file and how many names it has.
func ownership(fi os.FileInfo) (uid uint32, links uint64, ok bool) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return st.Uid, uint64(st.Nlink), true
}

// The mask is the whole process's, so only one opening at a time changes it.
var umaskLock sync.Mutex

// umask077 makes new files private and returns the undoing.
func umask077() func() {
	umaskLock.Lock()
	old := syscall.Umask(0o077)
	return func() {
		syscall.Umask(old)
		umaskLock.Unlock()
	}
}

// noFollow makes an open refuse a symbolic link.
const noFollow = syscall.O_NOFOLLOW

// inodeOf names a file within its device.
func inodeOf(fi os.FileInfo) (ino, dev uint64) {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Ino), uint64(st.Dev)
	}
	return 0, 0
}
