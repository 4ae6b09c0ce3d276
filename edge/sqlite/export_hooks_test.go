package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sort"
	"sync"

	"github.com/jmoiron/sqlx"
	msqlite "modernc.org/sqlite"
)

// DSNForTest is the data source name that Open uses.
func DSNForTest(path string, o Options, readOnly bool) string { return dsn(path, o, readOnly) }

// SettingsForTest are the pragmas that every connection must have, with the
// value that each must read back as.
func SettingsForTest(o Options, readOnly bool) map[string]string {
	m := map[string]string{}
	for _, s := range settings(o, readOnly) {
		m[s.pragma] = s.want
	}
	return m
}

// VerifyForTest is what Open runs on each connection.
func VerifyForTest(ctx context.Context, conn *sqlx.Conn, o Options, readOnly bool) error {
	return verify(ctx, conn, o, readOnly)
}

// VerifyAllForTest runs the verification on the writer's connection and on every
// connection of the reader pool, and returns how many it looked at.
func (s *Store) VerifyAllForTest(ctx context.Context) (int, error) {
	n := 0
	err := s.w.do(ctx, phaseSettle, func(tx *tx) error {
		n = 1
		return verify(ctx, tx.w.conn, s.o, false)
	})
	if err != nil {
		return n, err
	}
	var conns []*sqlx.Conn
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	for range s.rdb.Stats().MaxOpenConnections {
		c, err := s.rdb.Connx(ctx)
		if err != nil {
			return n, err
		}
		conns = append(conns, c)
		n++
		if err := verify(ctx, c, s.o, true); err != nil {
			return n, err
		}
	}
	return n, nil
}

// OnWriterForTest runs SQL on the writer's connection, inside an operation.
func (s *Store) OnWriterForTest(ctx context.Context, text string) error {
	return s.w.do(ctx, phaseSettle, func(tx *tx) error {
		_, err := tx.w.conn.ExecContext(ctx, text)
		return err
	})
}

// ReadForTest runs a query as the methods of edge.Reader do, with their deadline.
func (s *Store) ReadForTest(ctx context.Context, dest any, query string) error {
	return s.read(ctx, func(ctx context.Context, q queryer) error { return q.GetContext(ctx, dest, query) })
}

// HoldReadForTest takes a snapshot and keeps it until release is called.
func (s *Store) HoldReadForTest(ctx context.Context) (release func(), err error) {
	began, done, ended := make(chan error, 1), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		err := s.readUnbounded(ctx, func(ctx context.Context, q queryer) error {
			var n int
			err := q.GetContext(ctx, &n, `SELECT count(*) FROM settings`)
			began <- err
			<-done
			return err
		})
		if err != nil {
			select {
			case began <- err:
			default:
			}
		}
	}()
	return sync.OnceFunc(func() { close(done); <-ended }), <-began
}

// HoldUpForTest occupies the writer until release is called; operations that
// come meanwhile make one batch.
func (s *Store) HoldUpForTest() (release func()) {
	began, done := make(chan struct{}), make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		begin := sync.OnceFunc(func() { close(began) })
		defer begin() // a store that has failed runs nothing
		_ = s.w.do(context.Background(), phaseSettle, func(*tx) error {
			begin()
			<-done
			return nil
		})
	}()
	<-began
	return sync.OnceFunc(func() { close(done); <-ended })
}

// QueuedForTest is how many operations wait for the writer.
func (s *Store) QueuedForTest() int {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	return len(s.w.inbox)
}

// RunForTest queues an operation that runs the statements which texts gives for
// its first, second, ... run.
func (s *Store) RunForTest(ctx context.Context, texts func(run int) []string) error {
	run := 0
	return s.w.do(ctx, phaseSettle, func(tx *tx) error {
		run++
		for _, text := range texts(run) {
			if err := tx.exec(text); err != nil {
				return err
			}
		}
		return nil
	})
}

// SpoilForTest queues an operation that writes and then fails with err.
func (s *Store) SpoilForTest(ctx context.Context, err error) error {
	return s.w.do(ctx, phaseSettle, func(tx *tx) error {
		if err := tx.exec(`UPDATE settings SET value = 'spoilt' WHERE name = 'created_ms'`); err != nil {
			return err
		}
		return err
	})
}

