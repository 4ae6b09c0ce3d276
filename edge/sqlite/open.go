package sqlite

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"fencepost/edge"

	"github.com/jmoiron/sqlx"
	driver "modernc.org/sqlite"
)

const driverName = "sqlite"

// processSettings are switches of the driver that hold for the whole process
// and must be set before the first connection.
var processSettings = sync.OnceValue(func() error {
	driver.StrictPragmas(true)
	if _, err := driver.Fdatasync(true); err != nil && !errors.Is(err, driver.ErrFdatasyncUnavailable) {
		return fmt.Errorf("fdatasync: %w", err)
	}
	if _, err := driver.OFDLocking(true); err != nil && !errors.Is(err, driver.ErrOFDLockingUnavailable) {
		return fmt.Errorf("open file description locks: %w", err)
	}
	return nil
})

// setting is a pragma that every connection must have, and what it must read
// back as after opening. A DSN that is silently ignored is a known trap.
type setting struct {
	pragma string
	set    string
	want   string
}

func settings(o Options, readOnly bool) []setting {
	sync, want := "FULL", "2"
	if o.Durability == DurabilityNormal {
		sync, want = "NORMAL", "1"
	}
	ss := []setting{
		{"busy_timeout", "5000", "5000"},
		{"synchronous", sync, want},
		{"foreign_keys", "1", "1"},
		{"trusted_schema", "0", "0"},
		{"cell_size_check", "1", "1"},
		{"cache_size", "-8192", "-8192"},
		{"mmap_size", "0", "0"},
		{"temp_store", "2", "2"},
		{"journal_size_limit", "67108864", "67108864"},
	}
	if readOnly {
		return append(ss, setting{"query_only", "1", "1"})
	}
	return append(ss, setting{"wal_autocheckpoint", "0", "0"}) // see takeOver
}

// dsn builds the data source name. path comes from the configuration and is
// escaped; nothing of it reaches the parameters.
func dsn(path string, o Options, readOnly bool, extra ...string) string {
	q := url.Values{}
	for _, s := range settings(o, readOnly) {
		q.Add("_pragma", s.pragma+"("+s.set+")")
	}
	q.Set("_dqs", "0")
	q.Set("_defensive", "1")
	q.Set("_error_rc", "1")
	q.Set("_txlock", "immediate")
	if readOnly {
		q.Set("_txlock", "deferred")
		q.Set("mode", "ro")
	} else {
		q.Set("mode", "rw")
	}
	for i := 0; i+1 < len(extra); i += 2 {
		q.Set(extra[i], extra[i+1])
	}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + q.Encode()
}

// verify reads every setting of a connection back.
func verify(ctx context.Context, conn *sqlx.Conn, o Options, readOnly bool) error {
	return verifyBy(o, readOnly, func(pragma string) (got string, err error) {
		err = conn.GetContext(ctx, &got, "PRAGMA "+pragma)
		return got, err
	})
}

func verifyBy(o Options, readOnly bool, get func(pragma string) (string, error)) error {
	ss := append(settings(o, readOnly), setting{pragma: "journal_mode", want: "wal"}, setting{pragma: "page_size", want: "4096"})
	for _, s := range ss {
		got, err := get(s.pragma)
		if err != nil {
			return fmt.Errorf("read back %s: %w", s.pragma, err)
		}
		if got != s.want {
			return fmt.Errorf("%s is %s after opening, must be %s", s.pragma, got, s.want)
		}
	}
	return nil
}

// openPool opens a pool each of whose connections, also one that is made later in
// place of a broken one, is verified before it is used.
func openPool(path string, o Options, readOnly bool) (*sqlx.DB, error) {
	inner, err := driver.NewConnector(dsn(path, o, readOnly))
	if err != nil {
		return nil, err
	}
	return sqlx.NewDb(sql.OpenDB(&verifiedConnector{inner, o, readOnly}), driverName), nil
}

type verifiedConnector struct {
	sqldriver.Connector
	o        Options
	readOnly bool
}

