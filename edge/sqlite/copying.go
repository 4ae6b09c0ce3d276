package sqlite

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/jmoiron/sqlx"
	driver "modernc.org/sqlite"
)

// copying is a copy of the database that is being made page by page through the
// driver. All of its calls are made by whoever owns the connection: what that
// connection commits between two steps is copied along, so the copy is that of
// the moment at which the last step ends.
type copying struct {
	b *driver.Backup
}

// copier is what the driver's connection offers.
type copier interface {
	NewBackup(uri string) (*driver.Backup, error)
}

// beginCopy begins a copy into an empty file. It is neither synced nor journalled:
// it has no name that anybody trusts before it was synced and verified.
func beginCopy(conn *sqlx.Conn, to string) (c copying, err error) {
	uri := "file:" + (&url.URL{Path: to}).EscapedPath() + "?mode=rw&_pragma=synchronous(0)&_pragma=journal_mode(OFF)&_pragma=cache_size(-1024)"
	err = conn.Raw(func(raw any) error {
		from, ok := raw.(copier)
		if !ok {
			return errors.New("the driver's connection makes no copies")
		}
		c.b, err = from.NewBackup(uri)
		return err
	})
	return c, err
}

func (c copying) step(pages int) (more bool, err error) { return c.b.Step(int32(pages)) }

func (c copying) finish() error { return c.b.Finish() }

// newPart makes an empty private file beside path for what will get that name.
func newPart(path string) (string, error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".part-*")
	if err != nil {
		return "", err
	}
	return f.Name(), errors.Join(f.Chmod(0o600), f.Close())
}

// removeParts removes what copies to path left that a kill cut short.
func removeParts(path string) {
	left, err := filepath.Glob(globEscape(path) + ".part-*")
	if err != nil {
		return
	}
	for _, name := range left {
		_ = os.Remove(name)
	}
}

// removeCopy removes a copy and what the driver may have made beside it.
func removeCopy(path string) {
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		_ = os.Remove(path + suffix)
	}
}

// syncFile makes a copy survive power loss.
func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|noFollow, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// copyProof is what a copy was found to be.
type copyProof struct {
	version int
	commit  int64
	node    string
	bytes   int64
}

// proveCopy checks a copy that nobody writes to: that it is ours, what SQLite can
// tell of it, and, when it has the present schema, every invariant and each body.
// Nothing is made beside it.
func proveCopy(ctx context.Context, path string) (p copyProof, err error) {
	db, err := sqlx.Open(driverName, "file:"+(&url.URL{Path: path}).EscapedPath()+"?mode=ro&immutable=1")
	if err != nil {
		return p, err
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	if err := inspectVersion(ctx, db, path); err != nil {
		return p, err
	}
	if err := db.GetContext(ctx, &p.version, "PRAGMA user_version"); err != nil {
		return p, err
	}
	if err := db.GetContext(ctx, &p.commit, `SELECT commit_no FROM sequences WHERE id = 1`); err != nil {
		return p, err
	}
	if err := db.GetContext(ctx, &p.node, `SELECT value FROM settings WHERE name = 'node'`); err != nil {
		return p, err
	}
	fi, err := os.Lstat(path)
	if err != nil {
		return p, err
	}
	p.bytes = fi.Size()
	found, err := examine(ctx, db, p.version == SchemaVersion(), true)
	if err != nil {
		return p, err
	}
	for _, v := range found {
		if v.Rule != acceptedRule { // a copy of a node on hold is a good copy
			return p, fmt.Errorf("%s: the copy is not sound: %s: %s", path, v.Rule, v.Detail)
		}
	}
	return p, nil
}

// nextPages is how large the next step of a copy is: about ten milliseconds of work.
func nextPages(pages int, took time.Duration) int {
	switch {
	case took > 20*time.Millisecond:
		return max(pages/2, 16)
	case took < 5*time.Millisecond:
		return min(pages*2, 1024)
	}
	return pages
}

// toWAL makes a copy, which the driver writes without a log, a database that has
// one.
func toWAL(ctx context.Context, path string) error {
	db, err := sqlx.Open(driverName, "file:"+(&url.URL{Path: path}).EscapedPath()+"?mode=rw")
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	var mode string
	if err := db.GetContext(ctx, &mode, "PRAGMA journal_mode = WAL"); err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("%s stays in journal mode %s", path, mode)
	}
	return nil
}