// HeldForTest is how many deliveries the writer believes this owner to hold.
func (s *Store) HeldForTest(ctx context.Context) (n int, err error) {
	err = s.w.do(ctx, phaseSettle, func(tx *tx) error { n = len(tx.w.hands.held); return nil })
	return n, err
}

// StandingForTest reports whether a dispatch stands, as the writer sees it.
func (s *Store) StandingForTest(ctx context.Context) (yes bool, err error) {
	err = s.w.do(ctx, phaseSettle, func(tx *tx) error { yes = tx.w.standing != nil; return nil })
	return yes, err
}

// StatementsForTest are the texts of all statements that the writer has prepared.
func (s *Store) StatementsForTest(ctx context.Context) ([]string, error) {
	var texts []string
	err := s.w.do(ctx, phaseSettle, func(tx *tx) error {
		texts = texts[:0]
		for text := range tx.w.stmts {
			texts = append(texts, text)
		}
		return nil
	})
	sort.Strings(texts)
	return texts, err
}

// RuleNamesForTest are the names of all invariants of Check.
func RuleNamesForTest() []string {
	var names []string
	for _, r := range rules {
		names = append(names, r.name)
	}
	return names
}

// MigrationVersionsForTest are the numbers of the migrations, in order.
func MigrationVersionsForTest() []int {
	var vs []int
	for _, m := range migrations() {
		vs = append(vs, m.version)
	}
	return vs
}

// RecordReadsForTest gives the store a reader pool that reports the text of every
// query to note.
func (s *Store) RecordReadsForTest(note func(text string)) error {
	base, err := msqlite.NewConnector(dsn(s.path, s.o, true))
	if err != nil {
		return err
	}
	old := s.rdb
	s.rdb = sqlx.NewDb(sql.OpenDB(recordingConnector{base, note}), driverName)
	s.rdb.SetMaxOpenConns(2)
	return old.Close()
}

type recordingConnector struct {
	driver.Connector
	note func(string)
}

func (c recordingConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return recordingConn{conn, c.note}, nil
}

type recordingConn struct {
	driver.Conn
	note func(string)
}

var errNotRecorded = errors.New("the recording connection only queries")

func (c recordingConn) Unwrap() driver.Conn { return c.Conn }

func (c recordingConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, o)
}

func (c recordingConn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	c.note(text)
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, text, args)
}

func (c recordingConn) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	return nil, errNotRecorded
}

// RuleQueriesForTest are the queries of all invariants of Check, by name.
func RuleQueriesForTest() map[string]string {
	qs := map[string]string{}
	for _, r := range rules {
		qs[r.name] = r.query
	}
	return qs
}

// HostForTest makes o that of another machine, or of another start of one.
func HostForTest(o Options, machine uint64, boot byte) Options {
	h := host{machine: machine}
	h.boot[0] = boot
	o.fake = &h
	return o
}

// MarkForTest is the last commit that the side file of a database names.
func MarkForTest(db string) (no int64, err error) {
	r, err := readMark(db)
	return r.no, err
}

// StepsForTest tells fn of each step of an upgrade.
func StepsForTest(o Options, fn func(string)) Options {
	o.step = fn
	return o
}

// FreeForTest makes the disk look as if it had so much left.
func FreeForTest(o Options, bytes int64) Options {
	o.free = &bytes
	return o
}

// RestoreStepsForTest tells fn of each step of a restore.
func RestoreStepsForTest(o RestoreOptions, fn func(string)) RestoreOptions {
	o.step = fn
	return o
}

// RestoreOnForTest restores on another machine.
func RestoreOnForTest(o RestoreOptions, machine uint64, boot byte) RestoreOptions {
	o.fake = HostForTest(Options{}, machine, boot).fake
	return o
}

// UnmarkedForTest keeps no side file and no ring.
func UnmarkedForTest(o Options) Options {
	o.unmarked = true
	return o
}
