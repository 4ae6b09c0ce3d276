package bench

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func datasync(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }

// flushes is how many flush requests the block device under dir has completed
// (/proc/diskstats, the 16th figure after the name). false when it is not known,
// as on a file system without a block device.
func flushes(dir string) (int64, bool) {
	var st unix.Stat_t
	if unix.Stat(dir, &st) != nil {
		return 0, false
	}
	f, err := os.Open("/proc/diskstats")
	if err != nil {
		return 0, false
	}
	defer f.Close()
	dev := fmt.Sprintf("%d %d", unix.Major(uint64(st.Dev)), unix.Minor(uint64(st.Dev)))
	for s := bufio.NewScanner(f); s.Scan(); {
		fields := strings.Fields(s.Text())
		if len(fields) < 19 || fields[0]+" "+fields[1] != dev {
			continue
		}
		n, err := strconv.ParseInt(fields[18], 10, 64)
		return n, err == nil
	}
	return 0, false
}

// cpuTime is what this process has used so far.
func cpuTime() time.Duration {
	var ru unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &ru) != nil {
		return 0
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// peakRSS is the most memory that this process has held, in bytes.
func peakRSS() int64 {
	var ru unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &ru) != nil {
		return 0
	}
	return int64(ru.Maxrss) * 1024
}

// rssOf is the memory that a process holds now, in bytes.
func rssOf(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

// freeBytes is the space left on the file system under dir.
func freeBytes(dir string) (int64, bool) {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return 0, false
	}
	return int64(st.Bavail) * int64(st.Bsize), true
}
