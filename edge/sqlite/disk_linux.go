package sqlite

import (
	"os"

	"golang.org/x/sys/unix"
)

// lookAt asks the file system of a directory.
func lookAt(dir string) (disk, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return disk{free: -1}, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return disk{free: int64(st.Bavail) * int64(st.Bsize), readOnly: st.Flags&unix.ST_RDONLY != 0}, nil
}

// sameDisk reports whether two directories are on one file system.
func sameDisk(a, b string) bool {
	var x, y unix.Stat_t
	return unix.Stat(a, &x) == nil && unix.Stat(b, &y) == nil && x.Dev == y.Dev
}
