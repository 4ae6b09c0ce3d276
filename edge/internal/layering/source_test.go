package layering

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// module is the module's path.
const module = "fencepost"

// source is one Go file, by its path below the module.
type source struct {
	path string
	text string
}

// file is what the rules look at.
type file struct {
	path    string
	dir     string // "" is the module itself
	test    bool
	imports []use
	calls   []use // selectors that are called: time.Now, x.Raw
}

// use is something that a file uses, and where.
type use struct {
	name string
	line int
}

// parse reads one file. A selector on an imported package is written with the
// package's import path, so that another name for it makes no difference.
func parse(t *testing.T, s source) file {
	t.Helper()
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, s.path, s.text, parser.SkipObjectResolution)
	require.NoError(t, err)
	f := file{path: s.path, dir: path.Dir(s.path), test: strings.HasSuffix(s.path, "_test.go")}
	if f.dir == "." {
		f.dir = ""
	}
	names := map[string]string{}
	for _, spec := range tree.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		require.NoError(t, err)
		f.imports = append(f.imports, use{name, fset.Position(spec.Pos()).Line})
		local := path.Base(name)
		if spec.Name != nil {
			local = spec.Name.Name
		}
		names[local] = name
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		name := sel.Sel.Name
		if x, ok := sel.X.(*ast.Ident); ok && names[x.Name] != "" {
			name = names[x.Name] + "." + name
		} else {
			name = "." + name
		}
		f.calls = append(f.calls, use{name, fset.Position(sel.Pos()).Line})
		return true
	})
	return f
}

// readTree reads all Go files of the module.
func readTree(t *testing.T) []source {
	t.Helper()
	root := moduleRoot(t)
	var all []source
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if p != root && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || !d.Type().IsRegular() {
			return nil
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		all = append(all, source{filepath.ToSlash(rel), string(b)})
		return nil
	})
	require.NoError(t, err)
	return all
}

// moduleRoot is the directory above this one that has the go.mod.
func moduleRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	require.NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		require.NotEqual(t, parent, dir, "no go.mod above this package")
		dir = parent
	}
}
