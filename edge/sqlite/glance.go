package sqlite

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"fencepost/edge"

	"github.com/jmoiron/sqlx"
)

// glance is the check of a start. Its cost does not depend on how many events
// there are: it walks the list of free pages and checks the small tables that
// everything else goes by. The whole file is for check --full, which takes a
// minute where this takes milliseconds.
func (s *Store) glance(ctx context.Context, conn *sqlx.Conn, marked bool) error {
	err := walkFree(ctx, conn)
	tables := []string{"settings", "sequences", "counters", "handlers"}
	if marked {
		tables = append(tables, "marks")
	}
	for _, table := range tables {
		if err != nil {
			break
		}
		var line string
		if err = conn.GetContext(ctx, &line, "PRAGMA quick_check("+table+")"); err == nil && line != "ok" {
			err = damage("table %s: %s", table, line)
		}
	}
	if errors.Is(err, edge.ErrStorage) {
		return fmt.Errorf("%s: %w: nothing was changed; keep a copy of the file and its -wal, and restore a backup (fencepost restore)", s.path, err)
	}
	return err
}

func damage(format string, args ...any) error {
	return fmt.Errorf("%w: the database is damaged: "+format, append([]any{edge.ErrStorage}, args...)...)
}

// walkFree walks the list of free pages: SQLite would hand out pages that are in
// use when it is wrong.
func walkFree(ctx context.Context, conn *sqlx.Conn) error {
	var pages int64
	if err := conn.GetContext(ctx, &pages, "PRAGMA page_count"); err != nil {
		return err
	}
	head, err := page(ctx, conn, 1)
	if err != nil {
		return err
	}
	next, want := binary.BigEndian.Uint32(head[32:]), int64(binary.BigEndian.Uint32(head[36:]))
	seen := int64(0)
	for next != 0 {
		if int64(next) > pages || seen >= want {
			return damage("the list of free pages leads to page %d after %d of %d (the file has %d)", next, seen, want, pages)
		}
		trunk, err := page(ctx, conn, next)
		if err != nil {
			return err
		}
		leaves := int64(binary.BigEndian.Uint32(trunk[4:]))
		if leaves > int64(len(trunk)/4-2) {
			return damage("page %d lists %d free pages, more than it has room for", next, leaves)
		}
		for i := range leaves {
			if leaf := int64(binary.BigEndian.Uint32(trunk[8+4*i:])); leaf < 2 || leaf > pages {
				return damage("page %d lists page %d as free (the file has %d)", next, leaf, pages)
			}
		}
		seen += 1 + leaves
		next = binary.BigEndian.Uint32(trunk)
	}
	if seen != want {
		return damage("%d free pages are listed, and %d should be", seen, want)
	}
	return nil
}

// page reads a page as the driver sees it, the log included.
func page(ctx context.Context, conn *sqlx.Conn, n uint32) ([]byte, error) {
	var data []byte
	if err := conn.GetContext(ctx, &data, `SELECT data FROM sqlite_dbpage WHERE pgno = ?`, n); err != nil {
		return nil, err
	}
	if len(data) < 512 {
		return nil, damage("page %d has %d bytes", n, len(data))
	}
	return data, nil
}
