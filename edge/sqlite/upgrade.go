package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"fencepost/edge"

	"github.com/jmoiron/sqlx"
)

func noStep(string) {}

// upgrade brings the database to the present schema. When it holds events, a
// verified copy is made first and kept: FILE.schema-N. Each migration is one
// transaction, so a kill leaves the schema of before or after it; the next start
// goes on from there.
func (s *Store) upgrade(ctx context.Context, conn *sqlx.Conn) error {
	step := s.o.step
	if step == nil {
		step = noStep
	}
	var have int
	if err := conn.GetContext(ctx, &have, "PRAGMA user_version"); err != nil {
		return err
	}
	if have >= SchemaVersion() {
		return nil
	}
	if !s.alone() {
		return fmt.Errorf("%w: %s has schema %d and other processes of an older build work on it; stop them, then start one of this build", edge.ErrConflict, s.path, have)
	}
	var rows bool
	if err := conn.GetContext(ctx, &rows, `SELECT EXISTS (SELECT 1 FROM events)`); err != nil {
		return err
	}
	if rows && s.o.restored == nil { // the backup itself is the copy
		if err := s.copyBefore(ctx, conn, have, step); err != nil {
			return fmt.Errorf("copy before the upgrade from schema %d to %d: %w", have, SchemaVersion(), err)
		}
	}
	if err := migrate(ctx, conn, step); err != nil {
		return err
	}
	step("migrated")
	s.log.Info("the database was upgraded", "from_schema", have, "to_schema", SchemaVersion())
	return nil
}

// copyBefore keeps a copy of the database as it is before its upgrade.
func (s *Store) copyBefore(ctx context.Context, conn *sqlx.Conn, have int, step func(string)) error {
	path := fmt.Sprintf("%s.schema-%d", s.path, have)
	kept, err := s.keptCopy(ctx, conn, path)
	if err != nil || kept {
		return err
	}
	var size int64
	if err := conn.GetContext(ctx, &size, `SELECT page_count * page_size FROM pragma_page_count, pragma_page_size`); err != nil {
		return err
	}
	if err := roomFor(filepath.Dir(s.path), 3*size, s.o.free); err != nil { // the copy, and the log of the migration with its take-over
		return err
	}
	removeParts(path)
	part, err := newPart(path)
	if err != nil {
		return err
	}
	defer removeCopy(part)
	step("copy")
	c, err := beginCopy(conn, part)
	if err != nil {
		return err
	}
	_, err = c.step(-1)
	if err = errors.Join(err, c.finish()); err != nil {
		return err
	}
	step("copied")
	if _, err := proveCopy(ctx, part); err != nil {
		return err
	}
	if err := syncFile(part); err != nil {
		return err
	}
	step("proved")
	if err := renameNew(part, path); err != nil {
		return takenOr(path, err)
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return err
	}
	step("kept")
	s.log.Info("a verified copy from before the upgrade is kept; remove it when all is well", "path", path)
	return nil
}

// keptCopy reports whether a start that was cut short has made the copy already.
// What else has its name is not touched.
func (s *Store) keptCopy(ctx context.Context, conn *sqlx.Conn, path string) (bool, error) {
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	var commit int64
	if err := conn.GetContext(ctx, &commit, `SELECT commit_no FROM sequences WHERE id = 1`); err != nil {
		return false, err
	}
	p, err := proveCopy(ctx, path)
	if err != nil || p.commit != commit || p.node != s.Node() {
		return false, fmt.Errorf("%w: %s is there and is not a copy of the present state: move it away", edge.ErrConflict, path)
	}
	return true, nil
}
