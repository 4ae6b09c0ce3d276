package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// present tells whether the database and its log still have their names. SQLite
// goes on writing to files that were deleted or replaced, and what is committed
// to them is gone when the process ends, so each commit looks before anybody is
// told of it.
type present struct {
	path    string
	db, log os.FileInfo // as first seen; nil before
}

// newPresent notes the database at path. The path is made absolute, as a program
// that embeds the store may change its working directory.
func newPresent(path string) (*present, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	p := &present{path: path}
	p.db, err = os.Lstat(path)
	return p, err
}

// check returns an error that names what was taken away. What cannot be told is
// no fault: the commit itself has succeeded.
func (p *present) check() error {
	db, err := os.Lstat(p.path)
	if err := same(p.path, p.db, db, err); err != nil {
		return err
	}
	if err == nil && db.Size() == 0 {
		return fmt.Errorf("%s was emptied while it was in use: restore a backup", p.path)
	}
	log, err := os.Lstat(p.path + "-wal")
	if p.log == nil {
		if err == nil {
			p.log = log
		}
		return nil
	}
	return same(p.path+"-wal", p.log, log, err)
}

func same(path string, was, is os.FileInfo, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s was deleted or moved while it was in use: put it back with its -wal, or restore a backup", path)
	case err == nil && !os.SameFile(was, is):
		return fmt.Errorf("%s was replaced while it was in use: stop the process before a file is put in its place", path)
	}
	return nil
}
