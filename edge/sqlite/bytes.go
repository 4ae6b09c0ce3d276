package sqlite

import (
	"database/sql"
	"sync/atomic"

	"fencepost/edge"
)

// Counters of bytes by what holds them, kept in the transactions that move
// deliveries: bounds are kept without looking at rows.
const (
	bytesOpen      = "bytes.open"      // deliveries that are not final
	bytesSucceeded = "bytes.succeeded" // deliveries that succeeded
	bytesFailed    = "bytes.failed"    // failed, cancelled and expired ones
	bytesUnrouted  = "bytes.unrouted"  // data of events that no route matched
)

// bytesHeld remembers these counters as of the last commit. The writer alone
// changes it; anybody may read.
type bytesHeld struct {
	known bool // belongs to the writer's goroutine
	open  atomic.Int64
	done  atomic.Int64
	fail  atomic.Int64
	stray atomic.Int64
}

func (b *bytesHeld) of(name string) *atomic.Int64 {
	switch name {
	case bytesOpen:
		return &b.open
	case bytesSucceeded:
		return &b.done
	case bytesFailed:
		return &b.fail
	case bytesUnrouted:
		return &b.stray
	}
	return nil
}

// loadBytes reads the counters when they are not known.
func (tx *tx) loadBytes() error {
	b := &tx.w.store.bytes
	if b.known {
		return nil
	}
	const query = `SELECT name, value FROM counters WHERE name >= 'bytes.' AND name < 'bytes/'`
	err := tx.each(query, func(rows *sql.Rows) error {
		var name string
		var n int64
		err := rows.Scan(&name, &n)
		if at := b.of(name); at != nil {
			at.Store(n)
		}
		return err
	})
	b.known = err == nil
	return err
}

// committed follows a commit in memory.
func (b *bytesHeld) committed(tx *tx) {
	for _, name := range [...]string{bytesOpen, bytesSucceeded, bytesFailed, bytesUnrouted} {
		if n := tx.counters[name]; n != 0 {
			b.of(name).Add(n)
		}
	}
}

// held is a counter of bytes, this transaction included.
func (tx *tx) held(name string) int64 {
	return tx.w.store.bytes.of(name).Load() + tx.counters[name]
}

// bytesCounter is the class of a state, "" for no state.
func bytesCounter(s edge.State) string {
	switch {
	case s == "":
		return ""
	case s == edge.Succeeded:
		return bytesSucceeded
	case s.Final():
		return bytesFailed
	}
	return bytesOpen
}

// bytesCount moves the bytes of a delivery from the class of one state to that of
// another; "" is none.
func (tx *tx) bytesCount(from, to edge.State, n int64) {
	was, is := bytesCounter(from), bytesCounter(to)
	if was == is {
		return
	}
	if was != "" {
		tx.count(was, -n)
	}
	if is != "" {
		tx.count(is, n)
	}
}
