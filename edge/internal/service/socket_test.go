package service_test

import (
	"os"
	"os/user"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// The socket is for root and the user of the node; with a group for its members
// too. Who connects is asked of the kernel: loosened modes let nobody else in.
func TestT16_WhoMayUseTheSocket(t *testing.T) {
	t.Parallel()
	const handler = "{HTTP}%\n[[handler]]\nname = \"note\"\nkind = \"log\"\n"
	s := newSite(t, strings.Replace(handler, "%", "", 1)+route("note", "*"))
	require.NoError(t, os.Chmod(s.dir, 0o711)) // reachable, so that the modes of the socket alone count
	require.NoError(t, os.Chmod(s.config, 0o644))
	s.start()
	socket := s.path("d.db.sock")
	fi, err := os.Lstat(socket)
	require.NoError(t, err)
	require.EqualValues(t, 0o600, fi.Mode().Perm())
	s.ok("deliveries")
	if os.Geteuid() == 0 { // only root can be another
		code, out := s.asStranger("-", "status")
		require.Equal(t, 1, code, out)
		require.Contains(t, out, "permission denied: run this as the user of the node")
		require.NoError(t, os.Chmod(socket, 0o666))
		code, out = s.asStranger("-", "status")
		require.Equal(t, 1, code, out)
		require.Contains(t, out, "nobody to that group")
		_, _ = s.asStranger("-", "status")
	}
	s.stop()
	if os.Geteuid() == 0 {
		require.Equal(t, 1, strings.Count(s.log.String(), "a user was refused at the socket"), "told once: %s", s.log)
	}

	group, err := user.LookupGroupId(strconv.Itoa(anotherGroup(t)))
	require.NoError(t, err)
	s.log = &buffer{}
	s.write(strings.Replace(handler, "%", "socket_group = \""+group.Name+"\"", 1) + route("note", "*"))
	require.NoError(t, os.Chmod(s.config, 0o644))
	s.start()
	fi, err = os.Lstat(socket)
	require.NoError(t, err)
	require.EqualValues(t, 0o660, fi.Mode().Perm())
	require.Equal(t, group.Gid, strconv.Itoa(int(fi.Sys().(*syscall.Stat_t).Gid)))
	s.ok("status")
	if os.Geteuid() == 0 {
		code, out := s.asStranger(group.Gid, "status")
		require.Zero(t, code, "a member by a supplementary group: %s", out)
		code, _ = s.asStranger("-", "status")
		require.Equal(t, 1, code, "no member")
		require.NoError(t, os.Chmod(socket, 0o666))
		code, out = s.asStranger("-", "status")
		require.Equal(t, 1, code, out)
		require.Contains(t, out, "http.socket_group")
		many := make([]string, 100) // more than one question to the kernel
		for i := range many {
			many[i] = strconv.Itoa(100000 + i)
		}
		code, out = s.asStranger(strings.Join(append(many, group.Gid), ","), "status")
		require.Zero(t, code, out)
	}
	s.stop()
}

// asStranger runs a command as a user who owns nothing, with further groups.
func (s *site) asStranger(groups string, args ...string) (int, string) {
	c := s.command(args...)
	credential := &syscall.Credential{Uid: stranger, Gid: stranger}
	if groups != "-" {
		for g := range strings.SplitSeq(groups, ",") {
			n, err := strconv.ParseUint(g, 10, 32)
			require.NoError(s.t, err)
			credential.Groups = append(credential.Groups, uint32(n))
		}
	}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: credential}
	out, _ := c.CombinedOutput() // how it ended is in its state
	return c.ProcessState.ExitCode(), string(out)
}

// anotherGroup is one that this process can give a file to.
func anotherGroup(t *testing.T) int {
	t.Helper()
	if os.Geteuid() == 0 {
		return 1
	}
	return os.Getegid()
}

// A group that nobody can use is a fault of the configuration that says what to
// do, not a socket that nobody gets to.
func TestSocketGroup_Faults(t *testing.T) {
	t.Parallel()
	s := newSite(t, "{HTTP}socket_group = \"no-such-group-here\"\n")
	code, out := s.run("serve")
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "groupadd no-such-group-here")

	group, err := user.LookupGroupId(strconv.Itoa(anotherGroup(t)))
	require.NoError(t, err)
	s.write("{HTTP}socket_group = \"" + group.Name + "\"\n")
	require.NoError(t, os.Chmod(s.dir, 0o700))
	if os.Geteuid() == 0 { // anybody else is of the group that owns the directory
		code, out = s.run("serve")
		require.Equal(t, 2, code, out)
		require.Contains(t, out, "cannot get into "+s.dir)
		require.NoFileExists(t, s.path("d.db"))
	}
	s.write("{HTTP}socket = \"\"\nsocket_group = \"" + group.Name + "\"\n")
	code, out = s.run("serve")
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "http.socket_group: has no socket")
}

// Who decides is recorded as the kernel says.
func TestDecisionsNameTheAccount(t *testing.T) {
	t.Parallel()
	s := newSite(t, "{HTTP}[[handler]]\nname = \"once\"\nkind = \"command\"\nargv = [\"/bin/sh\", \"-c\", \"kill -9 $$\"]\n"+route("once", "*"))
	s.start()
	s.ok("send", "--type", "t", "--data", "x")
	await(t, "its outcome is unknown", func() bool { return strings.Contains(s.ok("deliveries"), "blocked") })
	version := regexp.MustCompile(`"version": (\d+)`).FindStringSubmatch(s.ok("delivery", "1", "--json"))
	require.NotNil(t, version)
	s.ok("resolve", "1", "--as", "failed", "--version", version[1], "--reason", "looked", "--by", "somebody else")
	me, err := user.Current()
	require.NoError(t, err)
	require.Contains(t, s.ok("explain", "1"), "somebody else (as "+me.Username+")")
	s.stop()
}
