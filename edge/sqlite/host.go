package sqlite

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
)

// host tells machines and their starts apart. Zero is not known.
type host struct {
	machine uint64   // of the machine: a hash, the id itself is kept nowhere
	boot    [16]byte // of its present start: a page cache does not outlive it
}

// thisHost reads both ids of the host.
func thisHost() host {
	var h host
	if id, err := os.ReadFile("/etc/machine-id"); err == nil && len(bytes.TrimSpace(id)) > 0 {
		sum := sha256.Sum256(append([]byte("fencepost machine "), bytes.TrimSpace(id)...))
		h.machine = binary.LittleEndian.Uint64(sum[:8])
	}
	if id, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		raw, err := hex.DecodeString(string(bytes.ReplaceAll(bytes.TrimSpace(id), []byte("-"), nil)))
		if err == nil && len(raw) == len(h.boot) {
			copy(h.boot[:], raw)
		}
	}
	return h
}

// sameMachine reports whether two hosts are one machine, as far as is known.
func (h host) sameMachine(o host) bool {
	return h.machine == o.machine || h.machine == 0 || o.machine == 0
}

// sameStart reports that the machine was not started anew in between. What is
// not known counts as a new start, which expects less.
func (h host) sameStart(o host) bool { return h.boot == o.boot && h.boot != [16]byte{} }

func (o *Options) host() host {
	if o.fake != nil {
		return *o.fake
	}
	return thisHost()
}

// alone reports whether no other process is at work on the file.
func (s *Store) alone() bool {
	if !s.o.Share {
		return true
	}
	paths, err := filepath.Glob(ownerLockPath(globEscape(s.path), "*"))
	for _, p := range paths {
		owner := strings.TrimPrefix(p, ownerLockPath(s.path, ""))
		if owner != s.owner && !ownerIsDead(s.path, owner) {
			return false
		}
	}
	return err == nil
}
