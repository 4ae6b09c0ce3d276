package sqlite

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

// The side file, FILE.mark, says which commit was the last one. SQLite takes a
// damaged log for a log that ends early: without a word from outside, commits
// that were acknowledged can vanish unnoticed. The record is written after each
// commit and before anybody is told of it, so it is exact after a crash of the
// process; it is synced within a second, away from the writer, so that after a
// power loss it may be behind the database, never ahead of it.

func markPath(db string) string { return db + ".mark" }

// record is what the side file says. It is kept twice, and written in turn: one
// whole record is left however a write was cut.
type record struct {
	turn     uint64 // grows with each write; the higher one counts
	no       int64  // last commit
	chain    int64
	syncedNo int64 // last commit that is known to be synced
	synced   int64 // its chain
	seq      sequences
	node     [8]byte
	host     host
	ino, dev uint64
	clean    bool // the store was closed in good order
	normal   bool // under durability "normal"
	lone     bool // not shared
}

const (
	markMagic  = "fpmark\x00\x01"
	recordSize = 192
	slotSize   = 4096 // a block each, so that no torn block takes both
)

func (r *record) encode() []byte {
	b := make([]byte, 0, recordSize)
	b = append(b, markMagic...)
	put := func(v uint64) { b = binary.LittleEndian.AppendUint64(b, v) }
	put(r.turn)
	for _, v := range [...]int64{r.no, r.chain, r.syncedNo, r.synced, r.seq.event, r.seq.delivery, r.seq.execution, r.seq.target} {
		put(uint64(v))
	}
	b = append(b, r.node[:]...)
	put(r.host.machine)
	b = append(b, r.host.boot[:]...)
	put(r.ino)
	put(r.dev)
	put(uint64(flag(r.clean) | flag(r.normal)<<1 | flag(r.lone)<<2))
	b = append(b, make([]byte, recordSize-8-len(b))...)
	sum := sha256.Sum256(b)
	return append(b, sum[:8]...)
}

// nodeName is the node that the database had.
func (r *record) nodeName() string { return strings.TrimRight(string(r.node[:]), "\x00") }

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// decodeRecord reads a slot; ok is false when it holds no whole record.
func decodeRecord(b []byte) (r record, ok bool) {
	if len(b) < recordSize || !bytes.HasPrefix(b, []byte(markMagic)) {
		return r, false
	}
	sum := sha256.Sum256(b[:recordSize-8])
	if !bytes.Equal(sum[:8], b[recordSize-8:recordSize]) {
		return r, false
	}
	b = b[len(markMagic):]
	next := func() uint64 {
		v := binary.LittleEndian.Uint64(b)
		b = b[8:]
		return v
	}
	r.turn = next()
	for _, v := range [...]*int64{&r.no, &r.chain, &r.syncedNo, &r.synced, &r.seq.event, &r.seq.delivery, &r.seq.execution, &r.seq.target} {
		*v = int64(next())
	}
	b = b[copy(r.node[:], b):]
	r.host.machine = next()
	b = b[copy(r.host.boot[:], b):]
	r.ino, r.dev = next(), next()
	flags := next()
	r.clean, r.normal, r.lone = flags&1 != 0, flags&2 != 0, flags&4 != 0
	return r, true
}

// latest is the newer one of the two records of a side file.
func latest(file []byte) (r record, ok bool) {
	for at := 0; at <= slotSize; at += slotSize {
		if len(file) < at+recordSize {
			continue
		}
		if s, whole := decodeRecord(file[at:]); whole && (!ok || s.turn > r.turn) {
			r, ok = s, true
		}
	}
	return r, ok
}

// errNoMark says that there is no side file, errBadMark that it holds nothing
// whole.
var (
	errNoMark  = errors.New("the side file is missing")
	errBadMark = errors.New("the side file is damaged")
)

// readMark reads the side file of a database.
func readMark(db string) (record, error) {
	data, err := os.ReadFile(markPath(db))
	if errors.Is(err, os.ErrNotExist) {
		return record{}, errNoMark
	}
	if err != nil {
		return record{}, err
	}
	r, ok := latest(data)
	if !ok {
		return record{}, errBadMark
	}
	return r, nil
}

// mark is the side file while the database is open. Its methods are called by
// the writer, but for sync.
type mark struct {
	f       *os.File
	r       record
	lock    *flock.Flock // among sharers; nil without
	locked  bool         // the lock is held for several writes
	behind  bool         // the last write failed for want of space
	written atomic.Int64 // last commit that the file names
	synced  atomic.Int64 // last commit that it names for good
	dirty   chan struct{}
}

// openMark opens the side file for writing and makes r its record. A missing or
// damaged one is made anew.
func openMark(db string, r record, share bool) (*mark, error) {
	path := markPath(db)
	m := &mark{r: r, dirty: make(chan struct{}, 1)}
	if share {
		if err := privateFile(path + ".lock"); err != nil {
			return nil, err
		}
		m.lock = flock.New(path+".lock", flock.SetPermissions(0o600))
		if ok, err := takeWithin(m.lock, openPatience); err != nil || !ok {
			return nil, errors.Join(err, fmt.Errorf("%s.lock is held by another sharer", path))
		}
		defer func() { _ = m.lock.Unlock() }()
	}
	_, err := readMark(db)
	if errors.Is(err, errNoMark) || errors.Is(err, errBadMark) {
		err = makeMark(path, r)
	}
	if err == nil {
		m.f, err = os.OpenFile(path, os.O_RDWR|noFollow, 0o600)
	}
	return m, err
}

