package sqlite

import (
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// reserveSuffix names the reserve beside the database.
const reserveSuffix = "-reserve"

// reserve is a file that does nothing but take room. When the disk is full it is
// removed, so that the ends of what is under way can still be stored.
type reserve struct {
	path string
	size int64
}

// there reports whether the whole reserve is there.
func (r *reserve) there() bool {
	fi, err := os.Lstat(r.path)
	return err == nil && fi.Mode().IsRegular() && fi.Size() == r.size
}

// make writes the reserve, unless it is there. It is filled with noise, which no
// file system stores in less room, under another name until it is whole.
func (r *reserve) make() error {
	if r.there() {
		return nil
	}
	tmp := r.path + ".new"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.CopyN(f, rand.NewChaCha8([32]byte{}), r.size)
	if e := f.Sync(); err == nil {
		err = e
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(tmp, r.path)
	}
	if err != nil {
		_ = os.Remove(tmp)
	}
	return err
}

// give gives the room back.
func (r *reserve) give() error {
	err := os.Remove(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// giveForOpening gives the reserve of a database up when the disk is so full that
// it could not be opened. It reports whether there was one.
func giveForOpening(path string) bool {
	return diskIsFull(path) && os.Remove(path+reserveSuffix) == nil
}

// diskIsFull reports whether the disk of a file has so little left that it may
// not be opened.
func diskIsFull(path string) bool {
	const little = 1 << 20
	d, err := lookAt(filepath.Dir(path))
	return err == nil && d.free >= 0 && d.free < little
}
