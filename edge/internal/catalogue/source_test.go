package catalogue_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../../.."

// entry is one log message of the source.
type entry struct {
	message string
	levels  []string
	keys    []string
	at      []string // places
}

// levels are the methods of a logger. Acted is the engine's own: at level info.
var levels = map[string]string{"Debug": "debug", "Info": "info", "Warn": "warn", "Error": "error", "acted": "info"}

// groups are functions that give attributes, and what the catalogue calls them.
var groups = map[string]string{"logAttrs": "*execution*", "panicAttrs": "*panic*"}

var keyForm = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

// messages reads every log call of the program. What is only for tests and for
// people at the command line has no log.
func messages(t *testing.T) map[string]*entry {
	t.Helper()
	found := map[string]*entry{}
	for _, dir := range []string{"edge", "handlers"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && (d.Name() == "internal" || d.Name() == "edgetest" || d.Name() == "testdata"):
				return fs.SkipDir
			case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			readFile(t, path, found)
			return nil
		})
		require.NoError(t, err)
	}
	require.Greater(t, len(found), 50)
	return found
}

func readFile(t *testing.T, path string, found map[string]*entry) {
	t.Helper()
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, path, nil, 0)
	require.NoError(t, err)
	s := &scan{file: f}
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		level, args := logCall(call)
		if level == "" {
			return true
		}
		at := strings.TrimPrefix(files.Position(call.Pos()).String(), root+"/")
		lit, ok := args[0].(*ast.BasicLit)
		if !ok {
			if id, isName := args[0].(*ast.Ident); isName && id.Name == "what" { // acted itself
				return true
			}
			require.Fail(t, "the message of a log call is not constant", at)
			return true
		}
		message, err := strconv.Unquote(lit.Value)
		require.NoError(t, err, at)
		require.Equal(t, strings.ToLower(message[:1]), message[:1], "%s: messages begin in lower case", at)
		e := found[message]
		if e == nil {
			e = &entry{message: message}
			found[message] = e
		}
		e.at = append(e.at, at)
		e.levels = union(e.levels, []string{level})
		e.keys = union(e.keys, s.keys(args[1:]))
		return true
	})
}

// logCall returns the level of a call that logs, and its arguments from the
// message on; "" when it is none.
func logCall(call *ast.CallExpr) (string, []ast.Expr) {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 {
		return "", nil
	}
	if sel.Sel.Name == "acted" {
		return "info", append([]ast.Expr{call.Args[0]}, call.Args[2:]...)
	}
	name := ""
	switch x := sel.X.(type) {
	case *ast.Ident:
		name = x.Name
	case *ast.SelectorExpr:
		name = x.Sel.Name
	}
	if name = strings.ToLower(name); name != "log" && name != "logger" {
		return "", nil
	}
	if sel.Sel.Name == "LogAttrs" && len(call.Args) >= 3 {
		return "configured", call.Args[2:]
	}
	return levels[sel.Sel.Name], call.Args
}

// scan finds the keys of attributes in one file.
type scan struct{ file *ast.File }

// keys are the keys of key and value in turn, of groups, and of what a variable
// with attributes was given.
func (s *scan) keys(args []ast.Expr) []string {
	var keys []string
	for i := 0; i < len(args); i++ {
		switch x := args[i].(type) {
		case *ast.BasicLit:
			if key, err := strconv.Unquote(x.Value); err == nil && keyForm.MatchString(key) {
				keys = append(keys, key)
			}
			i++ // its value
		case *ast.CallExpr:
			keys = append(keys, s.ofCall(x)...)
		case *ast.CompositeLit:
			keys = append(keys, s.keys(x.Elts)...)
		case *ast.Ident:
			keys = append(keys, s.ofVariable(x.Name)...)
		}
	}
	return keys
}

func (s *scan) ofCall(call *ast.CallExpr) []string {
	name := ""
	switch fun := call.Fun.(type) {
	case *ast.Ident:
		name = fun.Name
	case *ast.SelectorExpr:
		name = fun.Sel.Name
		if x, ok := fun.X.(*ast.Ident); ok && x.Name == "slog" {
			return s.keys(call.Args[:1])
		}
	}
	if group, ok := groups[name]; ok {
		return []string{group}
	}
	if name == "append" {
		return s.keys(call.Args)
	}
	return nil
}

// ofVariable looks at every assignment to a name in the file.
func (s *scan) ofVariable(name string) (keys []string) {
	ast.Inspect(s.file, func(n ast.Node) bool {
		as, ok := n.(*ast.AssignStmt)
		if !ok || len(as.Lhs) != 1 {
			return true
		}
		if id, ok := as.Lhs[0].(*ast.Ident); !ok || id.Name != name {
			return true
		}
		switch x := as.Rhs[0].(type) {
		case *ast.CallExpr:
			if len(x.Args) > 0 {
				if first, ok := x.Args[0].(*ast.Ident); ok && first.Name == name {
					x = &ast.CallExpr{Fun: x.Fun, Args: x.Args[1:]} // attrs = append(attrs, ...)
				}
			}
			keys = append(keys, s.ofCall(x)...)
		case *ast.CompositeLit:
			keys = append(keys, s.keys(x.Elts)...)
		}
		return true
	})
	return keys
}

func union(a, b []string) []string {
	all := append(slices.Clone(a), b...)
	slices.Sort(all)
	return slices.Compact(all)
}
