package layering

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func parseAll(t *testing.T, sources []source) []file {
	t.Helper()
	files := make([]file, len(sources))
	for i, s := range sources {
		files[i] = parse(t, s)
	}
	return files
}

func TestTheTreeKeepsTheRules(t *testing.T) {
	t.Parallel()
	files := parseAll(t, readTree(t))
	seen := map[string]bool{}
	for _, f := range files {
		seen[f.dir] = true
	}
	for _, dir := range []string{"edge", "edge/sqlite", "edge/config", "edge/route", "edge/schedule", "edge/internal/layering"} {
		require.True(t, seen[dir], "%s was not read", dir)
	}
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			require.Empty(t, r.broken(files))
		})
	}
}

// importer is a file that imports some paths.
func importer(path string, imports ...string) source {
	text := "package p\n"
	for _, i := range imports {
		text += "import _ \"" + i + "\"\n"
	}
	return source{path, text}
}

// caller is a file that imports a path and has a function with one statement.
func caller(path, imports, statement string) source {
	return source{path, "package p\nimport " + imports + "\nfunc f() { " + statement + " }\n"}
}

// control shows for one rule what breaks it and what does not.
type control struct {
	bad  [][]source
	good [][]source
}

func one(s source) []source { return []source{s} }

// controls has an entry for each rule.
var controls = map[string]control{
	"edge imports the standard library only": {
		bad: [][]source{
			one(importer("edge/x.go", "github.com/google/uuid")), one(importer("edge/x.go", "fencepost/edge/route")), one(importer("edge/x.go", "fencepost")),
			{importer("edge/a.go", "time"), importer("edge/b.go", "golang.org/x/sys/unix")},
		},
		good: [][]source{one(importer("edge/x.go", "time", "crypto/rand")), one(importer("edge/x_test.go", "fencepost/edge/edgetest")), one(importer("edge/sqlite/x.go", "github.com/jmoiron/sqlx"))},
	},
	"packages import only the layers below": {
		bad: [][]source{
			one(importer("main.go", "fencepost/edge/node")), one(importer("edge/cli/x.go", "fencepost/edge/console")), one(importer("edge/node/x.go", "fencepost/edge/cli")),
			one(importer("edge/config/x.go", "fencepost/edge/sqlite")), one(importer("edge/sqlite/x.go", "fencepost/edge/route")), one(importer("edge/api/x.go", "fencepost/edge/config")),
			one(importer("edge/route/x.go", "fencepost/edge/config")), one(importer("edge/schedule/x.go", "fencepost/edge/api")), one(importer("edge/sqlite/sub/x.go", "fencepost/edge/api")),
			one(importer("handlers/x.go", "fencepost/handlers/webhook")), one(importer("handlers/new/x.go", "fencepost/edge/sqlite")), one(importer("somewhere/x.go", "fencepost/edge")),
		},
		good: [][]source{
			one(importer("main.go", "fencepost/edge/cli", "os")), one(importer("edge/cli/x.go", "fencepost/edge/node", "fencepost/edge/config")),
			one(importer("edge/node/x.go", "fencepost/edge", "fencepost/handlers", "fencepost/handlers/webhook", "fencepost/edge/route")),
			one(importer("edge/config/x.go", "fencepost/edge/route")), one(importer("handlers/webhook/x.go", "fencepost/edge", "fencepost/handlers")),
			one(importer("edge/sqlite/x_test.go", "fencepost/edge/edgetest")),
		},
	},
	"edgetest and internal are for tests": {
		bad:  [][]source{one(importer("edge/sqlite/x.go", "fencepost/edge/edgetest")), one(importer("edge/node/x.go", "fencepost/edge/internal/failpoint"))},
		good: [][]source{one(importer("edge/sqlite/x_test.go", "fencepost/edge/edgetest", "fencepost/edge/internal/failpoint")), one(importer("edge/edgetest/x.go", "fencepost/edge/internal/a"))},
	},
	"handlers never import each other": {
		bad:  [][]source{one(importer("handlers/webhook/x.go", "fencepost/handlers/command")), one(importer("handlers/log/x_test.go", "fencepost/handlers/webhook"))},
		good: [][]source{one(importer("handlers/webhook/x_test.go", "fencepost/handlers/webhook", "fencepost/handlers")), one(importer("edge/node/x.go", "fencepost/handlers/log"))},
	},
	"robfig/cron only in edge/schedule": {
		bad:  [][]source{one(importer("edge/config/x.go", "github.com/robfig/cron/v3")), one(importer("edge/node/x_test.go", "github.com/robfig/cron"))},
		good: [][]source{one(importer("edge/schedule/x.go", "github.com/robfig/cron/v3"))},
	},
	"expr-lang only in edge/expression": {
		bad:  [][]source{one(importer("edge/route/x.go", "github.com/expr-lang/expr")), one(importer("edge/config/x_test.go", "github.com/expr-lang/expr/parser"))},
		good: [][]source{one(importer("edge/expression/x.go", "github.com/expr-lang/expr/parser"))},
	},
	"database packages only in edge/sqlite": {
		bad: [][]source{
			one(importer("edge/x.go", "database/sql")), one(importer("edge/api/x.go", "database/sql/driver")), one(importer("edge/cli/x.go", "github.com/jmoiron/sqlx")),
			one(importer("edge/edgetest/x.go", "modernc.org/sqlite")),
		},
		good: [][]source{one(importer("edge/sqlite/x.go", "database/sql", "github.com/jmoiron/sqlx", "modernc.org/sqlite/lib"))},
	},
	"TOML only in edge/config": {
		bad:  [][]source{one(importer("edge/node/x.go", "github.com/pelletier/go-toml/v2/unstable"))},
		good: [][]source{one(importer("edge/config/x.go", "github.com/pelletier/go-toml/v2"))},
	},
	"testify only in tests": {
		bad:  [][]source{one(importer("edge/node/x.go", "github.com/stretchr/testify/require"))},
		good: [][]source{one(importer("edge/node/x_test.go", "github.com/stretchr/testify/require")), one(importer("edge/edgetest/x.go", "github.com/stretchr/testify/require"))},
	},
	"testing only in tests": {
		bad:  [][]source{one(importer("edge/node/x.go", "testing"))},
		good: [][]source{one(importer("edge/node/x_test.go", "testing")), one(importer("edge/edgetest/x.go", "testing"))},
	},
	"Conn.Raw only in one file of edge/sqlite": {
		bad: [][]source{
			one(caller("edge/api/x.go", `"database/sql"`, "var c *sql.Conn; _ = c.Raw(nil)")),
			one(caller("edge/sqlite/x_test.go", `"database/sql"`, "var c *sql.Conn; _ = c.Raw(nil)")),
			{caller("edge/sqlite/a.go", `"database/sql"`, "var c *sql.Conn; _ = c.Raw(nil)"), caller("edge/sqlite/b.go", `"database/sql"`, "var c *sql.Conn; g := c.Raw; _ = g")},
		},
		good: [][]source{
			{caller("edge/sqlite/a.go", `"database/sql"`, "var c *sql.Conn; _ = c.Raw(nil); _ = c.Raw(nil)"), caller("edge/sqlite/b.go", `"fmt"`, "fmt.Println()")},
			one(caller("edge/config/x.go", `"github.com/pelletier/go-toml/v2/unstable"`, "var n unstable.Node; _ = n.Raw")),
		},
	},
	"no clock but edge.Clock in edge and edge/sqlite": {
		bad: [][]source{
			one(caller("edge/x.go", `"time"`, "_ = time.Now()")), one(caller("edge/sqlite/x.go", `t "time"`, "_ = t.Now()")),
			one(caller("edge/x.go", `"time"`, "now := time.Now; _ = now")), one(caller("edge/sqlite/x.go", `"time"`, "_ = time.Since(time.Time{})")),
		},
		good: [][]source{
			one(caller("edge/clock.go", `"time"`, "_ = time.Now()")), one(caller("edge/x_test.go", `"time"`, "_ = time.Now()")), one(caller("edge/api/x.go", `"time"`, "_ = time.Now()")),
			one(caller("edge/x.go", `"time"`, "_ = time.Second; // time.Now()\n_ = `time.Now()`")),
		},
	},
}

// Each rule can fail, and does not fail on what is right.
func TestEachRuleCanFail(t *testing.T) {
	t.Parallel()
	require.Len(t, controls, len(rules), "each rule has a control")
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			c, ok := controls[r.name]
			require.True(t, ok)
			require.NotEmpty(t, c.bad)
			require.NotEmpty(t, c.good)
			for _, set := range c.bad {
				broken := r.broken(parseAll(t, set))
				require.NotEmpty(t, broken, "%v", set)
				require.True(t, strings.HasPrefix(broken[0], set[0].path) || strings.HasPrefix(broken[0], set[len(set)-1].path))
			}
			for _, set := range c.good {
				require.Empty(t, r.broken(parseAll(t, set)), "%v", set)
			}
		})
	}
}
