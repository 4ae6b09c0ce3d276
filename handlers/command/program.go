package command

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"fencepost/edge"
	"fencepost/handlers"
)

// findProgram finds the file to run. A fault is the result of an execution that
// cannot begin. Only absolute directories of the search path are looked into.
func findProgram(name, path string) (string, *edge.Result) {
	if filepath.IsAbs(name) {
		if err := checkProgram(name); err != nil {
			return "", programFault(name, err)
		}
		return name, nil
	}
	var last error = fs.ErrNotExist
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		for _, suffix := range programSuffixes {
			file := filepath.Join(dir, name+suffix)
			err := checkProgram(file)
			if err == nil {
				return file, nil
			}
			if !errors.Is(err, fs.ErrNotExist) {
				last = err
			}
		}
	}
	return "", programFault(name, last)
}

func checkProgram(file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || needsExecuteBit && info.Mode().Perm()&0o111 == 0 {
		return fs.ErrPermission
	}
	return nil
}

func programFault(name string, err error) *edge.Result {
	name = handlers.Line(name, 1024)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return misconfigured(CodeProgramNotFound, "program "+name+": not found")
	}
	return misconfigured(CodeProgramNotExecutable, "program "+name+": not an executable file")
}

// Check reports what is missing for a start of the program as things are now: its
// directory, or the program itself in the PATH that it will get. It starts
// nothing. What is missing may come, and what is there may go: each execution
// looks again.
func (h *Handler) Check() error {
	var faults []error
	if r := h.checkDirExists(); r != nil {
		faults = append(faults, errors.New(r.Detail))
	}
	path := searchPath(baseEnvironment())
	if own, set := h.config.Env["PATH"]; set {
		v, _, err := handlers.ResolveValue(own)
		if err != nil { // a missing secret is told of by whoever looks for those
			return errors.Join(faults...)
		}
		path = v.Reveal()
	}
	if _, r := findProgram(h.config.Argv[0], path); r != nil {
		faults = append(faults, errors.New(r.Detail))
	}
	return errors.Join(faults...)
}

func (h *Handler) checkDirExists() *edge.Result {
	if h.config.Dir == "" {
		return nil
	}
	if info, err := os.Stat(h.config.Dir); err != nil || !info.IsDir() {
		return misconfigured(CodeDirectoryNotFound, "working directory "+handlers.Line(h.config.Dir, 1024)+": not a directory that can be entered")
	}
	return nil
}

// startFault judges an error of starting a program that was there a moment ago.
// In every case nothing has begun.
func startFault(file string, err error) edge.Result {
	name := handlers.Line(file, 1024)
	var errno syscall.Errno
	_ = errors.As(err, &errno)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return *misconfigured(CodeProgramNotFound, "program "+name+": it, or the interpreter that it names, is not there")
	case errors.Is(err, fs.ErrPermission), errno == syscall.ENOEXEC:
		return *misconfigured(CodeProgramNotExecutable, "program "+name+": "+errno.Error())
	}
	text := err.Error()
	if errno != 0 {
		text = errno.Error()
	}
	return edge.TryAgain(CodeStartFailed, "start "+name+": "+strings.TrimSpace(text))
}
