package api

import (
	"net"
	"os/user"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// peerOf asks the kernel who connected (SO_PEERCRED and SO_PEERGROUPS,
// unix(7)). It tells of the moment of connecting, so a process that has since
// gone, or become another, changes nothing.
func peerOf(c net.Conn) (p peer, known bool, err error) {
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return peer{}, false, nil
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return peer{}, true, err
	}
	var fault error
	err = raw.Control(func(fd uintptr) {
		var cred *unix.Ucred
		if cred, fault = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); fault == nil {
			p = peer{uid: int(cred.Uid), groups: append(peerGroups(fd, cred.Uid), int(cred.Gid))}
		}
	})
	if err == nil {
		err = fault
	}
	return p, true, err
}

// peerGroups are the supplementary groups of the peer. A kernel older than 4.13
// does not say; there they are those of the account.
func peerGroups(fd uintptr, uid uint32) []int {
	for size := uint32(64); ; {
		gids := make([]uint32, size)
		bytes := size * 4
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&gids[0])), uintptr(unsafe.Pointer(&bytes)), 0)
		switch {
		case errno == 0:
			return numbers(gids[:bytes/4])
		case errno == unix.ERANGE && bytes/4 > size: // there are more: bytes says how many
			size = bytes / 4
		default:
			return accountGroups(uid)
		}
	}
}

func numbers(gids []uint32) []int {
	ns := make([]int, len(gids))
	for i, g := range gids {
		ns[i] = int(g)
	}
	return ns
}

func accountGroups(uid uint32) []int {
	u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return nil
	}
	ids, err := u.GroupIds()
	if err != nil {
		return nil
	}
	var gids []int
	for _, id := range ids {
		if n, err := strconv.Atoi(id); err == nil {
			gids = append(gids, n)
		}
	}
	return gids
}
