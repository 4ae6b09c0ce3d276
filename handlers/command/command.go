// Package command is the handler that runs a local program for each event.
//
// The argument vector comes from the configuration and no shell is involved: what
// an event puts into an argument ([Config.Fill]) stays one argument. The event's
// data is the program's standard input, byte for byte; its attributes are environment
// variables (see [Variables]), and beside them the environment is a short fixed
// list. Standard output and standard error together become the result's detail,
// capped and made safe.
//
// The program runs in a process group of its own. When it ends, and when its
// time is up, nothing of it is left: the group is killed, and on Linux every
// process too that left the group and still carries the execution's variables.
// If this process is killed, the program is killed by the kernel (Linux), and
// [KillOwner] finds what it had started. A process that has left both its group and
// its environment is found only after [AdoptOrphans].
//
// A program that ended by itself is judged by its exit code; one that was
// killed has an unknown outcome, as it may have done its work. One that could
// not be started has not begun.
package command

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"fencepost/edge"
	"fencepost/handlers"
)

// Exit codes as they are judged unless configured; all others mean failed.
const (
	ExitSucceeded = 0
	ExitRetry     = 75 // EX_TEMPFAIL of sysexits.h
)

// Times of the end of a program.
const (
	DefaultGrace = 500 * time.Millisecond
	MaxGrace     = time.Second
)

// Limits of a [Config].
const (
	MaxArguments     = 256
	MaxArgumentBytes = 32 << 10 // of all arguments together
	MaxVariables     = 64
	MaxVariableBytes = 32 << 10 // of one value
)

// Result codes.
const (
	CodeProgramNotFound      = "program_not_found"      // blocked
	CodeProgramNotExecutable = "program_not_executable" // blocked
	CodeDirectoryNotFound    = "directory_not_found"    // blocked
	CodeNotStarted           = "not_started"            // called off before the start
	CodeStartFailed          = "start_failed"           // retry: no process or descriptor was free
	CodeEnvironmentInvalid   = "environment_invalid"    // failed: a NUL in an attribute
	CodeTimeout              = "command_timeout"        // indeterminate
	CodeInterrupted          = "command_interrupted"    // indeterminate: cancelled, shut down or lease lost
	CodeKilledBySignal       = "killed_by_signal"       // indeterminate
	CodeStuck                = "command_stuck"          // indeterminate: killed and still there
)

// Config configures a [Handler].
type Config struct {
	// Argv is the program and its arguments, passed as they are. The program
	// is an absolute path, or a name that is looked up in PATH as the
	// program will see it.
	Argv []string
	// Dir is the working directory, absolute; default "/" (on Windows the
	// node's own).
	Dir string
	// Env are further variables. A value that begins with env: or file: is a
	// reference to a secret. Names that begin with FENCEPOST_ are reserved.
	Env map[string]string
	// Fill makes what an event puts into its execution; nil = nothing. It must
	// be pure. An error blocks the delivery with template_error.
	Fill func(*edge.Event) (Content, error)
	// SucceededCodes and RetryCodes are exit codes from 0 to 255; default 0
	// and 75. All others mean failed.
	SucceededCodes []int
	RetryCodes     []int
	// Grace is the time between asking a program to end and killing it;
	// default 500 ms, at most 1 s.
	Grace time.Duration
	// Timeout bounds an execution whose context has no earlier deadline;
	// default 5 minutes.
	Timeout time.Duration
}

// Content is what one event puts into its execution.
type Content struct {
	// Arguments stand in place of Argv[1:] of the configuration; nil = those.
	// The program itself is the configuration's alone.
	Arguments []string
	// Env are variables beside Config.Env; a value is never taken for a
	// reference. PATH is refused; who fills in others must know what they
	// make the program do.
	Env map[string]string
	// Input is the standard input when HasInput, else the event's data is.
	Input    []byte
	HasInput bool
}

// Handler runs a program for each event. It may be used from many goroutines;
// each running program holds one thread.
type Handler struct {
	config Config
}

// New returns a handler, or all faults of the configuration. Whether program,
// directory and secrets are there is not asked here but at each execution. New
// marks descriptors that this process has inherited as closed on exec, so that
// no program gets them.
func New(c Config) (*Handler, error) {
	c = withDefaults(c)
	if err := errors.Join(checkArgv(c.Argv), checkDir(c.Dir), checkEnv(c.Env), checkExitCodes(c), checkTimes(c)); err != nil {
		return nil, fmt.Errorf("command handler: %w", err)
	}
	if err := closeInheritedOnExec(); err != nil {
		return nil, fmt.Errorf("command handler: mark inherited descriptors as closed on exec: %w", err)
	}
	return &Handler{config: c}, nil
}

