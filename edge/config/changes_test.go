package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge/config"
)

func TestChanges(t *testing.T) {
	t.Parallel()
	old := mustParse(t, "[node]\nworkers = 3\nlog_level = \"warn\"\n[http]\nallowed_hosts = [\"a\"]\n"+
		"[[handler]]\nname = \"stays\"\nkind = \"log\"\n[[handler]]\nname = \"goes\"\nkind = \"log\"\n[[handler]]\nname = \"h\"\nkind = \"log\"\n"+
		"[[route]]\nname = \"one\"\nhandler = \"h\"\n[[route]]\nname = \"two\"\nhandler = \"h\"\n")
	next := mustParse(t, "\n# the lines are others\n[node]\nlease_s = 30\nlog_level = \"error\"\n[http]\nallowed_hosts = [\"a\", \"b\"]\n"+
		"[[handler]]\nname = \"stays\"\nkind = \"log\"\n[[handler]]\nname = \"comes\"\nkind = \"log\"\n[[handler]]\nname = \"h\"\nkind = \"log\"\ntimeout_s = 9\n"+
		"[[route]]\nname = \"two\"\nhandler = \"h\"\n[[route]]\nname = \"one\"\nhandler = \"h\"\n")
	require.Equal(t, []config.Change{
		{"node.lease_s", "30s, was 1m0s", config.AtRestart},
		{"node.log_level", `"error", was "warn"`, config.AtReload},
		{"node.workers", "64, was 3", config.AtReload},
		{"http.allowed_hosts", `["a", "b"], was ["a"]`, config.AtReload},
		{"handler.comes", "added", config.AtClaim},
		{"handler.h", "changed", config.AtClaim},
		{"handler.goes", "removed", config.AtClaim},
		{"route", "in another order", config.AtReload},
	}, config.Changes(old, next))
	require.Empty(t, config.Changes(next, next))

	one := "[[uplink]]\nname = \"lte\"\nprobe = \"192.0.43.8:443\"\n"
	require.Equal(t, []config.Change{{"uplink.lte", "changed", config.AtReload}}, config.Changes(mustParse(t, one), mustParse(t, one+"timeout_s = 3\n")))
}

// Each key outside of the lists can be seen to change: another value than the
// default is a change of this very key.
func TestEveryKeyCanBeSeenToChange(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, r := range readReference(t) {
		if r.section[:2] == "[[" {
			continue
		}
		value, ok := map[string]string{
			"data": `"other.db"`, "listen": `""`,
			"token_file": `"other"`, "socket": `"other"`, "socket_group": `"other"`, "allowed_hosts": `["other"]`,
		}[r.key]
		if m := rangeCell.FindStringSubmatch(r.allowed); !ok && m != nil {
			value, ok = m[2], true // the least: no key has it as its default
			if "`"+value+"`" == r.dflt {
				value = m[3]
			}
		}
		if wordsCell.MatchString(r.allowed) {
			value, ok = strings.Trim(strings.Replace(strings.Replace(r.allowed, r.dflt, "", 1), ",", "", 1), " "), true
			value = strings.Trim(strings.Split(value, ", ")[0], "` ")
		}
		if r.typ == "true or false" {
			value, ok = map[string]string{"`true`": "false", "`false`": "true"}[r.dflt], true
		}
		if !ok || r.key == "at_backlog_bound" { // which needs another key beside it
			continue
		}
		c, err := config.Parse("x.toml", []byte(r.section+"\n"+r.key+" = "+value+"\n"))
		require.NoError(t, err)
		var keys []string
		for _, change := range config.Changes(mustParse(t, ""), c) {
			keys = append(keys, change.Key)
		}
		require.Contains(t, keys, r.section[1:len(r.section)-1]+"."+r.key)
		seen++
	}
	require.Greater(t, seen, 20)
}

func TestSourceNamesPlaces(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f.toml")
	require.NoError(t, os.WriteFile(path, []byte("[node]\n  workers = 3\n[[handler]]\nname = \"h\"\nkind = \"log\"\n"), 0o600))
	_, src, err := config.Read(path)
	require.NoError(t, err)
	for key, place := range map[string][2]int{
		"node.workers": {2, 3}, "node.lease_s": {1, 2}, "handler[1].name": {4, 1}, "handler[1].url": {3, 3}, "http.listen": {0, 0},
	} {
		f := src.Fault(key, "p", "a")
		require.Equal(t, place, [2]int{f.Line, f.Column}, key)
	}
	require.True(t, src.Has("node.workers"))
	require.False(t, src.Has("node.lease_s"))
	require.NoError(t, src.Finish(nil))
}

// Who looks for a node finds its socket in a file that has faults elsewhere.
func TestSocketOfAFaultyFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "f.toml")
	for text, want := range map[string]string{
		"":                                      "fencepost.db.sock",
		"[node]\ndata = \"x\"\nq = 1":           "x.sock",
		"[http]\nsocket = \"s\"\n[[handler]]\n": "s",
		"[http]\nsocket = \"\"\nnonsense = 1":   "",
		"[http]\nsocket = 1":                    "",
		"[node]\ndata = \"\"":                   "",
		"node = 1":                              "",
		"[node":                                 "",
		"[node]\ndata = \"x\"\n[http]\nlisten = 1": "x.sock",
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		got := config.Socket(path)
		if want == "" {
			require.Empty(t, got, text)
			continue
		}
		require.NotEmpty(t, got, text)
		require.Equal(t, filepath.Join(dir, want), absolute(t, got), text)
	}
	require.Empty(t, config.Socket(filepath.Join(dir, "none")))
}
