package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"fencepost/edge/expression"
)

// maxArgBytes is the limit of all arguments of a command together.
const maxArgBytes = 32 << 10

func readCommand(t *table, c *Command) {
	c.Argv, _ = t.texts("argv", MaxArgs, checkArg)
	if raw, ok := t.values["argv"].([]any); !t.has("argv") || ok && len(raw) == 0 {
		t.fault("argv", "there is no program", `the program and its arguments, such as argv = ["/bin/echo", "hello"]`)
	} else if len(c.Argv) > 0 && !validProgram(c.Argv[0]) {
		problem, allowed := programFault(c.Argv[0])
		t.doc.add(elemPath(t.at("argv"), 1), problem, allowed)
	}
	if n := len(strings.Join(c.Argv, "")); n > maxArgBytes {
		t.fault("argv", fmt.Sprintf("has %d bytes", n), fmt.Sprintf("at most %d in all", maxArgBytes))
	}
	checkInterpreted(t, c.Argv)
	c.Dir, _ = t.text("dir", optional(checkDir))
	c.Stdin, _ = t.text("stdin", checkStdin)
	t.mapOf("env", MaxEnv, func(name, at, v string) { readVariable(t.doc, c.Env, name, at, v) })
	if codes, ok := t.numbers("success_exit", 0, 255, true); ok {
		c.SuccessExit = codes
	}
	if codes, ok := t.numbers("retry_exit", 0, 255, true); ok {
		c.RetryExit = codes
	}
	for _, code := range c.RetryExit {
		if slices.Contains(c.SuccessExit, code) {
			key := "retry_exit"
			if !t.has(key) {
				key = "success_exit"
			}
			t.fault(key, fmt.Sprintf("%d means both success and retry", code), "each exit code in one list; the defaults are success_exit = [0], retry_exit = [75]")
		}
	}
}

func validProgram(s string) bool {
	return s != "" && !expression.IsTemplate(s) && (filepath.IsAbs(s) || !strings.ContainsAny(s, "/\\ \t\r\n"))
}

// programFault says what is wrong with a program. A whole command line is not
// shown: it may hold a secret.
func programFault(s string) (problem, allowed string) {
	const not = " is not the absolute path or the bare name of a program"
	if expression.IsTemplate(s) {
		return "the program holds ${", "the event cannot decide which program runs; write the program, and put what the event says into its arguments"
	}
	if strings.ContainsAny(s, " \t\r\n=") {
		return "it" + not, `the program first and each argument as a text of its own, such as argv = ["/bin/echo", "hello"]`
	}
	return printable(s) + not, "a command runs in a directory of its own, so give an absolute path, such as /usr/local/bin/backup.sh, or a bare name that is found in PATH"
}

func checkDir(s string) (problem, allowed string) {
	if expression.IsTemplate(s) {
		return "holds ${", "the event cannot decide where a program runs"
	}
	if !filepath.IsAbs(s) {
		return "is not absolute", "an absolute path"
	}
	return checkPath(s)
}

// checkArg accepts what an operating system can pass on. Faults do not show the
// argument: it may hold a secret.
func checkArg(s string) (problem, allowed string) {
	allowed = "at most " + strconv.Itoa(MaxTextBytes) + " bytes without NUL"
	switch {
	case len(s) > MaxTextBytes:
		return fmt.Sprintf("has %d bytes", len(s)), allowed
	case strings.IndexByte(s, 0) >= 0:
		return "holds NUL", allowed
	case expression.IsTemplate(s):
		return checkTemplate(s, expression.Argument)
	}
	return "", ""
}

// ownVariables begins the names of the variables that the node sets itself.
const ownVariables = "FENCEPOST_"

func readVariable(d *document, to map[string]string, name, at, v string) {
	switch {
	case !validEnvName(name):
		d.add(at, "not the name of an environment variable", "letters, digits and _ only, no digit first")
		return
	case strings.HasPrefix(strings.ToUpper(name), ownVariables):
		d.add(at, "the variable is set by the node", "a name that does not begin with "+ownVariables)
		return
	}
	check := checkVariable
	if looksLikeRef(v) || secretName(name) {
		check = checkSecret
	}
	problem, allowed := check(v)
	if problem == "" && expression.IsTemplate(v) && steersCode(name) {
		problem, allowed = "the variable decides what code runs", "a text without ${...}: the event cannot decide that"
	}
	if problem != "" {
		d.add(at, problem, allowed)
		return
	}
	to[name] = v
}
