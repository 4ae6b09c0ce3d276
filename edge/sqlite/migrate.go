package sqlite

import (
	"context"
	"embed"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/jmoiron/sqlx"
)

// applicationID marks our files ("fncp").
const applicationID = 0x666e6370

//go:embed migrations/*.sql
var migrationFiles embed.FS

type migration struct {
	version int
	sql     string
}

// migrations returns the numbered migrations in order.
func migrations() []migration {
	entries, err := migrationFiles.ReadDir("migrations")
	if err != nil {
		panic(err) // embedded at build time
	}
	var ms []migration
	for _, e := range entries {
		number, _, _ := strings.Cut(e.Name(), "_")
		version, err := strconv.Atoi(number)
		if err != nil {
			panic("migration without a number: " + e.Name())
		}
		text, err := migrationFiles.ReadFile("migrations/" + e.Name())
		if err != nil {
			panic(err) // embedded at build time
		}
		ms = append(ms, migration{version, string(text)})
	}
	sort.Slice(ms, func(i, j int) bool { return ms[i].version < ms[j].version })
	return ms
}

// SchemaVersion is the newest schema that this build knows.
func SchemaVersion() int {
	ms := migrations()
	return ms[len(ms)-1].version
}

// migrate brings the file to the newest schema, one transaction per step. step is
// told of each before it begins.
func migrate(ctx context.Context, conn *sqlx.Conn, step func(string)) error {
	var have int
	if err := conn.GetContext(ctx, &have, "PRAGMA user_version"); err != nil {
		return err
	}
	for _, m := range migrations() {
		if m.version <= have {
			continue
		}
		step(fmt.Sprintf("migrate %d", m.version))
		script := fmt.Sprintf("BEGIN IMMEDIATE;\n%s\nPRAGMA user_version = %d;\nPRAGMA application_id = %d;\nCOMMIT;", m.sql, m.version, applicationID)
		if _, err := conn.ExecContext(ctx, script); err != nil {
			_, _ = conn.ExecContext(ctx, "ROLLBACK")
			return fmt.Errorf("migration %d: %w", m.version, err)
		}
	}
	return nil
}

// Schema returns the dump of a fresh database as SQL text: what schema.sql at
// the top of the repository holds.
func Schema(ctx context.Context) (string, error) {
	db, err := sqlx.Open(driverName, "file:schema?mode=memory")
	if err != nil {
		return "", err
	}
	defer func() { _ = db.Close() }()
	conn, err := db.Connx(ctx)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if err := migrate(ctx, conn, noStep); err != nil {
		return "", err
	}
	var objects []string
	const dump = `SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid`
	if err := conn.SelectContext(ctx, &objects, dump); err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("-- The schema of a fresh fencepost database: a dump, written by `make schema`.\n")
	b.WriteString("-- Times are milliseconds UTC and end in _ms. Ids come from the table sequences.\n")
	for _, sql := range objects {
		if strings.HasPrefix(sql, "CREATE TABLE") {
			b.WriteString("\n")
		}
		b.WriteString(sql + ";\n")
	}
	fmt.Fprintf(&b, "\nPRAGMA application_id = %d;\nPRAGMA user_version = %d;\n", applicationID, SchemaVersion())
	return b.String(), nil
}