// openPatience bounds the wait for a sharer that opens at the same time.
const openPatience = 5 * time.Second

// makeMark writes a new side file beside its name and puts it there whole.
func makeMark(path string, r record) error {
	tmp := path + ".new"
	_ = os.Remove(tmp)
	f, err := os.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_EXCL|noFollow, 0o600)
	if err != nil {
		return err
	}
	data := make([]byte, 2*slotSize)
	copy(data, r.encode())
	copy(data[slotSize:], r.encode())
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		_ = os.Remove(tmp)
		return err
	}
	return syncDir(filepath.Dir(path))
}

// put writes the record of m. Among sharers it only goes forward.
func (m *mark) put() error {
	if m.lock != nil && !m.locked {
		if ok, err := takeWithin(m.lock, markPatience); err != nil || !ok {
			return err // the next commit of anybody names this one too
		}
		defer func() { _ = m.lock.Unlock() }()
	}
	if m.lock != nil {
		there, ok, err := m.there()
		if err != nil {
			return err
		}
		if ok && there.no > m.r.no {
			return nil
		}
		m.r.turn = max(m.r.turn, there.turn)
	}
	m.r.turn++
	_, err := m.f.WriteAt(m.r.encode(), int64(m.r.turn%2)*slotSize)
	if err == nil {
		m.written.Store(m.r.no)
		m.noteDirty()
	}
	return err
}

// there is what the file says now.
func (m *mark) there() (record, bool, error) {
	data := make([]byte, slotSize+recordSize)
	n, err := m.f.ReadAt(data, 0)
	if err != nil && n < recordSize {
		return record{}, false, err
	}
	r, ok := latest(data[:n])
	return r, ok, nil
}

func (m *mark) noteDirty() {
	select {
	case m.dirty <- struct{}{}:
	default:
	}
}

// markPatience bounds the wait for a sharer that stands still with the lock of
// the side file.
const markPatience = 200 * time.Millisecond

// takeWithin takes a lock that is only ever held for a moment.
func takeWithin(l *flock.Flock, d time.Duration) (bool, error) {
	for waited := time.Duration(0); ; waited += time.Millisecond {
		ok, err := l.TryLock()
		if ok || err != nil || waited >= d {
			return ok, err
		}
		pause(time.Millisecond)
	}
}

func pause(d time.Duration) { <-time.NewTimer(d).C }

// sync makes what the file says survive power loss.
func (m *mark) sync() error {
	no := m.written.Load()
	if err := m.f.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", m.f.Name(), err)
	}
	for {
		was := m.synced.Load()
		if no <= was || m.synced.CompareAndSwap(was, no) {
			return nil
		}
	}
}

// close ends the use of the side file; clean says that the database was closed
// in good order before.
func (m *mark) close(clean bool) error {
	var err error
	if clean {
		m.r.clean, m.r.syncedNo, m.r.synced = true, m.r.no, m.r.chain
		if err = m.put(); err == nil {
			err = m.sync()
		}
	}
	return errors.Join(err, m.f.Close())
}

// chainAfter derives the chain of a commit from the one before and from what the
// commit wrote and who wrote it, so two histories that went apart never agree
// again.
func chainAfter(before int64, owner string, nowMS int64, s sequences) int64 {
	b := make([]byte, 0, 128)
	for _, v := range [...]int64{before, nowMS, s.event, s.delivery, s.execution, s.target, s.commit} {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	sum := sha256.Sum256(append(b, owner...))
	return int64(binary.LittleEndian.Uint64(sum[:8]) | 1) // never 0, which means none
}

// ringSize is how many commits the database remembers with their chains. The
// side file is never further behind what it says for good.
const ringSize = 4096

// syncBehind is how far the side file may fall behind before the writer syncs it
// itself: a disk that is slower than a second must not outrun the ring.
const syncBehind = ringSize - 96

// wantOfSpace reports an error that goes away when there is space again.
func wantOfSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// note tells the side file of a commit. Without space the commit stands and the
// file is behind; any other error ends the store, as nobody could say after a
// crash whether something was lost.
func (w *writer) note(tx *tx) error {
	m := w.mark
	if m == nil {
		return nil
	}
	m.r.no, m.r.chain, m.r.seq = tx.seq.commit, tx.seq.chain, tx.seq
	m.r.normal = w.store.o.Durability == DurabilityNormal
	if !m.r.normal {
		m.r.syncedNo, m.r.synced = m.r.no, m.r.chain
	}
	return w.putMark()
}

func (w *writer) putMark() error {
	m := w.mark
	err := m.put()
	switch {
	case err == nil:
		m.behind = false
	case wantOfSpace(err):
		if !m.behind {
			w.store.log.Warn("the side file could not be written; it is written again with the next commit", "err", err)
		}
		m.behind = true
		return nil
	default:
		return w.markFault(err)
	}
	if m.written.Load()-m.synced.Load() >= syncBehind {
		if err := m.sync(); err != nil {
			return w.markFault(err)
		}
	}
	return nil
}

func (w *writer) markFault(err error) error {
	w.fail(fmt.Errorf("the side file cannot be kept: %w", err))
	return w.err()
}

// markSynced tells the side file that all commits so far are synced.
func (w *writer) markSynced() error {
	if w.mark == nil {
		return nil
	}
	w.mark.r.syncedNo, w.mark.r.synced = w.mark.r.no, w.mark.r.chain
	return w.putMark()
}
