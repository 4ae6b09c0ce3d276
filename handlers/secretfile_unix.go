//go:build unix

package handlers

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// openFlags make opening a named pipe return at once.
const openFlags = os.O_RDONLY | syscall.O_NONBLOCK

// privateSecret refuses a file that others can read or write, or that another
// user than root and this one owns. In the directory that systemd makes for
// credentials the group bits are the mask of an access list that names this
// user alone.
func privateSecret(info fs.FileInfo, credential bool) error {
	others := fs.FileMode(0o077)
	if credential {
		others = 0o007
	}
	if mode := info.Mode().Perm(); mode&others != 0 {
		return fmt.Errorf("others can use it (mode %04o): run chmod 600 on it, and change the secret if it was read", mode)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return errors.New("its owner cannot be told")
	}
	if uid := os.Geteuid(); st.Uid != 0 && int(st.Uid) != uid {
		return fmt.Errorf("it belongs to user %d, the node runs as %d: run chown %d on it", st.Uid, uid, uid)
	}
	return nil
}
