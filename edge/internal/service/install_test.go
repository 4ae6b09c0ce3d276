package service_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	unitPath   = "/etc/systemd/system/fencepost.service"
	configPath = "/etc/fencepost/fencepost.toml"
)

// installer runs install-service on a directory in place of /.
func installer(t *testing.T) (root string, run func(args ...string) (int, string)) {
	t.Helper()
	root = t.TempDir()
	return root, func(args ...string) (int, string) {
		c := exec.Command(binary, append([]string{"install-service", "--root", root}, args...)...)
		out, _ := c.CombinedOutput() // how it ended is in its state
		return c.ProcessState.ExitCode(), string(out)
	}
}

func TestInstallService_SaysAndDoesNothing(t *testing.T) {
	t.Parallel()
	root, run := installer(t)
	code, out := run()
	require.Zero(t, code, out)
	for _, path := range []string{unitPath, configPath, "/usr/local/bin/fencepost", "/etc/sysusers.d/fencepost.conf"} {
		require.Contains(t, out, root+path)
	}
	require.Contains(t, out, "systemctl enable --now fencepost")
	require.Empty(t, tree(t, root), "nothing was done")

	code, out = run("--json")
	require.Zero(t, code)
	var plan struct {
		Files []struct{ Path, State string }
	}
	require.NoError(t, json.Unmarshal([]byte(out), &plan))
	require.Len(t, plan.Files, 5)
	require.Equal(t, "absent", plan.Files[0].State)

	code, out = run("--uninstall")
	require.Zero(t, code)
	require.Contains(t, out, "systemctl disable --now fencepost")
	require.Contains(t, out, "rm "+unitPath)
	code, _ = run("--uninstall", "--apply")
	require.Equal(t, 2, code)
	require.Empty(t, tree(t, root))
}

func TestInstallService_ApplyAgainAndAgain(t *testing.T) {
	t.Parallel()
	root, run := installer(t)
	code, out := run("--apply")
	require.Zero(t, code, out)
	for path, mode := range map[string]os.FileMode{unitPath: 0o644, configPath: 0o640, "/etc/fencepost": 0o750, "/usr/local/bin/fencepost": 0o755, "/etc/sysusers.d/fencepost.conf": 0o644} {
		fi, err := os.Lstat(root + path)
		require.NoError(t, err)
		require.Equal(t, mode, fi.Mode().Perm(), path)
	}
	installed := exec.Command(root+"/usr/local/bin/fencepost", "version")
	require.NoError(t, installed.Run(), "what was installed runs")

	before := tree(t, root)
	code, out = run("--apply")
	require.Zero(t, code)
	require.Contains(t, out, "all is there already")
	require.Equal(t, before, tree(t, root))

	// The configuration is the operator's and stays.
	require.NoError(t, os.WriteFile(root+configPath, []byte("# mine\n"), 0o640))
	// A unit of an older program that nobody has changed is replaced.
	unit, err := os.ReadFile(root + unitPath)
	require.NoError(t, err)
	seal := "# Written by fencepost install-service, unchanged: " // of the text "old\n"
	require.NoError(t, os.WriteFile(root+unitPath, []byte(seal+"01d09d19c2139a46\nold\n"), 0o644))
	code, out = run("--apply")
	if code != 0 {
		t.Log(out)
	}
	require.Zero(t, code, out)
	again, err := os.ReadFile(root + unitPath)
	require.NoError(t, err)
	require.Equal(t, string(unit), string(again))
	mine, err := os.ReadFile(root + configPath)
	require.NoError(t, err)
	require.Equal(t, "# mine\n", string(mine))
}

func TestInstallService_WritesOverNothingThatAPersonChanged(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(t *testing.T, root string){
		"unit": func(t *testing.T, root string) { appendTo(t, root+unitPath, "Nice=5\n") },
		"unit by hand": func(t *testing.T, root string) {
			require.NoError(t, os.WriteFile(root+unitPath, []byte("[Service]\nNice=5\n"), 0o644))
		},
		"other program": func(t *testing.T, root string) {
			require.NoError(t, os.WriteFile(root+"/usr/local/bin/fencepost", []byte("#!/bin/sh\n"), 0o755))
		},
		"something else": func(t *testing.T, root string) {
			require.NoError(t, os.Remove(root+unitPath))
			require.NoError(t, os.Symlink("/dev/null", root+unitPath))
		},
		"package": func(t *testing.T, root string) {
			require.NoError(t, os.MkdirAll(root+"/usr/lib/systemd/system", 0o755))
			appendTo(t, root+"/usr/lib/systemd/system/fencepost.service", "[Service]\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, run := installer(t)
			code, out := run("--apply")
			require.Zero(t, code, out)
			change(t, root)
			before := tree(t, root)
			code, out = run("--apply")
			require.Equal(t, 4, code, out)
			require.Contains(t, out, root)
			if strings.HasPrefix(name, "unit") {
				require.Contains(t, out, "-Nice=5", "what differs is shown")
			}
			require.Equal(t, before, tree(t, root))
		})
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	require.NoError(t, err)
	_, err = f.WriteString(text)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// What an installation begins with is a valid configuration.
func TestInstallService_ItsConfigurationIsValid(t *testing.T) {
	t.Parallel()
	root, run := installer(t)
	code, out := run("--apply")
	require.Zero(t, code, out)
	b, err := os.ReadFile(root + configPath)
	require.NoError(t, err)
	s := newSite(t, "")
	text := strings.NewReplacer("/var/lib/fencepost", s.dir, "/run/fencepost", s.dir).Replace(string(b))
	require.Contains(t, text, filepath.Join(s.dir, "fencepost.sock"))
	require.NoError(t, os.WriteFile(s.config, []byte(text+"listen = \"127.0.0.1:0\"\n"), 0o600))
	code, out = s.run("status")
	require.Equal(t, 5, code, "no node, and nothing wrong with the configuration: %s", out)
}
