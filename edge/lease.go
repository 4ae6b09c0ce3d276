package edge

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"time"
)

// DefaultLease is how long a lease lasts unless configured. It is renewed at a
// third of its length and trusted until a tenth before its end.
const DefaultLease = 60 * time.Second

// Token names one holding of a lease. Each claim draws a new one at random; no
// write of a worker happens without it. It never leaves the node.
type Token int64

// NewToken draws a token. It is never 0, which means "no token".
func NewToken() Token {
	var b [8]byte
	for {
		_, _ = rand.Read(b[:]) // crypto/rand.Read does not fail
		if t := Token(binary.BigEndian.Uint64(b[:]) >> 1); t != 0 {
			return t
		}
	}
}

// NewName draws a random name of 16 lower-case letters and digits (80 bits), as
// used for owners and, cut to 8, for nodes.
func NewName() string {
	var b [10]byte
	_, _ = rand.Read(b[:]) // crypto/rand.Read does not fail
	return base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding).EncodeToString(b[:])
}

// Lease is the right to work on one target until a time. A row exists only
// while the lease is held: row gone means lost.
type Lease struct {
	Token     Token
	Target    Target
	Delivery  DeliveryID // 0 for WithTarget
	Execution ExecutionID
	Owner     string
	ExpiresMS int64
}
