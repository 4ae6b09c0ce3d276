package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge/api"
	"fencepost/edge/cli"
)

// pasted is a command within a text: what stands in a block of shell, in
// backquotes or after "fencepost" in an example.
var pasted = regexp.MustCompile(`(?m)(?:^|[\s` + "`" + `(&|])(?:sudo )?fencepost ([a-z][^\n` + "`" + `#|&>)]*)`)

// A command that the program or its documentation shows is one that the program
// takes: it is there, and has these flags.
func TestPasted_ShownCommandsAreTaken(t *testing.T) {
	t.Parallel()
	texts := map[string]string{}
	for _, c := range cli.CommandsForTest(cli.RootForTest()) {
		texts["help of "+c.CommandPath()] = c.Example
	}
	pages, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	require.Greater(t, len(pages), 5)
	for _, path := range append(pages, "../../README.md", "../../config.example.toml") {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		texts[path] = blocks(string(b))
	}
	seen := 0
	for where, text := range texts {
		for _, m := range pasted.FindAllStringSubmatch(text, -1) {
			words := strings.Fields(m[1])
			if slices.Contains([]string{"command", "ann"}, words[0]) {
				continue // a command that is left open; the group fencepost and one who is put into it
			}
			root := cli.RootForTest()
			c, rest, err := root.Find(words)
			require.NoError(t, err, "%s: fencepost %s", where, m[1])
			require.NotSame(t, root, c, "%s: fencepost %s", where, m[1])
			for _, word := range rest {
				name, isFlag := strings.CutPrefix(word, "--")
				name, _, _ = strings.Cut(strings.Trim(name, "`'\",.;:]"), "=")
				if !isFlag || name == "help" || name == "" {
					continue
				}
				require.True(t, c.Flags().Lookup(name) != nil || c.InheritedFlags().Lookup(name) != nil, "%s: fencepost %s: no flag --%s", where, m[1], name)
			}
			seen++
		}
	}
	require.Greater(t, seen, 80)
}

// blocks are the parts of a page that are code.
func blocks(page string) string {
	var b strings.Builder
	for i, part := range strings.Split(page, "```") {
		if i%2 == 1 {
			b.WriteString(part + "\n")
			continue
		}
		for j, code := range strings.Split(part, "`") {
			if j%2 == 1 {
				b.WriteString("`" + code + "`\n")
			}
		}
	}
	return b.String()
}

// quoted is a command that a text of the program names.
var quoted = regexp.MustCompile(`fencepost ([a-z][a-z-]+)((?: [a-z][a-z-]+)?)`)

// What errors and explanations tell people to run is a command.
func TestPasted_NamedCommandsAre(t *testing.T) {
	t.Parallel()
	seen := 0
	require.NoError(t, filepath.WalkDir("../..", func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "internal/") || strings.Contains(path, "edge/sqlite/") {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(b)) {
			code, _, _ := strings.Cut(line, "// ")
			for _, m := range quoted.FindAllStringSubmatch(code, -1) {
				if slices.Contains([]string{"program", "as", "machine", "trace", "span", "database"}, m[1]) {
					continue // prose
				}
				root := cli.RootForTest()
				c, _, err := root.Find([]string{m[1]})
				require.NoError(t, err, "%s: %s", path, line)
				require.NotSame(t, root, c, "%s: %s", path, line)
				if c.Annotations != nil || !c.HasSubCommands() || m[2] == "" {
					seen++
					continue
				}
				sub, _, err := root.Find([]string{m[1], strings.TrimSpace(m[2])})
				require.NoError(t, err, "%s: %s", path, line)
				require.NotSame(t, c, sub, "%s: %s", path, line)
				seen++
			}
		}
		return nil
	}))
	require.Greater(t, seen, 60)
}

func TestPasted_AGroupListsWithTheFlagsOfItsList(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	p := s.start(t)
	require.Equal(t, s.ok(t, "target", "list", "--stalled"), s.ok(t, "target", "--stalled"))
	require.Zero(t, p.stop(t))
	require.Equal(t, s.ok(t, "handler", "list", "--json", "--offline"), s.ok(t, "handler", "--json", "--offline"))
}

