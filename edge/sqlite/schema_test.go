package sqlite_test

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge/sqlite"
)

// update rewrites golden files: go test ./edge/sqlite -run Plans -update.
var update = flag.Bool("update", false, "rewrite the golden files")

// TestSchemaFile keeps the file that readers open first equal to the database.
func TestSchemaFile(t *testing.T) {
	t.Parallel()
	want, err := sqlite.Schema(t.Context())
	require.NoError(t, err)
	have, err := os.ReadFile("../../schema.sql")
	require.NoError(t, err, "run: make schema")
	require.Equal(t, want, string(have), "schema.sql is not the schema of a fresh database; run: make schema")
}

// TestSchemaIsThatOfAFile compares the dump with a database that Open made.
func TestSchemaIsThatOfAFile(t *testing.T) {
	t.Parallel()
	text, err := sqlite.Schema(t.Context())
	require.NoError(t, err)
	db := raw(t, fresh(t))
	rows, err := db.Query(`SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL`)
	require.NoError(t, err)
	defer rows.Close()
	n := 0
	for rows.Next() {
		var sql string
		require.NoError(t, rows.Scan(&sql))
		require.Contains(t, text, sql+";\n")
		n++
	}
	require.NoError(t, rows.Err())
	require.Greater(t, n, 20)
	require.EqualValues(t, sqlite.SchemaVersion(), number(t, db, `PRAGMA user_version`))
	require.EqualValues(t, 0x666e6370, number(t, db, `PRAGMA application_id`))
}

// TestMigrationsHaveNoGaps: they are numbered from 1, each number once.
func TestMigrationsHaveNoGaps(t *testing.T) {
	t.Parallel()
	versions := sqlite.MigrationVersionsForTest()
	require.NotEmpty(t, versions)
	for i, v := range versions {
		require.Equal(t, i+1, v)
	}
	require.Equal(t, len(versions), sqlite.SchemaVersion())
}
