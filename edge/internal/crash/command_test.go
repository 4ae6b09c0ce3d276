package crash_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"fencepost/edge"

	"github.com/stretchr/testify/require"
)

// script is a command handler's configuration that runs a shell script. The name
// of a file of the node's directory is its argument.
func (n *node) script(name, text, file string, more ...string) string {
	return fmt.Sprintf("[[handler]]\nname = %q\nkind = \"command\"\nargv = [\"/bin/sh\", \"-c\", %q, \"sh\", %q]\n%s\n", name, text, filepath.Join(n.dir, file), strings.Join(more, "\n"))
}

// pids are the numbers in a file of the node's directory, one on each line.
func (n *node) pids(file string) []int {
	b, err := os.ReadFile(filepath.Join(n.dir, file))
	if err != nil {
		return nil
	}
	var all []int
	for line := range strings.Lines(string(b)) {
		pid, err := strconv.Atoi(strings.TrimSuffix(line, "\n"))
		if err == nil && strings.HasSuffix(line, "\n") {
			all = append(all, pid)
		}
	}
	return all
}

func aliveProcess(pid int) bool {
	state, _ := processStat(pid)
	return state != "" && !strings.Contains("ZXx", state)
}

// TestR66_AGrandchildHoldingThePipesHoldsNothingUp has a program that ends and
// leaves a process that holds its standard output, in a session of its own and with an
// empty environment (dkron-io/dkron#1483). The delivery ends, and so does the next one
// of the line, and what was left behind is ended too.
func TestR66_AGrandchildHoldingThePipesHoldsNothingUp(t *testing.T) {
	t.Parallel()
	n := newNode(t, "")
	n.configure(n.script("leaves", `at="$1.$FENCEPOST_EVENT_ID"; env -i setsid sh -c 'echo $$ > "$0"; exec sleep 600' "$at" & while ! test -s "$at"; do :; done; echo said`, "hidden") + route("leaves", "*"))
	n.start()
	ids := []string{n.sendOne("x", "t", "e0"), n.sendOne("x", "t", "e1")}
	for _, id := range ids {
		n.awaitState(id, edge.Succeeded)
		require.Contains(t, n.delivery(id).Executions[0].Detail, "said")
	}
	held := append(n.pids("hidden.e0"), n.pids("hidden.e1")...)
	require.Len(t, held, len(ids))
	await(t, n, "what was left behind is ended", func() bool { return !slices.ContainsFunc(held, aliveProcess) })
	n.clean()
}

// TestR67_ATimeoutEndsTheWholeGroup has a shell that waits for its child
// (gjcarneiro/yacron#70). When its time is over nothing of it is left, and later
// work of the line runs.
func TestR67_ATimeoutEndsTheWholeGroup(t *testing.T) {
	t.Parallel()
	n := newNode(t, "")
	n.configure(n.script("wrap", `case "$FENCEPOST_EVENT_ID" in slow*) echo $$ >> "$1"; trap '' TERM; sleep 600 & echo $! >> "$1"; setsid sleep 601 & echo $! >> "$1"; wait; wait; sleep 602;; esac`, "pids",
		`effect = "idempotent"`, "timeout_s = 2", "max_attempts = 2", "retry_base_s = 1") + route("wrap", "*"))
	n.start()
	slow := n.sendOne("x", "t", "slow")
	quick := n.sendOne("x", "t", "quick")
	n.awaitState(slow, edge.Failed)
	n.awaitState(quick, edge.Succeeded)
	x := n.delivery(slow)
	require.Len(t, x.Executions, 2)
	for _, e := range x.Executions {
		require.Equal(t, "command_timeout", e.Code)
	}
	pids := n.pids("pids")
	require.Len(t, pids, 3*2)
	await(t, n, "no process is left", func() bool { return !slices.ContainsFunc(pids, aliveProcess) })
	n.clean()
}

// TestR69_TenMebibytesReachAProgram hands in an event that fits no argument list
// (adnanh/webhook#619): the program gets it byte for byte on its standard input.
func TestR69_TenMebibytesReachAProgram(t *testing.T) {
	t.Parallel()
	n := newNode(t, "max_body_bytes = 16777216\n[[handler]]\nname = \"sum\"\nkind = \"command\"\nargv = [\"sha256sum\"]\n"+route("sum", "*"))
	n.start()
	body := `"` + strings.Repeat("0123456789abcdef", 10<<20/16) + `"`
	e := sent{source: "/test", id: "big", kind: "x", subject: "t", body: body}
	status, err := post(t.Context(), n.http, *n.addr.Load(), n.token(), &e)
	require.NoError(t, err)
	require.Equal(t, http.StatusAccepted, status)
	id := e.receipt.Deliveries[0].ID
	n.awaitState(id, edge.Succeeded)
	sum := sha256.Sum256([]byte(body))
	require.Contains(t, n.delivery(id).Executions[0].Detail, hex.EncodeToString(sum[:]))
	n.clean()
}

// TestR71_AMissingInputStartsNoProgram has an argument that an event lacks
// (adnanh/webhook#398): no program starts with an empty one. With a default in the
// configuration it does.
func TestR71_AMissingInputStartsNoProgram(t *testing.T) {
	t.Parallel()
	n := newNode(t, "")
	with := func(argument string) string {
		return fmt.Sprintf("[[handler]]\nname = \"say\"\nkind = \"command\"\nargv = [\"/bin/sh\", \"-c\", 'echo \"[$2]\" >> \"$1\"', \"sh\", %q, %q]\n", filepath.Join(n.dir, "said"), argument) + route("say", "*")
	}
	n.configure(with("in ${data.city}"))
	n.start()
	id := n.sendOne("x", "t", "e")
	require.Equal(t, "template_error", n.awaitState(id, edge.Blocked).Code)
	require.Contains(t, n.ok("explain", id), "data.city is missing")
	require.NoFileExists(t, filepath.Join(n.dir, "said"))
	n.configure(with(`in ${data.city ?? "nowhere"}`))
	n.ok("reload")
	n.awaitState(id, edge.Succeeded)
	b, err := os.ReadFile(filepath.Join(n.dir, "said"))
	require.NoError(t, err)
	require.Equal(t, "[in nowhere]\n", string(b))
	n.clean()
}

