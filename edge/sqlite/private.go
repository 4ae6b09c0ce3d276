package sqlite

import (
	"fmt"
	"os"
	"path/filepath"
)

// privateDir refuses a directory in which others could put something in place of
// the database or of a file beside it. A sticky one such as /tmp is refused too:
// there others cannot replace our files, but they can make theirs first.
func privateDir(path string) error {
	dir := filepath.Dir(path)
	fi, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if !fi.IsDir() {
		return fmt.Errorf("%s is not a directory", dir)
	}
	if uid, _, ok := ownership(fi); ok && uid != 0 && int(uid) != os.Geteuid() {
		return fmt.Errorf("directory %s belongs to user %d, this process runs as %d: run it as that user, or choose a directory of its own", dir, uid, os.Geteuid())
	}
	if keepsModes && fi.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("directory %s can be written by others (mode %04o), who could put their files in place of ours; run: chmod go-w %s (or choose a directory of its own)", dir, fi.Mode().Perm(), dir)
	}
	return nil
}

// privateFiles refuses what stands where a file beside the database is or will
// be, unless it is a private file of ours.
func privateFiles(path string) error {
	for _, suffix := range []string{"-wal", "-shm", "-journal", ".lock", ".mark"} {
		if err := privateFile(path + suffix); err != nil {
			return err
		}
	}
	return nil
}

// privateFile refuses what is there but is not a private file of ours.
func privateFile(path string) error {
	fi, err := os.Lstat(path)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return private(path, fi)
}

func private(path string, fi os.FileInfo) error {
	switch {
	case fi.Mode()&os.ModeSymlink != 0:
		return fmt.Errorf("%s is a symbolic link; name the file itself, or remove the link", path)
	case !fi.Mode().IsRegular():
		return fmt.Errorf("%s is not a plain file (%s); remove it", path, fi.Mode().Type())
	case keepsModes && fi.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s can be reached by others (mode %04o); run: chmod 600 %s", path, fi.Mode().Perm(), path)
	}
	if uid, links, ok := ownership(fi); ok {
		if links > 1 {
			return fmt.Errorf("%s has %d names (hard links); copy it to a name of its own", path, links)
		}
		if int(uid) != os.Geteuid() {
			return fmt.Errorf("%s belongs to user %d, this process runs as %d", path, uid, os.Geteuid())
		}
	}
	return nil
}
