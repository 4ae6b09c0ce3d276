package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"fencepost/edge"

	"github.com/jmoiron/sqlx"
	codes "modernc.org/sqlite/lib"
)

// Backup copies the database to a new file at path while the store works, checks
// the copy and only then gives it its name. All that was acknowledged before the
// call is in it. The writer copies some milliseconds' worth between two commits;
// with Share it copies all at once, since another process's commit would make it
// begin anew. ErrInvalid: path cannot be used; ErrConflict: something is there.
func (s *Store) Backup(ctx context.Context, path string) (edge.BackupReport, error) {
	r := edge.BackupReport{Path: path, Node: s.Node()}
	if err := s.backupPath(path); err != nil {
		return r, err
	}
	ctx, leave, err := s.enterCopy(ctx)
	if err != nil {
		return r, err
	}
	defer leave()
	began := s.o.Clock.Mono()
	removeParts(path)
	if err := s.roomForCopy(ctx, path); err != nil {
		return r, err
	}
	part, err := newPart(path)
	if err != nil {
		return r, fmt.Errorf("%w: %w", edge.ErrInvalid, err)
	}
	defer removeCopy(part)
	if r.FromNo, err = s.lastCommit(ctx); err != nil {
		return r, err
	}
	if err := s.copyTo(ctx, part); resultCode(err)&0xff == codes.SQLITE_FULL {
		return r, fmt.Errorf("%w: %s is full", edge.ErrLowSpace, filepath.Dir(path))
	} else if err != nil {
		return r, fmt.Errorf("copy to %s: %w", part, err)
	}
	p, err := proveCopy(ctx, part)
	if err == nil && p.commit < r.FromNo {
		err = fmt.Errorf("the copy ends at commit %d, and %d was made before it began", p.commit, r.FromNo)
	}
	if err == nil {
		err = syncFile(part)
	}
	if err != nil {
		return r, fmt.Errorf("the backup was not kept: %w", err)
	}
	r.Commit, r.Bytes = p.commit, p.bytes
	r.Checked = []string{"integrity_check", "invariants", "sha256 of each body", "commit number"}
	if err := renameNew(part, path); err != nil {
		return r, takenOr(path, err)
	}
	r.TookMS = (s.o.Clock.Mono() - began).Milliseconds()
	return r, syncDir(filepath.Dir(path))
}

// roomForCopy refuses a backup that would not fit, or that would fill the node's
// own disk so far that it takes no more events.
func (s *Store) roomForCopy(ctx context.Context, path string) error {
	var need int64
	err := s.read(ctx, func(ctx context.Context, q queryer) error {
		return q.GetContext(ctx, &need, `SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()`)
	})
	if err != nil {
		return err
	}
	if sameDisk(filepath.Dir(path), filepath.Dir(s.path)) {
		need += s.Storage().LowWaterBytes
	}
	return roomFor(filepath.Dir(path), need, s.o.free)
}

// copies lets one backup run at a time, and Close wait for its end.
type copies struct {
	mu   sync.Mutex
	ctx  context.Context // done when the store closes
	stop context.CancelFunc
}

func (s *Store) enterCopy(ctx context.Context) (context.Context, func(), error) {
	if !s.copies.mu.TryLock() {
		return nil, nil, fmt.Errorf("%w: another backup is under way: wait for its end", edge.ErrConflict)
	}
	if s.closed.Load() {
		s.copies.mu.Unlock()
		return nil, nil, edge.ErrClosed
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.copies.ctx, func() { cancel(edge.ErrClosed) })
	return ctx, func() { stop(); cancel(nil); s.copies.mu.Unlock() }, nil
}

func takenOr(path string, err error) error {
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%w: %s is there already: choose another name", edge.ErrConflict, path)
	}
	return err
}

// ownSuffixes end the names of the files that belong to a database.
var ownSuffixes = []string{"", "-wal", "-shm", "-journal", "-reserve", ".lock", ".mark", ".mark.new", ".mark.lock"}

// backupPath refuses a path that is taken, or that is or will be one of the
// database's own.
func (s *Store) backupPath(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("%w: %s: the path of a backup must be absolute", edge.ErrInvalid, path)
	}
	own, err := filepath.Abs(s.path)
	if err != nil {
		return err
	}
	path, own = realPath(path), realPath(own)
	for _, suffix := range ownSuffixes {
		if path == own+suffix {
			return fmt.Errorf("%w: %s belongs to the database: choose another name", edge.ErrInvalid, path)
		}
	}
	if strings.HasPrefix(path, own+".owner-") || strings.HasPrefix(path, own+".new-") {
		return fmt.Errorf("%w: %s belongs to the database: choose another name", edge.ErrInvalid, path)
	}
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%w: %s is there already: choose another name", edge.ErrConflict, path)
	} else if !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: %w", edge.ErrInvalid, err)
	}
	if fi, err := os.Stat(filepath.Dir(path)); err != nil || !fi.IsDir() {
		return fmt.Errorf("%w: there is no directory %s", edge.ErrInvalid, filepath.Dir(path))
	}
	return nil
}

// realPath is the path of a file, which need not be there, without the links of its
// directory.
func realPath(path string) string {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, filepath.Base(path))
}

// lastCommit is the number of the last commit that was answered.
func (s *Store) lastCommit(ctx context.Context) (no int64, err error) {
	err = s.read(ctx, func(ctx context.Context, q queryer) error {
		return q.GetContext(ctx, &no, `SELECT commit_no FROM sequences WHERE id = 1`)
	})
	return no, err
}

const firstPages = 64

// copyTo copies the database into an empty file, step by step on the writer.
func (s *Store) copyTo(ctx context.Context, part string) error {
	var c copying
	if err := s.w.doAside(func(conn *sqlx.Conn) (err error) { c, err = beginCopy(conn, part); return err }); err != nil {
		return err
	}
	pages, more := firstPages, true
	if s.o.Share {
		pages = -1
	}
	var err error
	for more && err == nil {
		var took time.Duration
		err = s.w.doAside(func(*sqlx.Conn) (err error) {
			from := s.o.Clock.Mono()
			more, err = c.step(pages)
			took = s.o.Clock.Mono() - from
			return err
		})
		if err == nil {
			err = context.Cause(ctx)
		}
		if pages > 0 && more && err == nil {
			pages = nextPages(pages, took)
			pause(max(took, time.Millisecond)) // the disk is the node's, half of the time
		}
	}
	return errors.Join(err, s.w.endAside(c.finish))
}