// Connect returns a verified connection.
func (c *verifiedConnector) Connect(ctx context.Context) (sqldriver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	q, ok := conn.(sqldriver.QueryerContext)
	if !ok {
		_ = conn.Close()
		return nil, errors.New("the driver's connection takes no queries")
	}
	err = verifyBy(c.o, c.readOnly, func(pragma string) (string, error) { return pragmaOf(ctx, q, pragma) })
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

func pragmaOf(ctx context.Context, q sqldriver.QueryerContext, pragma string) (string, error) {
	rows, err := q.QueryContext(ctx, "PRAGMA "+pragma, nil)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	value := make([]sqldriver.Value, len(rows.Columns()))
	if err := rows.Next(value); err != nil {
		return "", err
	}
	return fmt.Sprint(value[0]), nil
}

// inspect looks at a database file before it is opened for writing, and refuses
// what is not a private file of ours. It changes nothing: the file is opened
// read-only. It reports whether the file exists.
func inspect(ctx context.Context, path string) (exists bool, err error) {
	for _, check := range []func(string) error{checkFS, privateDir, privateFiles} {
		if err := check(path); err != nil {
			return false, refused(err)
		}
	}
	fi, err := os.Lstat(path)
	if os.IsNotExist(err) {
		return false, refused(errors.Join(noLogLeft(path), noMarkLeft(path)))
	}
	if err != nil {
		return false, err
	}
	if err := inspectFile(path, fi); err != nil {
		return true, refused(err)
	}
	return true, refused(inspectHeader(ctx, path))
}

func refused(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", edge.ErrInvalid, err)
}

func inspectFile(path string, fi os.FileInfo) error {
	if fi.Mode().IsRegular() && fi.Size() == 0 {
		return fmt.Errorf("%s is empty, which ours never are; remove it if it is not needed, or restore a backup", path)
	}
	return private(path, fi)
}

// logged reports whether there is a log beside the database that holds something.
func logged(path string) bool {
	fi, err := os.Lstat(path + "-wal")
	return err == nil && fi.Size() > 0
}

// noLogLeft refuses a log whose database is gone: SQLite would play it into the
// new database that takes its place.
func noLogLeft(path string) error {
	if !logged(path) {
		return nil
	}
	return fmt.Errorf("%s-wal is there, but %s is not; restore the database, or remove the -wal if neither is needed", path, path)
}

// noMarkLeft refuses a side file whose database is gone: what it vouches for would
// be forgotten without a word.
func noMarkLeft(path string) error {
	r, err := readMark(path)
	switch {
	case errors.Is(err, errNoMark) || err == nil && r.no == 0: // of a creation that was cut short
		return nil
	case err != nil:
		return fmt.Errorf("%s is there (%w), but %s is not; restore the database, or remove the .mark if neither is needed", markPath(path), err, path)
	}
	return fmt.Errorf("%s is gone: by %s it had %d commits; put it back with its -wal, restore a backup (fencepost restore), or remove the .mark if it is not needed", path, markPath(path), r.no)
}

// inspectHeader reads what the file says that it is. A log is read with it, as a
// crash may have left the truth there; without one the file is opened as
// immutable, so that nothing is made beside it.
func inspectHeader(ctx context.Context, path string) error {
	uri := "file:" + (&url.URL{Path: path}).EscapedPath() + "?mode=ro&_pragma=busy_timeout(5000)"
	if !logged(path) {
		uri += "&immutable=1"
	}
	db, err := sqlx.Open(driverName, uri)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	return inspectVersion(ctx, db, path)
}

// inspectVersion reads whose database it is, and of which schema.
func inspectVersion(ctx context.Context, db *sqlx.DB, path string) error {
	var app, version int
	if err := db.GetContext(ctx, &app, "PRAGMA application_id"); err != nil {
		return fmt.Errorf("%s is not a SQLite database: %w", path, err)
	}
	if err := db.GetContext(ctx, &version, "PRAGMA user_version"); err != nil {
		return fmt.Errorf("%s is not a SQLite database: %w", path, err)
	}
	switch {
	case app != applicationID:
		return fmt.Errorf("%s is a database of another program (application id %d)", path, app)
	case version > SchemaVersion():
		return fmt.Errorf("%s has schema %d, this build knows up to %d; use a newer fencepost", path, version, SchemaVersion())
	case version < 1:
		return fmt.Errorf("%s has no schema (version %d)", path, version)
	}
	return nil
}

// create makes a new database under a temporary name and renames it when it is
// complete, so a crash never leaves a half-made file under the real name.
func create(ctx context.Context, path string, o Options, nowMS int64) error {
	defer umask077()()
	if !o.Share { // a sharer may be making the file at this moment
		clearCutCreations(path)
		_ = os.Remove(markPath(path)) // inspect has seen that it vouches for nothing
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-*")
	if err != nil {
		return err
	}
	name := tmp.Name()
	_ = tmp.Close()
	defer func() {
		for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
			_ = os.Remove(name + suffix)
		}
	}()
	if err := fill(ctx, name, o, nowMS); err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	if err := renameNew(name, path); err != nil && !(o.Share && os.IsExist(err)) { // another sharer was faster
		return fmt.Errorf("create %s: %w", path, err)
	}
	return syncDir(filepath.Dir(path))
}

// clearCutCreations removes what creations left that a crash cut short.
func clearCutCreations(path string) {
	left, err := filepath.Glob(globEscape(path) + ".new-*")
	if err != nil {
		return
	}
	for _, name := range left {
		_ = os.Remove(name)
	}
}

func fill(ctx context.Context, name string, o Options, nowMS int64) error {
	db, err := sqlx.Open(driverName, dsn(name, o, false))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	conn, err := db.Connx(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	for _, sql := range []string{"PRAGMA page_size = 4096", "PRAGMA auto_vacuum = INCREMENTAL", "PRAGMA journal_mode = WAL"} {
		if _, err := conn.ExecContext(ctx, sql); err != nil {
			return err
		}
	}
	if err := migrate(ctx, conn, noStep); err != nil {
		return err
	}
	const insert = `INSERT INTO settings (name, value) VALUES ('node', ?), ('created_ms', ?), ('last_seen_ms', ?), ('machine', ?)`
	now := strconv.FormatInt(nowMS, 10)
	if _, err := conn.ExecContext(ctx, insert, edge.NewName()[:8], now, now, strconv.FormatInt(int64(o.host().machine), 10)); err != nil {
		return err
	}
	_, err = conn.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
