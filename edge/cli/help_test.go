package cli_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge/api"
	"fencepost/edge/cli"
)

var update = flag.Bool("update", false, "rewrite docs/cli.md")

func TestHelp_EveryCommandIsDescribed(t *testing.T) {
	t.Parallel()
	root := cli.RootForTest()
	seen := 0
	for _, c := range cli.CommandsForTest(root) {
		seen++
		path := c.CommandPath()
		require.NotEmpty(t, c.Short, path)
		require.NotEmpty(t, c.Long, "%s: beside the command, or in help.go", path)
		require.NotEmpty(t, c.Example, "%s: beside the command, or in help.go", path)
		for line := range strings.Lines(c.Example) {
			require.True(t, strings.HasPrefix(line, "  "), "%s: examples are indented by two: %q", path, line)
			require.Contains(t, line, "fencepost", path)
		}
		for _, usage := range cli.FlagUsagesForTest(c) {
			require.NotEmpty(t, usage, "%s: a flag without a description", path)
		}
	}
	require.Greater(t, seen, 25)
}

// The reference is what the program says: go test ./edge/cli -run Reference -update.
func TestHelp_ReferenceIsOfThisProgram(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	got := s.ok(t, "man", "--markdown")
	const path = "../../docs/cli.md"
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "run: go test ./edge/cli -run Reference -update")
}

func TestMan_OnePageForEachCommand(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	dir := t.TempDir()
	require.Contains(t, s.ok(t, "man", "--dir", dir), "pages")
	for _, c := range cli.CommandsForTest(cli.RootForTest()) {
		page, err := os.ReadFile(filepath.Join(dir, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1"))
		require.NoError(t, err)
		for _, part := range []string{".TH ", ".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION", ".SH EXIT STATUS"} {
			require.Contains(t, string(page), part)
		}
		for line := range strings.Lines(string(page)) {
			require.False(t, strings.HasPrefix(line, "'"), "%s: %q would be a command of roff", c.CommandPath(), line)
		}
	}
	require.Equal(t, 2, s.run(t, "man", "--dir", "/nowhere").code)
}

// What cannot be printed whole did not succeed.
func TestHelp_OntoAFullDeviceFails(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"help"}, {"help", "send"}, {"send", "--help"}, {"man", "--markdown"}, {"completion", "bash"}, {"schema"}, {"version"}, {}} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		require.NoError(t, err)
		var said strings.Builder
		require.Equal(t, api.ExitFailed, cli.Main(t.Context(), args, cli.Streams{In: strings.NewReader(""), Out: full, Err: &said}), args)
		require.Contains(t, said.String(), "no space left on device", args)
		require.NotContains(t, said.String(), "--help", "nothing is wrong with how it was called")
		require.NoError(t, full.Close())
	}
}

func TestCompletion_KnowsNamesAndStates(t *testing.T) {
	t.Parallel()
	s := newSite(t, routes)
	for _, shell := range []string{"bash", "zsh", "fish"} {
		require.Contains(t, s.ok(t, "completion", shell), "fencepost", shell)
	}
	require.Equal(t, 2, s.run(t, "completion", "tcsh").code)
	complete := func(args ...string) string {
		return s.runRaw(t, append([]string{"__complete", "--config", s.path("fencepost.toml")}, args...)...).out
	}
	require.NotContains(t, complete("handler", "pause", ""), "record", "no node, no names, no error")
	p := s.start(t)
	require.Contains(t, complete("handler", "pause", ""), "record")
	require.Contains(t, complete("handler", "pause", "st"), "stuck")
	require.NotContains(t, complete("handler", "pause", "st"), "record")
	require.Contains(t, complete("deliveries", "--state", "bl"), "blocked")
	require.Contains(t, complete("deliveries", "--handler", ""), "stuck")
	require.Zero(t, p.stop(t))
}
