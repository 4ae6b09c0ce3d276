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
// code: what follows -c, -e and the like, and the first argument that is no
// option, which is code or names it.
func checkInterpreted(t *table, argv []string) {
	from := interpreterAt(argv)
	if from < 0 {
		return
	}
	operands, code := 0, false
	for i, arg := range argv[from+1:] {
		option := strings.HasPrefix(arg, "-") || slices.Contains(codeOptions, strings.ToLower(arg))
		if !option {
			operands++
		}
		if expression.IsTemplate(arg) && (code || option || operands == 1 || remote(argv[from])) {
			t.doc.add(elemPath(t.at("argv"), from+i+2), "an interpreter takes this argument for code, or for an option",
				"code without ${...}, and what the event says in an argument after it, in a variable (env), or on standard input")
		}
		code = option && takesCode(arg)
	}
}

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
