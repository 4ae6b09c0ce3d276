package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"fencepost/edge"

	"github.com/gofrs/flock"
	"github.com/jmoiron/sqlx"
)

// ReadOnly is a database that no process works on, for looking at. Neither the
// file nor its log is written; close it after use, since no node can start
// meanwhile.
type ReadOnly struct {
	edge.Reader
	s    *Store
	lock *flock.Flock
}

// OpenReadOnly opens the database at path for reading alone. ErrNotFound: there is
// none; ErrConflict: a process works on it; ErrInvalid: it is refused, or has
// another schema than this build, which only a start of the node brings up.
func OpenReadOnly(ctx context.Context, path string, clock *edge.Clock) (*ReadOnly, error) {
	if err := processSettings(); err != nil {
		return nil, err
	}
	exists, err := inspect(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	if !exists {
		return nil, fmt.Errorf("%w: there is no database at %s: a node makes it at its first start", edge.ErrNotFound, path)
	}
	r := &ReadOnly{}
	if r.lock, err = keepOthersOut(path); err != nil {
		return nil, err
	}
	o := Options{Clock: clock, Durability: DurabilityFull, OnLoss: LossLook, ReadTimeout: time.Minute, Logger: slog.New(slog.DiscardHandler)}
	r.s = &Store{path: path, o: o, log: o.Logger, bounds: standardBounds}
	r.Reader = r.s
	if err := r.open(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// keepOthersOut takes the lock of the database without making its file: where
// there is none, no process has the database.
func keepOthersOut(path string) (*flock.Flock, error) {
	if _, err := os.Lstat(lockPath(path)); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err := privateFile(lockPath(path)); err != nil {
		return nil, refused(err)
	}
	l := flock.New(lockPath(path), flock.SetFlag(os.O_RDONLY))
	ok, err := takePatiently(path, l.TryLock)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", lockPath(path), err)
	}
	if !ok {
		return nil, fmt.Errorf("%w: %s is in use by %s: ask that node, without --offline", edge.ErrConflict, path, holderOf(path))
	}
	return l, nil
}

func (r *ReadOnly) open(ctx context.Context) error {
	var extra []string
	if !logged(r.s.path) { // all is in the file, and nothing is made beside it
		extra = []string{"immutable", "1"}
	}
	var err error
	if r.s.rdb, err = sqlx.Open(driverName, dsn(r.s.path, r.s.o, true, extra...)); err != nil {
		return err
	}
	var version int
	if err := r.s.rdb.GetContext(ctx, &version, "PRAGMA user_version"); err != nil {
		return fmt.Errorf("%s: %w", r.s.path, publicError(err))
	}
	if version != SchemaVersion() {
		return fmt.Errorf("%w: %s has schema %d and this build reads %d: start the node once, which brings it up", edge.ErrInvalid, r.s.path, version, SchemaVersion())
	}
	return r.s.look(ctx)
}

// Names are the ids of the file, present and former.
func (r *ReadOnly) Names() edge.Names { return r.s.names }

// Node is the random id of the file.
func (r *ReadOnly) Node() string { return r.s.names.Node() }

// Hold is the loss that holds the dispatch; nil when nothing does.
func (r *ReadOnly) Hold() *edge.Loss { return r.s.Hold() }

// Losses are the latest disagreements between database and side file.
func (r *ReadOnly) Losses(ctx context.Context, limit int) ([]edge.Loss, error) {
	return r.s.Losses(ctx, limit)
}

// Close gives the database free.
func (r *ReadOnly) Close() error {
	var err error
	if r.s != nil && r.s.rdb != nil {
		err = r.s.rdb.Close()
	}
	if r.lock != nil {
		err = errors.Join(err, r.lock.Unlock())
	}
	return err
}