func TestUsage_AMistypedCommandIsOneLine(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	r := s.runRaw(t, "statsu")
	require.Equal(t, api.ExitUsage, r.code)
	require.Equal(t, "fencepost: unknown command \"statsu\" for \"fencepost\": did you mean status?; run it with --help to see what it takes\n", r.err)
	r = s.runRaw(t, "target", "lst")
	require.Equal(t, api.ExitUsage, r.code)
	require.Equal(t, 1, strings.Count(r.err, "\n"), r.err)
	require.NotContains(t, r.err, `\t`)
}

func TestUsage_VersionIsAFlagToo(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	require.Equal(t, s.ok(t, "version"), s.runRaw(t, "--version").out)
}

func TestUsage_SaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	require.Contains(t, s.run(t, "man").err, "with --dir, or print one page with --markdown")
	require.Contains(t, s.run(t, "install-service", "--root", s.path("nothing")).err, "mkdir -p")
}

// A file that has faults, or says nothing, under a node that runs.
func TestFaultyFile_CommandsReachTheNode(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	p := s.start(t)
	require.NoError(t, os.WriteFile(s.path("events"), []byte(`{"type":"a","source":"/s"}`+"\n"), 0o600))
	s.configure(t, "[[route]]\nname = \"r\"\nhandler = \"nobody\"\n")
	require.Equal(t, api.ExitUsage, s.run(t, "config", "check", s.path("fencepost.toml")).code)
	require.Contains(t, s.ok(t, "send", "--type", "a"), "accepted")
	require.Contains(t, s.ok(t, "send", "--batch", s.path("events")), "1 new")
	require.NoError(t, os.WriteFile(s.path("fencepost.toml"), nil, 0o600))
	r := s.run(t, "reload")
	require.Equal(t, api.ExitNoNode, r.code)
	require.Contains(t, r.err, "still at that one: there is "+s.path("db.sock"))
	require.Zero(t, p.stop(t))
}

func TestBulk_DryRunSaysWhatTheRunDoes(t *testing.T) {
	t.Parallel()
	s := newSite(t, strings.Replace(waiting, "retry_delay_s", "retry_schedule_s", 1))
	p := s.start(t)
	s.ok(t, "handler", "pause", "later") // so that they stay as they are
	s.send(t, "later.x", 3)
	for verb, want := range map[string]string{"redrive": "it is pending: only a final delivery is redriven", "retry-now": "", "cancel": ""} {
		dry := s.bulk(t, 0, verb, "--state", "pending", "--dry-run")
		require.Equal(t, 3, dry.Matched, verb)
		if want != "" {
			require.Equal(t, map[string]int{want: 3}, dry.Reasons)
			require.Contains(t, s.ok(t, verb, "--state", "pending", "--dry-run"), "0 deliveries would be redriven")
			run := s.bulk(t, api.ExitConflict, verb, "--state", "pending", "--yes")
			require.Equal(t, dry.Reasons, run.Reasons)
			continue
		}
		require.Zero(t, dry.Skipped, verb)
	}
	require.Equal(t, 3, s.bulk(t, 0, "cancel", "--state", "pending", "--yes").Done)
	require.Equal(t, map[string]int{"it is cancelled already: nothing to call off": 3}, s.bulk(t, api.ExitConflict, "cancel", "--state", "cancelled", "--yes").Reasons)
	require.Contains(t, p.log.String(), "done=3")
	require.Equal(t, 1, strings.Count(p.log.String(), "bulk operation"), "what changed nothing is not logged as done: %s", p.log)
	require.Zero(t, p.stop(t))
}

// Without a node an explanation does not let people believe that a command works.
func TestExplain_OfflineSaysThatNoNodeRuns(t *testing.T) {
	t.Parallel()
	s := newSite(t, strings.Replace(waiting, "retry_delay_s", "retry_schedule_s", 1))
	p := s.start(t)
	id := s.send(t, "later.x", 1)[0]
	require.Contains(t, s.ok(t, "handler", "pause", "later", "--for", "1d"), "paused_by_operator")
	require.NotContains(t, s.ok(t, "explain", id), "No node runs")
	require.Zero(t, p.stop(t))
	r := s.run(t, "explain", "--offline", id)
	require.Zero(t, r.code)
	require.Contains(t, r.out, "No node runs: each of these commands needs one")
	require.NotContains(t, s.run(t, "status", "--offline").out, "under way")
}
