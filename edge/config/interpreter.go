package config

import (
	"path"
	"slices"
	"strings"

	"fencepost/edge/expression"
)

// steersCode reports whether a variable decides what code a program runs, as PATH
// and LD_PRELOAD do. No event may set one.
func steersCode(name string) bool {
	name = strings.ToUpper(name)
	return slices.Contains(steering, name) || slices.ContainsFunc(steeringPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// steering are variables of loaders, shells and interpreters.
var steering = []string{
	"PATH", "HOME", "SHELL", "ENV", "BASH_ENV", "IFS", "PS4", "SHELLOPTS", "BASHOPTS", "PROMPT_COMMAND", "ZDOTDIR",
	"PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PERL5LIB", "PERL5OPT", "PERLLIB", "RUBYLIB", "RUBYOPT", "NODE_OPTIONS", "NODE_PATH",
	"LUA_INIT", "LUA_PATH", "LUA_CPATH", "PHPRC", "CLASSPATH", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS",
	"EDITOR", "VISUAL", "PAGER", "LESSOPEN", "GCONV_PATH", "LOCPATH", "NLSPATH", "HOSTALIASES", "RES_OPTIONS", "COMSPEC", "PATHEXT", "SYSTEMROOT",
}

var steeringPrefixes = []string{"LD_", "DYLD_", "BASH_FUNC_", "GIT_", "LUA_INIT_"}

// interpreters run code that their arguments hold or name. Versions follow some
// of the names, as in python3.12.
var interpreters = []string{
	"sh", "ash", "bash", "dash", "ksh", "mksh", "zsh", "fish", "csh", "tcsh", "python", "pypy", "perl", "ruby", "node", "nodejs",
	"deno", "bun", "php", "lua", "luajit", "tclsh", "awk", "gawk", "mawk", "sed", "cmd", "powershell", "pwsh", "osascript",
}

// codeOptions are options after which code stands.
var codeOptions = []string{"--eval", "--print", "--command", "--expression", "--execute", "-command", "-encodedcommand", "/c", "/k"}

// checkInterpreted refuses an event's part where a shell or an interpreter takes
// code: what follows -c, -e and the like, and the first argument that is neither
// option nor value of one, which is code or names it. What follows the name of a
// script is the script's own, options too.
func checkInterpreted(t *table, argv []string) {
	from := interpreterAt(argv)
	if from < 0 {
		return
	}
	name := programName(argv[from])
	operands, code, anyCode, value := 0, false, false, false
	for i, arg := range argv[from+1:] {
		if operands > 0 && !anyCode && slices.Contains(scriptFirst, name) {
			return
		}
		option := strings.HasPrefix(arg, "-") || slices.Contains(codeOptions, strings.ToLower(arg))
		if !option && !value {
			operands++
		}
		if expression.IsTemplate(arg) && (code || option || value || operands == 1 || remote(argv[from])) {
			t.doc.add(elemPath(t.at("argv"), from+i+2), "an interpreter takes this argument for code, or for an option",
				"code without ${...}, and what the event says in an argument after it, in a variable (env), or on standard input")
		}
		value = !value && takesValue(name, arg)
		code = option && !value && takesCode(arg)
		anyCode = anyCode || code
	}
}

// takesValue reports whether the value of an interpreter's option follows it: one of
// valueOptions, or a group of letters that ends with one, as in -euo.
func takesValue(interpreter, option string) bool {
	if strings.HasPrefix(option, "-") && !strings.HasPrefix(option, "--") && len(option) > 2 {
		option = "-" + option[len(option)-1:]
	}
	return slices.Contains(valueOptions[interpreter], option)
}

// scriptFirst are the interpreters that take no option of their own behind the name
// of a script.
var scriptFirst = []string{"sh", "ash", "bash", "dash", "ksh", "mksh", "zsh", "python", "pypy", "perl", "ruby", "node", "nodejs", "php", "lua", "luajit"}

// valueOptions are options with a value in an argument of its own, which is not
// the name of a script.
var valueOptions = map[string][]string{
	"sh": shellValues, "ash": shellValues, "bash": shellValues, "dash": shellValues, "ksh": shellValues, "mksh": shellValues, "zsh": shellValues,
	"python": pythonValues, "pypy": pythonValues,
	"perl": {"-I"},
	"ruby": {"-I", "-r", "-E", "-C"},
	"node": nodeValues, "nodejs": nodeValues,
	"php": {"-c", "-d", "-z", "-t"},
	"lua": {"-l"}, "luajit": {"-l"},
}

var (
	shellValues  = []string{"-O", "+O", "-o", "+o", "--rcfile", "--init-file"}
	pythonValues = []string{"-W", "-X", "--check-hash-based-pycs"}
	nodeValues   = []string{"-r", "--require", "--import", "--loader", "--experimental-loader", "-C", "--conditions", "--env-file", "--title", "--input-type"}
)

// takesCode reports whether code follows an option: one of codeOptions, or a group
// of letters with c, e, r, x or i in it, as in -lc.
func takesCode(option string) bool {
	option = strings.ToLower(option)
	return slices.Contains(codeOptions, option) || len(option) <= 5 && !strings.HasPrefix(option, "--") && strings.ContainsAny(option, "cerxi")
}

// interpreterAt is the place of an interpreter in argv: the program, or what a
// program that starts others is told to start. -1 when there is none.
func interpreterAt(argv []string) int {
	for i, arg := range argv {
		if slices.Contains(interpreters, programName(arg)) || remote(arg) {
			return i
		}
		if i == 0 && !slices.Contains(starters, programName(arg)) {
			break
		}
	}
	return -1
}

// starters are programs that start the program that their arguments name.
var starters = []string{
	"busybox", "env", "sudo", "doas", "su", "runuser", "nice", "ionice", "chrt", "taskset", "timeout", "time", "nohup", "setsid", "stdbuf", "flock",
	"chroot", "unshare", "nsenter", "systemd-run", "xargs", "strace", "watch", "script", "toybox", "setpriv", "prlimit", "docker", "podman", "kubectl",
}

// remote reports whether a program gives all its arguments to a shell elsewhere.
func remote(program string) bool {
	name := programName(program)
	return name == "ssh" || name == "rsh" || name == "watch" || name == "su"
}

// programName is the bare name of a program, without a version.
func programName(program string) string {
	name := strings.ToLower(path.Base(strings.ReplaceAll(program, `\`, "/")))
	return strings.TrimRight(strings.TrimSuffix(name, ".exe"), "0123456789.-")
}
