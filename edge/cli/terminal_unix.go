//go:build unix

package cli

import "golang.org/x/sys/unix"

// windowWidth is the width of the terminal that a file is, in columns; 0 when it
// is none.
func windowWidth(fd uintptr) int {
	w, err := unix.IoctlGetWinsize(int(fd), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	if w.Col == 0 {
		return standardWidth // a terminal that does not know its size
	}
	return int(w.Col)
}
