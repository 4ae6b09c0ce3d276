package service_test

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// T18: a node as root runs no commands unless it was told to; as any other user
// it does.
func TestT18_NoCommandsAsRootUnlessAsked(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	s.write("{HTTP}[[handler]]\nname = \"echo\"\nkind = \"command\"\nargv = [\"/bin/echo\", \"hi\"]\n" + route("echo", "*"))
	b, err := os.ReadFile(s.config)
	require.NoError(t, err)
	text := strings.Replace(string(b), "allow_root_commands = true\n", "", 1)
	require.NotEqual(t, string(b), text)
	require.NoError(t, os.WriteFile(s.config, []byte(text), 0o600))
	if os.Geteuid() == 0 {
		before := tree(t, s.dir)
		code, out := s.run("serve")
		require.Equal(t, 2, code, out)
		require.Regexp(t, `fencepost.toml:\d+: handler "echo": its command would run as root: .*allow_root_commands = true`, out)
		require.Equal(t, before, tree(t, s.dir), "nothing was made")
		s.give(stranger)
		s.as = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
	}
	s.start()
	s.ok("send", "--type", "t", "--data", "x")
	await(t, "it has run", func() bool { return strings.Contains(s.ok("deliveries"), "exit_0") })
	require.NotContains(t, s.log.String(), "runs as root")
	s.stop()
	if os.Geteuid() == 0 {
		s.give(0)
		s.as, s.log = nil, &buffer{}
		require.NoError(t, os.WriteFile(s.config, b, 0o600))
		s.start()
		s.ok("send", "--type", "t", "--data", "x")
		await(t, "it has run as root", func() bool { return strings.Count(s.ok("deliveries"), "exit_0") == 2 })
		s.stop()
		require.Contains(t, s.log.String(), "the node runs as root")
	}
}

// A reload is no way around it.
func TestT18_NoCommandsAsRootByAReload(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	write := func(rest string) {
		s.write(rest)
		b, err := os.ReadFile(s.config)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(s.config, []byte(strings.Replace(string(b), "allow_root_commands = true\n", "", 1)), 0o600))
	}
	const log = "{HTTP}[[handler]]\nname = \"note\"\nkind = \"log\"\n"
	write(log + route("note", "*"))
	s.start()
	write(log + "[[handler]]\nname = \"echo\"\nkind = \"command\"\nargv = [\"/bin/echo\"]\n" + route("echo", "*"))
	code, out := s.run("reload")
	if os.Geteuid() == 0 {
		require.Equal(t, 2, code, out)
		require.Contains(t, out, "its command would run as root")
		require.NotContains(t, s.ok("handler", "list"), "echo")
	} else {
		require.Zero(t, code, out)
	}
	s.stop()
}