// Handle runs the program once.
func (h *Handler) Handle(ctx context.Context, c *edge.Claim) edge.Result {
	ctx, cancel := context.WithTimeout(ctx, h.config.Timeout)
	defer cancel()
	content, err := h.content(c.Event)
	if err != nil {
		return *misconfigured(handlers.CodeTemplateError, err.Error())
	}
	env, secrets, fault := h.environment(c, content.Env)
	if fault == nil {
		fault = h.checkDirExists()
	}
	if fault != nil {
		return *fault
	}
	path, fault := findProgram(h.config.Argv[0], searchPath(env))
	if fault != nil {
		return *fault
	}
	return h.run(ctx, job{path: path, argv: content.argv(h.config.Argv[0]), env: env, secrets: secrets, data: content.Input, marks: marks(c)})
}

func withDefaults(c Config) Config {
	if c.Dir == "" {
		c.Dir = defaultDir
	}
	if c.SucceededCodes == nil {
		c.SucceededCodes = []int{ExitSucceeded}
	}
	if c.RetryCodes == nil && !slices.Contains(c.SucceededCodes, ExitRetry) {
		c.RetryCodes = []int{ExitRetry}
	}
	if c.Grace == 0 {
		c.Grace = DefaultGrace
	}
	if c.Timeout == 0 {
		c.Timeout = 5 * time.Minute
	}
	return c
}

func checkArgv(argv []string) error {
	if len(argv) == 0 || argv[0] == "" {
		return errors.New("argv: the program is missing")
	}
	if len(argv) > MaxArguments {
		return fmt.Errorf("argv: %d arguments, the limit is %d", len(argv), MaxArguments)
	}
	total := 0
	for i, a := range argv {
		total += len(a)
		if strings.ContainsRune(a, 0) {
			return fmt.Errorf("argv: argument %d has a NUL byte", i)
		}
	}
	if total > MaxArgumentBytes {
		return fmt.Errorf("argv: %d bytes, the limit is %d", total, MaxArgumentBytes)
	}
	if p := argv[0]; strings.ContainsAny(p, `/\`) && !filepath.IsAbs(p) {
		return fmt.Errorf("argv: program %q: write an absolute path, or a name without a slash to have it looked up in PATH", p)
	}
	return nil
}

func checkDir(dir string) error {
	if dir != "" && (!filepath.IsAbs(dir) || strings.ContainsRune(dir, 0)) {
		return fmt.Errorf("dir: %q: write an absolute path", dir)
	}
	return nil
}

func checkExitCodes(c Config) error {
	for _, code := range slices.Concat(c.SucceededCodes, c.RetryCodes) {
		if code < 0 || code > 255 {
			return fmt.Errorf("exit codes: %d is not from 0 to 255", code)
		}
	}
	for _, code := range c.RetryCodes {
		if slices.Contains(c.SucceededCodes, code) {
			return fmt.Errorf("exit codes: %d means both succeeded and retry", code)
		}
	}
	return nil
}

func checkTimes(c Config) error {
	if c.Grace < 0 || c.Grace > MaxGrace {
		return fmt.Errorf("grace: %s is not from 0 to %s", c.Grace, MaxGrace)
	}
	if c.Timeout < 0 {
		return fmt.Errorf("timeout: %s is negative", c.Timeout)
	}
	return nil
}

// exited judges a program that ended by itself.
func (h *Handler) exited(code int, detail string) edge.Result {
	r := edge.Result{Outcome: edge.OutcomeFailed, Code: fmt.Sprintf("exit_%d", code), Detail: detail}
	switch {
	case slices.Contains(h.config.SucceededCodes, code):
		r.Outcome = edge.OutcomeSucceeded
	case slices.Contains(h.config.RetryCodes, code):
		// It did not begin; for want of a connection, perhaps. The handler's
		// uplink, if it has one, tells.
		r.Outcome, r.Blame = edge.OutcomeRetry, edge.BlameConnection
	}
	return r
}

func misconfigured(code, detail string) *edge.Result {
	r := edge.Misconfigured(code, handlers.Detail(detail, nil, false, nil))
	return &r
}
