package layering

import (
	"fmt"
	"slices"
	"strings"
)

// rule judges one file: it returns the places that break it.
type rule struct {
	name  string
	check func(file) []use
	// whole judges all files together, in place of check.
	whole func([]file) []string
}

// broken lists what breaks the rule, one line each.
func (r rule) broken(files []file) []string {
	if r.whole != nil {
		return r.whole(files)
	}
	var out []string
	for _, f := range files {
		for _, u := range r.check(f) {
			out = append(out, fmt.Sprintf("%s:%d: %s", f.path, u.line, u.name))
		}
	}
	return out
}

// layers says what the packages of the module may import of it outside their
// tests. What a package's own directory does not list, that of the nearest one
// above with a slash at the end does. It is the drawing of docs/architecture.md:
// main -> cli -> node -> adapters -> edge -> standard library.
var layers = map[string][]string{
	"":                {"edge/cli"},
	"edge/cli":        {"edge", "edge/internal/bench", "edge/node", "edge/config", "edge/sqlite", "edge/api", "edge/schedule", "edge/action", "edge/route", "edge/service", "handlers", "handlers/"},
	"edge/node":       {"edge", "edge/uplink", "edge/config", "edge/sqlite", "edge/api", "edge/console", "edge/schedule", "edge/action", "edge/metrics", "edge/route", "edge/expression", "edge/service", "handlers", "handlers/"},
	"edge/config":     {"edge", "edge/route", "edge/expression"},
	"edge/api":        {"edge", "edge/route"},
	"edge/sqlite":     {"edge"},
	"edge/console":    {"edge"},
	"edge/schedule":   {"edge"},
	"edge/action":     {"edge"},
	"edge/metrics":    {"edge"},
	"edge/uplink":     {"edge"},
	"edge/route":      {"edge", "edge/expression"},
	"edge/expression": {"edge"},
	"edge/service":    {},
	"edge/edgetest":   {"edge"},
	"edge":            {},
	"edge/internal/":  {"edge"},
	// What the command bench runs: it drives a whole node.
	"edge/internal/bench": {"edge", "edge/sqlite", "edge/node", "edge/config", "edge/api"},
	"edge/sqlite/":        {"edge", "edge/sqlite"},
	"handlers":            {"edge"},
	"handlers/":           {"edge", "handlers"},
	"handlers/webhook":    {"edge", "handlers"},
	"handlers/command":    {"edge", "handlers"},
	"handlers/log":        {"edge", "handlers"},
}

// rules are all rules.
var rules = []rule{
	{name: "edge imports the standard library only", check: func(f file) []use {
		if f.dir != "edge" || f.test {
			return nil
		}
		return importing(f, func(p string) bool { return !standard(p) })
	}},
	{name: "packages import only the layers below", check: func(f file) []use {
		if f.test {
			return nil
		}
		allowed, known := below(f.dir)
		return importing(f, func(p string) bool {
			dir, ours := own(p)
			return ours && (!known || !allowing(allowed, dir))
		})
	}},
	{name: "edgetest and internal are for tests", check: func(f file) []use {
		if f.test || within(f.dir, "edge/edgetest") || within(f.dir, "edge/internal") {
			return nil
		}
		return importing(f, func(p string) bool {
			dir, ours := own(p)
			return ours && dir != "edge/internal/bench" && (within(dir, "edge/edgetest") || within(dir, "edge/internal"))
		})
	}},
	{name: "handlers never import each other", check: func(f file) []use {
		if !strings.HasPrefix(f.dir, "handlers/") {
			return nil
		}
		return importing(f, func(p string) bool {
			dir, ours := own(p)
			return ours && strings.HasPrefix(dir, "handlers/") && !within(dir, family(f.dir))
		})
	}},
	only("robfig/cron only in edge/schedule", "edge/schedule", "github.com/robfig/cron"),
	only("expr-lang only in edge/expression", "edge/expression", "github.com/expr-lang"),
	only("database packages only in edge/sqlite", "edge/sqlite", "database/sql", "github.com/jmoiron/sqlx", "modernc.org"),
	only("TOML only in edge/config", "edge/config", "github.com/pelletier/go-toml"),
	{name: "testify only in tests", check: func(f file) []use {
		if f.test || f.dir == "edge/edgetest" {
			return nil
		}
		return importing(f, func(p string) bool { return within(p, "github.com/stretchr/testify") })
	}},
	{name: "testing only in tests", check: func(f file) []use {
		if f.test || f.dir == "edge/edgetest" {
			return nil
		}
		return importing(f, func(p string) bool { return within(p, "testing") })
	}},
	{name: "Conn.Raw only in one file of edge/sqlite", whole: func(files []file) []string {
		var outside, inside []string
		for _, f := range files {
			if n := len(calling(f, ".Raw")); n > 0 && within(f.dir, "edge/sqlite") && !f.test {
				inside = append(inside, f.path)
			} else if n > 0 && (f.test || importsDatabase(f)) {
				outside = append(outside, f.path)
			}
		}
		if len(inside) > 1 {
			outside = append(outside, inside...)
		}
		return outside
	}},
	{name: "no clock but edge.Clock in edge and edge/sqlite", check: func(f file) []use {
		if f.test || f.path == "edge/clock.go" || f.dir != "edge" && !within(f.dir, "edge/sqlite") {
			return nil
		}
		return calling(f, "time.Now", "time.Since", "time.Until")
	}},
}

// only is the rule that some imports have one place, tests included.
func only(name, place string, imports ...string) rule {
	return rule{name: name, check: func(f file) []use {
		if within(f.dir, place) {
			return nil
		}
		return importing(f, func(p string) bool {
			return slices.ContainsFunc(imports, func(i string) bool { return within(p, i) })
		})
	}}
}

// below is the entry of layers for a directory.
func below(dir string) ([]string, bool) {
	if allowed, ok := layers[dir]; ok {
		return allowed, true
	}
	for d := dir; strings.Contains(d, "/"); {
		d = d[:strings.LastIndex(d, "/")]
		if allowed, ok := layers[d+"/"]; ok {
			return allowed, true
		}
	}
	return nil, false
}

// allowing reports whether dir is in the list, or below an entry that ends with
// a slash.
func allowing(list []string, dir string) bool {
	return slices.ContainsFunc(list, func(a string) bool {
		return a == dir || strings.HasSuffix(a, "/") && strings.HasPrefix(dir, a)
	})
}

func importing(f file, bad func(string) bool) []use {
	return slices.DeleteFunc(slices.Clone(f.imports), func(u use) bool { return !bad(u.name) })
}

func calling(f file, names ...string) []use {
	return slices.DeleteFunc(slices.Clone(f.calls), func(u use) bool { return !slices.Contains(names, u.name) })
}

func importsDatabase(f file) bool {
	return len(importing(f, func(p string) bool {
		return within(p, "database/sql") || within(p, "github.com/jmoiron/sqlx") || within(p, "modernc.org")
	})) > 0
}

// standard reports whether an import path is of the standard library.
func standard(p string) bool {
	first, _, _ := strings.Cut(p, "/")
	return !strings.Contains(first, ".") && first != module
}

// own is the directory of an import path of this module.
func own(p string) (dir string, ours bool) {
	if p == module {
		return "", true
	}
	return strings.CutPrefix(p, module+"/")
}

// within reports whether p is base or below it.
func within(p, base string) bool { return p == base || strings.HasPrefix(p, base+"/") }

// family is the directory of the handler kind to which dir belongs.
func family(dir string) string {
	kind, _, _ := strings.Cut(strings.TrimPrefix(dir, "handlers/"), "/")
	return "handlers/" + kind
}
