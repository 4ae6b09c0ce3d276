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

// Every key of the program is in the example, in its section: given, or in a
// comment at its default.
func TestExampleNamesEveryKey(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(exampleFile)
	require.NoError(t, err)
	header, key := regexp.MustCompile(`^(\[+[a-z]+\]+)$`), regexp.MustCompile(`^(?:# )?([a-z0-9_]+) = `)
	named, section := map[string]bool{}, ""
	for _, line := range strings.Split(string(b), "\n") {
		line = strings.TrimSuffix(line, "\r")
		if m := header.FindStringSubmatch(strings.TrimPrefix(line, "# ")); m != nil {
			section = m[1]
		} else if m := key.FindStringSubmatch(line); m != nil {
			named[section+" "+m[1]] = true
		}
	}
	for _, k := range config.Keys() {
		require.True(t, named[k.Section+" "+k.Name], "%s is not in the example", k.Path())
	}
	require.Greater(t, len(named), 60)
}

func mustParse(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Parse("test.toml", []byte(text))
	require.NoError(t, err)
	return c
}
