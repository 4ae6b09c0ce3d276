package sqlite_test

import (
	"database/sql"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/sqlite"
)

// childProbe says whether another process can begin to write to the file.
func childProbe(path string) {
	db, err := sql.Open("sqlite", "file:"+path+"?mode=rw&_pragma=busy_timeout(0)")
	if err == nil {
		db.SetMaxOpenConns(1)
		_, err = db.Exec("BEGIN IMMEDIATE")
	}
	fmt.Print(err == nil)
}

// othersCanWrite asks from another process.
func othersCanWrite(t *testing.T, path string) string {
	t.Helper()
	out, err := childCommand(t, "probe", path).Output()
	require.NoError(t, err)
	return string(out)
}

// TestR81_NothingStripsTheLocks: a close of any descriptor of the shared memory in
// this process drops the locks that SQLite holds there, after which two processes
// write at once and one of them loses its rows. Everything that the store does
// beside its writer is done while the writer holds the write lock, and another
// process is kept out all the same.
func TestR81_NothingStripsTheLocks(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	s := openAt(t, path, sqlite.Options{})
	register(t, s, edge.Registration{Name: "hook"})
	acceptOne(t, s, "1", "bob")
	release := s.HoldUpForTest()
	require.Equal(t, "false", othersCanWrite(t, path))
	_, err := s.Check(t.Context(), true)
	require.NoError(t, err)
	_, err = s.Losses(t.Context(), 10)
	require.NoError(t, err)
	_, err = s.Counters(t.Context())
	require.NoError(t, err)
	s.Storage()
	_, err = sqlite.Open(path, sqlite.Options{}) // it reads the header before it meets the lock
	require.ErrorIs(t, err, edge.ErrConflict)
	_, err = sqlite.OpenReadOnly(t.Context(), path, nil)
	require.ErrorIs(t, err, edge.ErrConflict)
	_, err = sqlite.MarkForTest(path)
	require.NoError(t, err)
	require.Equal(t, "false", othersCanWrite(t, path), "the write lock holds")

	// The control: this is what strips it.
	f, err := os.Open(path + "-shm")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.Equal(t, "true", othersCanWrite(t, path), "the probe can tell")
	release()
}

// opens are the calls with which the package opens files by itself, by file. None
// of them is given the database, its log or its shared memory while they are open:
// sizes and names are asked for by lstat alone.
var opens = map[string][]string{
	"copying.go": {"os.CreateTemp", "os.OpenFile"},                              // copies, before they have their names
	"lock.go":    {"os.ReadFile", "os.WriteFile"},                               // the lock files
	"mark.go":    {"os.OpenFile", "os.OpenFile", "os.ReadFile"},                 // the side file
	"host.go":    {"os.ReadFile", "os.ReadFile"},                                // ids of the machine
	"open.go":    {"os.CreateTemp", "os.Open"},                                  // a new file before its name; a directory
	"reserve.go": {"os.OpenFile"},                                               // the reserve
	"restore.go": {"os.OpenFile", "os.OpenFile", "os.ReadFile", "os.WriteFile"}, // a backup, its copy, the side file
}

// TestR81_NoOtherCodeOpensFiles compares the source with the list, so that a new
// call is looked at by whoever adds it.
func TestR81_NoOtherCodeOpensFiles(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	found := map[string][]string{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pkg, ok := sel.X.(*ast.Ident)
			if !ok {
				return true
			}
			name := pkg.Name + "." + sel.Sel.Name
			if slices.Contains([]string{"os.Open", "os.OpenFile", "os.Create", "os.CreateTemp", "os.ReadFile", "os.WriteFile", "os.Truncate",
				"unix.Open", "unix.Openat", "syscall.Open"}, name) {
				found[file] = append(found[file], name)
			}
			return true
		})
	}
	for _, calls := range found {
		slices.Sort(calls)
	}
	require.Equal(t, opens, found)
}