// TestR72_DataIsOnNoCommandLine looks, as another user where it can, at the command
// lines of the node and of a program under way (eneskirca/nodeterm#262).
func TestR72_DataIsOnNoCommandLine(t *testing.T) {
	t.Parallel()
	const canary = "canary-on-no-command-line"
	ledger := t.TempDir()
	n := newNode(t, program(once, "gate", ledger)+route(once, "*"))
	n.start()
	id := n.sendOne("x", "t", canary)
	await(t, n, "the program runs", func() bool { return noted(t, ledger, "start") == 1 })
	for name, pid := range map[string]int{"node": n.p.cmd.Process.Pid, "program": ledgers(t, ledger)[0].PID} {
		cat := exec.Command("cat", fmt.Sprintf("/proc/%d/cmdline", pid))
		if os.Geteuid() == 0 {
			cat.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
		line, err := cat.Output()
		require.NoError(t, err)
		require.NotEmpty(t, line, name)
		require.NotContains(t, string(line), canary, name)
	}
	require.NoError(t, os.WriteFile(filepath.Join(ledger, "gate"), nil, 0o600))
	n.awaitState(id, edge.Succeeded)
}

// given is what a program was given.
type given struct {
	Args, Env []string
	In        string
}

// show writes down what the process was given, in its ledger's directory.
func show() error {
	in, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	text, err := json.Marshal(given{os.Args[1:], os.Environ(), string(in)})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(os.Getenv(ledgerVariable), os.Getenv("FENCEPOST_DELIVERY")), text, 0o600)
}

// commandTexts are a hundred texts that a shell, a program or a system would take
// for more than one argument.
func commandTexts() []string {
	var out []string
	for _, atom := range []string{
		"$(touch x)", "`id`", ";reboot", "\n", "\r\n", "\x00", "-o", "--output=x", "--", "&& true", "| cat", "> /dev/null", "' '", `" "`, `\`,
		"${HOME}", "%s%n", "*", "~root", "!!", "\t", " ", "{a,b}", "\u00fc\u2028\U0001F600", "env:HOME",
	} {
		out = append(out, atom, "a"+atom+"b", atom+" "+atom, "-"+atom)
	}
	return out
}

// TestT10_WhateverAnEventSaysIsOneArgument renders a hundred hostile texts into
// arguments, a variable and the input of a program: it gets them byte for byte, each
// as one argument, or, where that cannot be, is not started.
func TestT10_WhateverAnEventSaysIsOneArgument(t *testing.T) {
	t.Parallel()
	ledger := t.TempDir()
	text := program("named", "show", ledger, `effect = "idempotent"`, `ordering = "none"`, `stdin = "in: ${data.s}"`)
	text = strings.Replace(text, "]\nenv = { ", `, "fixed $HOME", "--name=${data.s}", "<${data.s}>"]`+"\nenv = { A_TEXT = \"${data.s}\", ", 1)
	bare := program("bare", "show", ledger, `effect = "idempotent"`, `ordering = "none"`)
	bare = strings.Replace(bare, "]\nenv = { ", `, "${data.s}"]`+"\nenv = { ", 1)
	n := newNode(t, text+bare+route("named", "named.*")+route("bare", "bare.*"))
	n.start()
	texts := commandTexts()
	require.Len(t, texts, 100)
	refused, started := 0, 0
	var names []string // of variables, the same each time
	for _, handler := range []string{"named", "bare"} {
		var events []sent
		for i, s := range texts {
			body, err := json.Marshal(map[string]string{"s": s})
			require.NoError(t, err)
			events = append(events, sent{source: "/test", id: fmt.Sprint(handler, i), kind: handler + ".x", subject: "t", body: string(body)})
		}
		for i, item := range n.postBatch(events) {
			id, s := item.Receipt.Deliveries[0].ID, texts[i]
			if strings.Contains(s, "\x00") || handler == "bare" && strings.HasPrefix(s, "-") {
				require.Equal(t, "template_error", n.awaitState(id, edge.Blocked).Code, "%q", s)
				require.NoFileExists(t, filepath.Join(ledger, id))
				refused++
				continue
			}
			n.awaitState(id, edge.Succeeded)
			b, err := os.ReadFile(filepath.Join(ledger, id))
			require.NoError(t, err)
			var got given
			require.NoError(t, json.Unmarshal(b, &got))
			want := []string{"fixed $HOME", "--name=" + s, "<" + s + ">"}
			in := "in: " + s
			if handler == "bare" {
				want, in = []string{s}, events[i].body
			}
			require.Equal(t, want, got.Args, "%q", s)
			require.Equal(t, in, got.In)
			var these []string
			for _, v := range got.Env {
				name, value, _ := strings.Cut(v, "=")
				if name == "A_TEXT" {
					require.Equal(t, s, value)
				} else {
					these = append(these, name)
				}
			}
			require.Equal(t, handler == "named", slices.Contains(got.Env, "A_TEXT="+s))
			slices.Sort(these)
			if names == nil {
				names = these
			}
			require.Equal(t, names, these, "no text makes a variable")
			started++
		}
	}
	require.Equal(t, 2*len(texts), started+refused)
	require.Greater(t, started, 100)
	require.Greater(t, refused, 20)
	n.clean()
}
