package service

import (
	"fmt"
	"os"
	"syscall"
)

// journalVariable names device and inode of the stream that leads to the journal
// (systemd.exec(5)).
const journalVariable = "JOURNAL_STREAM"

// ToJournal reports whether what is written to f goes to the journal.
func ToJournal(f *os.File) bool {
	want := os.Getenv(journalVariable)
	if want == "" || f == nil {
		return false
	}
	fi, err := f.Stat()
	if err != nil {
		return false
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && want == fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}
