//go:build faults

package crash_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestP4_DiskFullAtTheStart: a node ended on a disk that has no byte left, the
// reserve spent. The next start waits for space and then goes on by itself. It does
// not end with the code of a storage that a person must mend, after which a service
// manager would never start it again.
func TestP4_DiskFullAtTheStart(t *testing.T) {
	l, dir := newDiskLoad(t, "tmpfs")
	l.n.start()
	l.produce()
	l.acksFrom(l.acks.Load(), 50)
	await(t, l.n, "there is a reserve", func() bool { return l.storage().ReserveBytes > 0 })
	for !l.storage().SpentReserve {
		fill(t, dir)
		l.refused()
	}
	l.n.stop()
	fill(t, dir)
	p := l.n.spawn()
	await(t, l.n, "the start waits", func() bool {
		return len(l.n.logged("the disk is full: the node starts when there is space")) > 0
	})
	unfill(t, dir)
	began := time.Now()
	l.n.awaitReady(p)
	took := time.Since(began)
	l.acksFrom(l.acks.Load(), 20)
	l.finish()
	l.settleAll()
	l.n.clean()
	require.Empty(t, l.evidence().judge())
	l.n.stop()
	require.Less(t, took, 10*time.Second)
}
