package node_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"fencepost/edge"
	"fencepost/edge/node"

	"github.com/stretchr/testify/require"
)

// commandTexts are a hundred texts that a shell, a program's options or an
// operating system would take for more than one argument.
func commandTexts() []string {
	var out []string
	for _, atom := range []string{
		"$(touch /tmp/x)", "`id`", "; rm -rf x", "\n", "\r\n", "\x00", "-o", "--output=x", "--", "&& true", "| cat", "> /dev/null", "' '", `" "`, `\`,
		"$HOME ${HOME}", "%s%n", "*", "~root", "!!", "\t", " ", "{a,b}", "\u00fc\u2028\U0001F600", "env:HOME",
	} {
		out = append(out, atom, "a"+atom+"b", atom+" "+atom, "-"+atom)
	}
	return out
}

// showProgram keeps what the kernel says that it was given, and its input.
const showProgram = `#!/bin/sh
at="$SHOW_DIR/$FENCEPOST_DELIVERY"
cat /proc/$$/cmdline >"$at.args"
cat /proc/$$/environ >"$at.env"
cat >"$at.in"
`

// seen is what a program was given.
type seen struct {
	Args, Env []string
	In        string
}

// T10: whatever an event says, a command's arguments and variables are those of
// the configuration, byte for byte.
func TestArgumentsOfACommand_T10(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	exe := s.path("show")
	require.NoError(t, os.WriteFile(exe, []byte(showProgram), 0o700))
	r := start(t, s.config(t, "s", fmt.Sprintf(`
[[handler]]
name = "named"
kind = "command"
effect = "idempotent"
ordering = "none"
concurrency = 2
argv = [%[1]q, "fixed $HOME", "--name=${data.s}", "<${data.s}>", "${json(data)}"]
env = { SHOW_DIR = %[2]q, A_TEXT = "${data.s}", FIXED = "$HOME" }
stdin = "in: ${data.s}"
[[handler]]
name = "bare"
kind = "command"
effect = "idempotent"
ordering = "none"
concurrency = 2
argv = [%[1]q, "${data.s}"]
env = { SHOW_DIR = %[2]q }
[[route]]
name = "all"
handler = "named"
[[route]]
name = "some"
handler = "bare"
when = '''data.s startsWith "-" or data.s contains "o"'''
`, exe, s.dir)), node.Options{})

	texts := commandTexts()
	require.Len(t, texts, 100)
	started, refused := 0, 0
	for i, text := range texts {
		id := "e-" + strconv.Itoa(i)
		event, deliveries := r.sendText(t, id, text)
		asJSON, err := json.Marshal(text)
		require.NoError(t, err)
		for handler, d := range deliveries {
			if strings.Contains(text, "\x00") || handler == "bare" && strings.HasPrefix(text, "-") {
				require.Equal(t, "template_error", r.await(t, d, edge.Blocked).Code, "%q", text)
				require.NoFileExists(t, s.path(d+".args"))
				refused++
				continue
			}
			r.await(t, d, edge.Succeeded)
			want := seen{
				Args: []string{exe, "fixed $HOME", "--name=" + text, "<" + text + ">", ""},
				Env:  childEnv(r, handler, d, event, id, "SHOW_DIR="+s.dir, "A_TEXT="+text, "FIXED=$HOME"), In: "in: " + text,
			}
			if handler == "bare" {
				data, err := json.Marshal(map[string]string{"s": text})
				require.NoError(t, err)
				want = seen{Args: []string{exe, text}, Env: childEnv(r, handler, d, event, id, "SHOW_DIR="+s.dir), In: string(data)}
			}
			got := readSeen(t, exe, s.path(d))
			if handler == "named" { // written in our own form of JSON, so compared as a value
				var back map[string]string
				require.NoError(t, json.Unmarshal([]byte(got.Args[4]), &back), "%s", asJSON)
				require.Equal(t, map[string]string{"s": text}, back)
				got.Args[4] = ""
			}
			require.Equal(t, want, got, "%q", text)
			started++
		}
	}
	require.Greater(t, started, 100)
	require.Greater(t, refused, 25)
	r.sound(t)
	r.end(t)
}

// childEnv is the whole environment of a program, but for the numbers of its fence
// and trace.
func childEnv(r *running, handler, delivery, event, id string, more ...string) []string {
	home, lang := os.Getenv("HOME"), os.Getenv("LANG")
	if home == "" {
		home = "/"
	}
	if lang == "" {
		lang = "C.UTF-8"
	}
	route := map[string]string{"named": "all", "bare": "some"}[handler]
	env := append([]string{
		"TRACEPARENT=", "PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + home, "LANG=" + lang,
		"FENCEPOST_ATTEMPT=1", "FENCEPOST_CONTENT_TYPE=application/json", "FENCEPOST_DELIVERY=" + delivery, "FENCEPOST_EVENT=" + event,
		"FENCEPOST_EVENT_ID=" + id, "FENCEPOST_EVENT_SOURCE=/test", "FENCEPOST_EVENT_SUBJECT=", "FENCEPOST_EVENT_TIME=", "FENCEPOST_EVENT_TYPE=text",
		"FENCEPOST_FENCE=", "FENCEPOST_KEY=" + delivery, "FENCEPOST_OWNER=" + r.Store().Owner(), "FENCEPOST_ROUTE=" + route, "FENCEPOST_TARGET=" + handler + ":",
	}, more...)
	slices.Sort(env)
	return env
}

func readSeen(t *testing.T, program, at string) seen {
	t.Helper()
	var got seen
	read := func(suffix string) string {
		b, err := os.ReadFile(at + suffix)
		require.NoError(t, err)
		return string(b)
	}
	got.In = read(".in")
	got.Args = zeroed(t, read(".args"))
	require.Equal(t, "/bin/sh", got.Args[0]) // put there by the kernel, for the script
	got.Args = got.Args[1:]
	require.Equal(t, program, got.Args[0])
	got.Env = zeroed(t, read(".env"))
	fences := 0
	for i, v := range got.Env {
		if strings.HasPrefix(v, "TRACEPARENT=00-") { // its own test is elsewhere
			got.Env[i] = "TRACEPARENT="
		}
		if n, ok := strings.CutPrefix(v, "FENCEPOST_FENCE="); ok {
			_, err := strconv.Atoi(n)
			require.NoError(t, err)
			got.Env[i] = "FENCEPOST_FENCE="
			fences++
		}
	}
	require.Equal(t, 1, fences)
	slices.Sort(got.Env)
	return got
}

// zeroed are texts that each end with a NUL.
func zeroed(t *testing.T, s string) []string {
	t.Helper()
	require.True(t, strings.HasSuffix(s, "\x00"))
	return strings.Split(strings.TrimSuffix(s, "\x00"), "\x00")
}
