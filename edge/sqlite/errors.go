package sqlite

import (
	"errors"
	"fmt"

	"fencepost/edge"

	driver "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"
)

// resultCode is the extended SQLite result code of err, 0 when it has none.
func resultCode(err error) int {
	var e *driver.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}

// fault is what a storage error means for the process.
type fault int

const (
	notStorage fault = iota // not an error of the database
	passing                 // busy, full, out of memory: the same call may succeed later
	terminal                // sync error, damage: this process must not write again
)

// classify goes by result code, never by message. A sync error is terminal
// because the kernel marks the pages clean: a second sync would lie. What is
// neither a fault of the disk nor damage voids the commit and may be repeated.
func classify(err error) fault {
	code := resultCode(err)
	switch code & 0xff {
	case 0:
		return notStorage
	case codes.SQLITE_CORRUPT, codes.SQLITE_NOTADB, codes.SQLITE_READONLY, codes.SQLITE_PERM:
		return terminal
	case codes.SQLITE_IOERR:
		switch code {
		case codes.SQLITE_IOERR_NOMEM, codes.SQLITE_IOERR_BLOCKED, codes.SQLITE_IOERR_LOCK, codes.SQLITE_IOERR_WRITE:
			return passing
		}
		return terminal
	}
	return passing
}

// publicError turns a storage error into one of edge's, and leaves others alone.
func publicError(err error) error {
	if err == nil {
		return nil
	}
	switch classify(err) {
	case passing:
		if resultCode(err)&0xff == codes.SQLITE_FULL {
			return fmt.Errorf("%w: %w", edge.ErrLowSpace, err)
		}
		return fmt.Errorf("%w: %w", edge.ErrUnavailable, err)
	case terminal:
		return fmt.Errorf("%w: %w", edge.ErrStorage, err)
	}
	return err
}

// forWantOfSpace reports an error of an opening that goes away when there is space
// again. The index of the log is a file too, and must grow before anything is read.
func forWantOfSpace(err error) bool {
	code := resultCode(err)
	return wantOfSpace(err) || code&0xff == codes.SQLITE_FULL || code == codes.SQLITE_IOERR_SHMSIZE || code == codes.SQLITE_IOERR_WRITE
}
