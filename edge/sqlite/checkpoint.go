package sqlite

import (
	"os"
	"time"
)

// The log is taken over into the database by the writer alone, after the commit
// that makes it long enough (see takeOver), as far as the snapshots of readers
// allow. While one reader after another holds a snapshot that is never
// the whole log, so it grows. What is done then grows with it:
//
//	soft   new reads wait a moment, so that those under way can end
//	hard   those under way are ended
//	most   the disk state is low_space: no event is taken, nothing is begun
//
// The last is for snapshots of other processes, which cannot be ended. The writer
// never waits for a reader: it tries, and goes on.
type logBounds struct{ soft, hard, most int64 }

var standardLog = logBounds{soft: 16 << 20, hard: 28 << 20, most: 40 << 20}

// logKeeper keeps the log short. It belongs to the writer's goroutine.
type logKeeper struct {
	bounds  logBounds
	path    string
	size    int64 // at the last look
	peak    int64
	holding bool          // reads are kept waiting
	since   time.Duration // monotonic time at which that began
	retryAt time.Duration // monotonic time of the next try; 0 = none is due
	foreign bool          // ending the reads of this process did not help
	alarmed bool
	tries   int64 // tries that a snapshot made fail
}

const (
	logRetry = 5 * time.Millisecond
	logHold  = time.Second     // how long reads are kept waiting at most
	logRest  = 5 * time.Second // and how long they are then let alone
)

// tendLog looks at the log after a commit, or when a try is due.
func (w *writer) tendLog() {
	k := &w.keeper
	fi, err := os.Lstat(k.path)
	if err != nil {
		return
	}
	k.size = fi.Size()
	k.peak = max(k.peak, k.size)
	if k.size < k.bounds.soft {
		w.logIsShort()
		return
	}
	w.store.space.logIs(k.size >= k.bounds.most)
	mono := w.clock.Mono()
	rests := mono < k.retryAt && (k.foreign || k.size < k.bounds.hard || k.retryAt-mono <= logRetry)
	if rests {
		return
	}
	if w.truncateLog() {
		k.size = 0
		w.logIsShort()
		return
	}
	w.tendLater(mono)
}

// tendLater makes way for the next try, as a snapshot was in the way of this one.
func (w *writer) tendLater(mono time.Duration) {
	k := &w.keeper
	k.tries++
	k.retryAt = mono + logRetry
	w.holdReads(mono)
	hard := k.size >= k.bounds.hard
	if hard {
		w.logIsLong(w.store.readers.cut())
	}
	if mono >= k.since+logHold {
		k.foreign = hard // those of this process are ended: it is another's
		w.releaseReads()
		k.retryAt = mono + logRest
	}
}

func (w *writer) holdReads(mono time.Duration) {
	if k := &w.keeper; !k.holding {
		k.holding, k.since = true, mono
		w.store.readers.hold()
	}
}

func (w *writer) releaseReads() {
	w.keeper.holding = false
	w.store.readers.release()
}

// logIsLong says once per episode that readers held the log up.
func (w *writer) logIsLong(cut int) {
	if k := &w.keeper; !k.alarmed {
		k.alarmed = true
		w.store.log.Warn("reads hold the log of the database up: those of this process are ended", "log_bytes", k.size, "reads_ended", cut)
	}
}

func (w *writer) logIsShort() {
	k := &w.keeper
	if k.holding {
		w.releaseReads()
	}
	if k.alarmed {
		w.store.log.Info("the log of the database is short again", "log_bytes", k.size)
	}
	k.alarmed, k.foreign, k.retryAt = false, false, 0
	w.store.space.logIs(false)
}

// truncateLog takes the whole log over and empties it, unless a snapshot is in the
// way. It does not wait for one: waiting would hold the write lock.
func (w *writer) truncateLog() bool {
	var n int
	if err := w.pragma("PRAGMA busy_timeout = 0", &n); err != nil {
		return false
	}
	busy, log, done := 1, 0, 0
	err := w.pragma("PRAGMA wal_checkpoint(TRUNCATE)", &busy, &log, &done)
	if e := w.pragma("PRAGMA busy_timeout = 5000", &n); err == nil {
		err = e
	}
	if classify(err) == terminal {
		w.fail(err)
	}
	return err == nil && busy == 0
}

// pragma runs a pragma that answers with one row.
func (w *writer) pragma(text string, to ...any) error {
	row, err := w.stmt(text) //nolint:sqlclosecheck // the writer keeps it
	if err != nil {
		return err
	}
	return row.QueryRow().Scan(to...)
}

// logDue reports whether a try that a snapshot made fail is to be made again.
func (w *writer) logDue() bool {
	return w.keeper.retryAt > 0 && w.err() == nil && !w.isClosed() && w.clock.Mono() >= w.keeper.retryAt
}
