package config_test

import (
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/config"
)

const exampleFile = "../../config.example.toml"

// commentedKey is a key that the example shows at its default.
var commentedKey = regexp.MustCompile(`^# ([a-z0-9_]+ = .*)$`)

func TestExampleHasTheDefaults(t *testing.T) {
	t.Parallel()
	c := mustParse(t, readExample(t))
	d := config.Default()
	require.Equal(t, d.Node, c.Node)
	require.Equal(t, d.HTTP, c.HTTP)

	empty, err := config.Parse("empty.toml", nil)
	require.NoError(t, err)
	d.File = "empty.toml"
	require.Equal(t, &d, empty)
}

func TestExampleRoutesGreetingsToEachKind(t *testing.T) {
	t.Parallel()
	c, err := config.Load(exampleFile)
	require.NoError(t, err)
	kinds := map[string]config.Kind{}
	for _, h := range c.Handlers {
		kinds[h.Name] = h.Kind
	}
	require.Equal(t, map[string]config.Kind{
		"hello": config.KindWebhook, "echo": config.KindCommand, "record": config.KindLog,
	}, kinds)
	for _, r := range c.Routes {
		require.Equal(t, "greeting.*", r.Type)
		delete(kinds, r.Handler)
	}
	require.Empty(t, kinds, "handlers without a route")
	require.Equal(t, []string{"env:FENCEPOST_EXAMPLE_SECRET"}, c.Handlers[0].Webhook.Secrets)
	require.Equal(t, edge.Once, c.Handlers[1].Effect)
}

// Each key that the example shows in a comment must be known there, and be
// shown at its default: to take the comment away changes nothing.
func TestExampleShowsEachDefault(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(exampleFile)
	require.NoError(t, err)
	want := mustParse(t, string(b))
	lines := strings.Split(string(b), "\n")
	shown := 0
	for i, line := range lines {
		m := commentedKey.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		shown++
		changed := append([]string{}, lines...)
		changed[i] = m[1]
		got := mustParse(t, strings.Join(changed, "\n"))
		if strings.HasPrefix(m[1], "concurrency") && got.Handlers[1].Concurrency == 4 {
			got.Handlers[1].Concurrency = runtime.NumCPU() // shown as a number, is that of the cores
		}
		require.Equal(t, want, got, "line %d: %s", i+1, m[1])
	}
	require.Greater(t, shown, 20)
}

// Every key of the program is in the example: those that a fault lists as known,
// for each section and kind.
func TestExampleNamesEveryKey(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(exampleFile)
	require.NoError(t, err)
	for _, section := range []string{
		"[node]", "[http]", "[[uplink]]", "[[route]]", "[[handler]]\nkind = \"log\"", "[[handler]]\nkind = \"webhook\"", "[[handler]]\nkind = \"command\"",
	} {
		_, err := config.Parse("x.toml", []byte(section+"\nqqqqqqqqqqqqqqqq = 1\n"))
		var errs config.Errors
		require.ErrorAs(t, err, &errs)
		found := false
		for _, f := range errs {
			list, ok := strings.CutPrefix(f.Allowed, "known are ")
			if !ok {
				continue
			}
			found = true
			for _, key := range strings.Split(list, ", ") {
				require.Regexp(t, `(?m)^(# )?`+key+` = `, string(b), "%s of %s", key, section)
			}
		}
		require.True(t, found, "%s: %v", section, err)
	}
}

func mustParse(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Parse("test.toml", []byte(text))
	require.NoError(t, err)
	return c
}
