package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"os"

	"fencepost/edge"

	"github.com/jmoiron/sqlx"
)

// fileState is what a database says of itself.
type fileState struct {
	seq      sequences
	node     string
	former   edge.Names
	machine  uint64
	ino, dev uint64
	ring     map[int64]int64 // chain by commit
	hold     edge.Loss       // of before; holdErr is sql.ErrNoRows when there is none
	holdErr  error
	marked   bool // it has the tables of the side file
}

// readOnlyURI names the database for reading alone; nothing is made beside it.
func (s *Store) readOnlyURI() string {
	uri := "file:" + (&url.URL{Path: s.path}).EscapedPath() + "?mode=ro&_pragma=busy_timeout(5000)"
	if !s.o.Share && !logged(s.path) {
		uri += "&immutable=1"
	}
	return uri
}

// readState reads it, from a database of any schema.
func readState(ctx context.Context, conn *sqlx.Conn, path string) (st fileState, err error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return st, err
	}
	st.ino, st.dev = inodeOf(fi)
	const settings = `SELECT value, coalesce((SELECT CAST(value AS INTEGER) FROM settings WHERE name = 'machine'), 0) FROM settings WHERE name = 'node'`
	var machine int64
	if err := conn.QueryRowContext(ctx, settings).Scan(&st.node, &machine); err != nil {
		return st, err
	}
	st.machine = uint64(machine)
	st.holdErr = sql.ErrNoRows
	var marked int
	if err := conn.GetContext(ctx, &marked, `SELECT count(*) FROM sqlite_schema WHERE name = 'marks' AND type = 'table'`); err != nil {
		return st, err
	}
	if marked == 0 {
		return st, st.readUnmarked(ctx, conn)
	}
	st.marked = true
	return st, st.readMarked(ctx, conn)
}

// readUnmarked reads a database of a build that kept no side file.
func (st *fileState) readUnmarked(ctx context.Context, conn *sqlx.Conn) error {
	const seq = `SELECT event, delivery, execution, target, commit_no FROM sequences WHERE id = 1`
	err := conn.QueryRowContext(ctx, seq).Scan(&st.seq.event, &st.seq.delivery, &st.seq.execution, &st.seq.target, &st.seq.commit)
	st.ring = map[int64]int64{st.seq.commit: 0}
	return err
}

func (st *fileState) readMarked(ctx context.Context, conn *sqlx.Conn) error {
	const seq = `SELECT event, delivery, execution, target, commit_no, chain FROM sequences WHERE id = 1`
	if err := conn.QueryRowContext(ctx, seq).Scan(&st.seq.event, &st.seq.delivery, &st.seq.execution, &st.seq.target, &st.seq.commit, &st.seq.chain); err != nil {
		return err
	}
	var pairs []struct {
		No    int64 `db:"commit_no"`
		Chain int64 `db:"chain"`
	}
	if err := conn.SelectContext(ctx, &pairs, `SELECT commit_no, chain FROM marks`); err != nil {
		return err
	}
	st.ring = map[int64]int64{}
	for _, p := range pairs {
		st.ring[p.No] = p.Chain
	}
	var names []struct {
		Name     string `db:"name"`
		Event    int64  `db:"event"`
		Delivery int64  `db:"delivery"`
	}
	if err := conn.SelectContext(ctx, &names, `SELECT name, event, delivery FROM former_nodes ORDER BY id`); err != nil {
		return err
	}
	for _, n := range names {
		st.former = append(st.former, edge.Name{Node: n.Name, Event: n.Event, Delivery: n.Delivery})
	}
	st.hold, st.holdErr = scanLoss(conn.QueryRowContext(ctx, firstHold))
	if errors.Is(st.holdErr, sql.ErrNoRows) {
		return nil
	}
	return st.holdErr
}
