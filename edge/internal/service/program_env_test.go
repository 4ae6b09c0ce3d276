package service_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// T11, R81: what a program gets is exactly what the documentation lists, whatever
// the node has: environment byte for byte, and no descriptor beside 0, 1 and 2.
func TestT11_R81_WhatAProgramGets(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	s.write("{HTTP}" + program("tell", "report "+s.path("report"), `env = { PLAIN = "text", API_TOKEN = "env:NODE_SECRET" }`) + route("tell", "*"))
	opened, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer opened.Close()
	s.extra = []*os.File{opened, opened, opened}
	s.env = append(s.env, "NODE_SECRET=value-for-the-program", "NODE_OTHER_SECRET=not-for-it", "LD_PRELOAD=", "BASH_ENV=/nowhere",
		"NOTIFY_SOCKET="+s.path("nobody"), "WATCHDOG_USEC=100000000", "JOURNAL_STREAM=1:1", "CREDENTIALS_DIRECTORY=/nowhere", "GODEBUG=", "LANG=")
	s.start()
	s.ok("send", "--type", "greeting", "--source", "/here", "--id", "e1", "--subject", "bob", "--data", "x")
	await(t, "the program has told", func() bool { b, _ := os.ReadFile(s.path("report")); return strings.Contains(string(b), "fd 2") })
	got, err := os.ReadFile(s.path("report"))
	require.NoError(t, err)
	id := func(name string) string { // random ids are taken from the report, all else is known
		_, after, _ := strings.Cut(string(got), "\n"+name+"=")
		value, _, _ := strings.Cut(after, "\n")
		return value
	}
	node := strings.TrimSuffix(strings.TrimPrefix(id("FENCEPOST_DELIVERY"), "dlv-"), "-1")
	require.Len(t, node, 8)
	require.Len(t, id("FENCEPOST_OWNER"), 16)
	require.Regexp(t, `^00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]$`, id("TRACEPARENT"))
	model := []string{
		"API_TOKEN=value-for-the-program",
		"FENCEPOST_ATTEMPT=1",
		"FENCEPOST_CONTENT_TYPE=" + id("FENCEPOST_CONTENT_TYPE"),
		"FENCEPOST_DELIVERY=dlv-" + node + "-1",
		"FENCEPOST_EVENT=evt-" + node + "-1",
		"FENCEPOST_EVENT_ID=e1",
		"FENCEPOST_EVENT_SOURCE=/here",
		"FENCEPOST_EVENT_SUBJECT=bob",
		"FENCEPOST_EVENT_TIME=" + id("FENCEPOST_EVENT_TIME"),
		"FENCEPOST_EVENT_TYPE=greeting",
		"FENCEPOST_FENCE=1",
		"FENCEPOST_KEY=dlv-" + node + "-1",
		"FENCEPOST_OWNER=" + id("FENCEPOST_OWNER"),
		"FENCEPOST_ROUTE=to-tell",
		"FENCEPOST_TARGET=tell:bob",
		"HOME=/",
		"LANG=C.UTF-8",
		"PATH=/usr/local/bin:/usr/bin:/bin",
		"PLAIN=text",
		"TRACEPARENT=" + id("TRACEPARENT"),
	}
	slices.Sort(model)
	require.Equal(t, strings.Join(model, "\n")+"\nfd 0\nfd 1\nfd 2\n", string(got))
	s.stop()
}

// T19: a program runs as the user of the node, and yet cannot look into it: its
// environment holds the secrets of others.
func TestT19_AProgramCannotLookIntoTheNode(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	s.write("{HTTP}" + program("spy", "spy "+s.path("seen")) + route("spy", "*"))
	s.env = append(s.env, "NODE_SECRET=not-for-it")
	user := os.Getuid()
	if user == 0 { // root may look at everything
		user = stranger
		s.give(user)
		s.as = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
	}
	s.start()
	s.ok("send", "--type", "t", "--data", "x")
	var seen string
	await(t, "the spy is back", func() bool {
		b, _ := os.ReadFile(s.path("seen"))
		seen = string(b)
		return strings.Contains(seen, "parent")
	})
	require.Equal(t, fmt.Sprintf("as %d, parent is fencepost: true\n", user), seen)
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", s.cmd.Process.Pid))
	require.NoError(t, err)
	require.Regexp(t, `Max core file size +0 `, string(limits))
	s.stop()
}

// T19: the memory of the node is open without the switch, so the test above
// shows something.
func TestT19_AnotherProcessCanBeLookedInto(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	c := s.command("listen", "--addr", "127.0.0.1:0")
	require.NoError(t, c.Start())
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	_, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", c.Process.Pid))
	require.NoError(t, err)
}
