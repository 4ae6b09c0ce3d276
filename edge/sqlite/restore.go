package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"fencepost/edge"
)

// RestoreOptions of [Restore].
type RestoreOptions struct {
	edge.Decided             // who restores and why; the reason is required
	Clock        *edge.Clock // nil means the system's clock

	fake *host
	step func(name string) // told of each step, in tests
}

// Restore puts a backup in place of the database at path, which no process may
// have open. The backup is checked first, and nothing of the old database is
// touched before a copy of the backup stands beside it, checked and synced; then
// the old files are moved aside, not removed. The restored database is on hold,
// and its ids begin past all that the old one is known to have given out.
// ErrInvalid: the backup is not sound; ErrConflict: a process works on path.
func Restore(ctx context.Context, path, from string, o RestoreOptions) (edge.RestoreReport, error) {
	r := edge.RestoreReport{Path: path, From: from, ExpectedNo: -1}
	if err := o.Validate(); err != nil {
		return r, err
	}
	if err := processSettings(); err != nil {
		return r, err
	}
	if o.Clock == nil {
		o.Clock = edge.NewClock(nil)
	}
	if o.step == nil {
		o.step = func(string) {}
	}
	if err := restorable(path, from); err != nil {
		return r, err
	}
	locks, err := takeLocks(path, edge.NewName(), false)
	if err != nil {
		return r, err
	}
	defer locks.release()
	removeParts(path)
	part, err := copyBackup(path, from)
	defer func() { removeCopy(part); _ = os.Remove(markPath(part)); removeLocks(part) }()
	if err != nil {
		return r, fmt.Errorf("copy %s: %w", from, err)
	}
	o.step("copied")
	proof, err := proveCopy(ctx, part)
	if err != nil {
		return r, refused(fmt.Errorf("%s is not restored: %w", from, err))
	}
	r.Commit = proof.commit
	if err := makeReady(ctx, path, part, proof, o, &r); err != nil {
		return r, fmt.Errorf("prepare %s: %w", from, err)
	}
	o.step("prepared")
	return r, exchange(path, part, o, &r)
}

// restorable refuses what must not be restored, or not to there.
func restorable(path, from string) error {
	fi, err := os.Lstat(from)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%w: there is no backup at %s", edge.ErrNotFound, from)
	case err != nil:
		return err
	case !fi.Mode().IsRegular():
		return refused(fmt.Errorf("%s is not a plain file", from))
	case logged(from):
		return refused(fmt.Errorf("%s has a log beside it (%s-wal): it is a database, not a backup; make one with fencepost backup", from, from))
	}
	if there, err := os.Lstat(path); err == nil && os.SameFile(fi, there) {
		return refused(fmt.Errorf("%s is the database itself", from))
	}
	if err := checkFS(path); err != nil {
		return refused(err)
	}
	return refused(errors.Join(privateDir(path), privateFiles(path)))
}

// copyBackup copies the backup beside the database.
func copyBackup(path, from string) (part string, err error) {
	src, err := os.OpenFile(from, os.O_RDONLY|noFollow, 0)
	if err != nil {
		return "", err
	}
	defer src.Close()
	fi, err := src.Stat()
	if err != nil {
		return "", err
	}
	if err := roomFor(filepath.Dir(path), 2*fi.Size(), nil); err != nil {
		return "", err
	}
	if part, err = newPart(path); err != nil {
		return "", err
	}
	dst, err := os.OpenFile(part, os.O_WRONLY|noFollow, 0)
	if err != nil {
		return part, err
	}
	_, err = io.Copy(dst, src)
	if err == nil {
		err = dst.Sync()
	}
	return part, errors.Join(err, dst.Close())
}

// spareBytes is what must be left beside what is known to be needed.
const spareBytes = 16 << 20

// roomFor refuses to begin what would fill the disk.
func roomFor(dir string, need int64, fake *int64) error {
	d, err := lookAt(dir)
	if fake != nil {
		d.free = *fake
	}
	if err != nil || d.free < 0 { // not known here
		return err
	}
	if need += spareBytes; d.free < need {
		return fmt.Errorf("%w: %d MiB are free in %s, and %d MiB are needed; nothing was changed", edge.ErrLowSpace, d.free>>20, dir, (need+1<<20-1)>>20)
	}
	return nil
}

// makeReady makes the copy of the backup a database that can be started: of the
// present schema, with a side file, on hold, its ids past those of the old one.
func makeReady(ctx context.Context, path, part string, p copyProof, o RestoreOptions, r *edge.RestoreReport) error {
	if err := toWAL(ctx, part); err != nil {
		return err
	}
	f := &finding{jump: true}
	f.Kind, f.Lost, f.Hold, f.FoundNo, f.ExpectedNo = edge.LossRestored, true, true, p.commit, -1
	f.accepted = o.Decided
	old, err := readMark(path)
	if err == nil {
		f.ExpectedNo, f.expectedChain, f.over = old.no, old.chain, old.seq
	}
	f.rename = err != nil || old.nodeName() != p.node // it may run elsewhere, and go on there
	r.ExpectedNo, r.Renamed = f.ExpectedNo, f.rename
	f.Detail = fmt.Sprintf("%s was restored, which ends at commit %d", filepath.Base(r.From), p.commit)
	if f.ExpectedNo >= 0 {
		f.Detail += fmt.Sprintf("; the database that it replaced had %d commits", f.ExpectedNo)
	}
	s, err := openOnce(part, Options{Clock: o.Clock, OnLoss: LossHold, Durability: DurabilityFull, MaxBatch: maxBatch, ReadTimeout: 5 * time.Second,
		Logger: discard, fake: o.fake, restored: f})
	if err != nil {
		return err
	}
	r.Node = s.Node()
	found, err := s.Check(ctx, true)
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("%w: %s: %s", edge.ErrInvalid, found[0].Rule, found[0].Detail)
	}
	if err = errors.Join(err, s.Close()); err != nil {
		return err
	}
	return syncFile(part)
}

// exchange moves the old files aside and puts the new ones in their place. After
// a crash in between, either the old database is there, or a start refuses,
// because a log or a side file without its database is left.
func exchange(path, part string, o RestoreOptions, r *edge.RestoreReport) error {
	aside, err := asideName(path)
	if err != nil {
		return err
	}
	// The side file comes before the database: a start must never find a new
	// database without one.
	for _, suffix := range []string{"", "-wal"} {
		err := renameNew(path+suffix, aside+suffix)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("move the old database aside: %w", err)
		}
		r.Aside = append(r.Aside, aside+suffix)
		o.step("moved" + suffix)
	}
	_ = os.Remove(path + "-shm")
	if mark, err := os.ReadFile(markPath(path)); err == nil {
		if err := os.WriteFile(markPath(aside), mark, 0o600); err != nil {
			return err
		}
		r.Aside = append(r.Aside, markPath(aside))
	}
	if err := os.Rename(markPath(part), markPath(path)); err != nil {
		return err
	}
	o.step("mark")
	if err := renameNew(part, path); err != nil {
		return err
	}
	o.step("done")
	return syncDir(filepath.Dir(path))
}

// asideName is a name for the old database that is not taken.
func asideName(path string) (string, error) {
	for n := 1; n < 10_000; n++ {
		name := fmt.Sprintf("%s.replaced-%d", path, n)
		if _, err := os.Lstat(name); errors.Is(err, os.ErrNotExist) {
			return name, nil
		}
	}
	return "", fmt.Errorf("%w: there are too many files %s.replaced-*: remove some", edge.ErrConflict, path)
}

func removeLocks(path string) { _ = os.Remove(lockPath(path)) }
