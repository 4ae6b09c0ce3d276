package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// networkFS names the file systems on which SQLite's locks or its shared
// memory do not hold, by their statfs type (linux/magic.h).
func networkFS(magic int64) (string, bool) {
	switch uint32(magic) {
	case 0x6969:
		return "NFS", true
	case 0xff534d42, 0x517b, 0xfe534d42:
		return "SMB", true
	case 0x01021997:
		return "9p", true
	}
	return "", false
}

// renameNew gives a file a name that must not be taken yet.
func renameNew(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) { // the file system cannot
		return os.Rename(from, to)
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

// checkFS refuses a directory on a network file system.
func checkFS(path string) error {
	var st unix.Statfs_t
	dir := filepath.Dir(path)
	if err := unix.Statfs(dir, &st); err != nil {
		return &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	if name, bad := networkFS(int64(st.Type)); bad {
		return fmt.Errorf("%s lies on %s, where SQLite's locks do not hold; put the database on a local disk", path, name)
	}
	return nil
}
