package service_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// asProgram is the first argument of this test binary when a command handler
// runs it.
const asProgram = "run-as-program"

// runProgram does what the second argument says and returns the exit code.
func runProgram(what string, args []string) int {
	var err error
	switch what {
	case "report": // environment and descriptors, exactly
		err = report(args[0])
	case "spy": // on the node that started it
		err = spy(args[0])
	default:
		err = fmt.Errorf("%s?", what)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func report(to string) error {
	env, err := os.ReadFile("/proc/self/environ")
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, v := range strings.Split(strings.TrimSuffix(string(env), "\x00"), "\x00") {
		fmt.Fprintf(&text, "%s\n", v)
	}
	for _, fd := range descriptors() {
		fmt.Fprintf(&text, "fd %d\n", fd)
	}
	return os.WriteFile(to, []byte(text.String()), 0o600)
}

// descriptors are those that were there when the program began: what the Go
// runtime opens itself (epoll, its control group) is left out.
func descriptors() []int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil
	}
	var fds []int
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		to, linkErr := os.Readlink("/proc/self/fd/" + e.Name())
		own := strings.HasPrefix(to, "anon_inode:") || strings.HasPrefix(to, "/proc/") || strings.HasPrefix(to, "/sys/fs/cgroup/")
		if err == nil && linkErr == nil && !own {
			fds = append(fds, fd)
		}
	}
	slices.Sort(fds)
	return fds
}

// spy tries all ways to look into the process that started it, and writes what
// came of each.
func spy(to string) error {
	var text strings.Builder
	proc := fmt.Sprintf("/proc/%d/", os.Getppid())
	for _, name := range []string{"environ", "mem", "maps", "auxv", "fd", "map_files", "cwd", "exe", "root"} {
		err := look(proc + name)
		if err == nil {
			text.WriteString(name + ": open\n")
		} else if !errors.Is(err, fs.ErrPermission) {
			fmt.Fprintf(&text, "%s: %v\n", name, err)
		}
	}
	if err := syscall.PtraceAttach(os.Getppid()); err == nil {
		text.WriteString("ptrace: attached\n")
	}
	fmt.Fprintf(&text, "as %d, parent is fencepost: %t\n", os.Getuid(), parentIs("fencepost"))
	return os.WriteFile(to, []byte(text.String()), 0o600)
}

func look(path string) error {
	if to, err := os.Readlink(path); err == nil || errors.Is(err, fs.ErrPermission) {
		if err == nil {
			err = fmt.Errorf("leads to %s", to)
		}
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return nil
}

func parentIs(name string) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", os.Getppid()))
	return err == nil && strings.TrimSpace(string(b)) == name
}
