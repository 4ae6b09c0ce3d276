//go:build !linux

package sqlite

import "os"

// checkFS knows no network file systems here.
func checkFS(string) error { return nil }

// renameNew gives a file a name that must not be taken yet.
func renameNew(from, to string) error {
	if _, err := os.Lstat(to); err == nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: os.ErrExist}
	}
	return os.Rename(from, to)
}
