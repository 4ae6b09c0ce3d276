package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"fencepost/edge"

	codes "modernc.org/sqlite/lib"
)

// disk is what the file system says of a directory.
type disk struct {
	free     int64 // bytes free for this user; -1 = not known
	readOnly bool
}

// space watches the disk. It is the state machine of the storage: healthy, low,
// and from both to fault, which is the writer's to keep.
type space struct {
	s       *Store
	dir     string
	origin  os.FileInfo // the directory when the store was opened
	reserve reserve
	look    func(dir string) (disk, error)

	low   atomic.Bool  // no event is taken, nothing is begun
	spent atomic.Bool  // the reserve was given up: only ends are stored
	free  atomic.Int64 // at the last look
	kept  atomic.Int64 // bytes of the reserve

	checking sync.Mutex
	long     atomic.Bool // the log is at its bound
	mu       sync.Mutex
	reason   string
	lowDisk  bool
	pace     pace

	quit chan struct{}
	done sync.WaitGroup
}

// spaceCheck is how often the disk is looked at; beside that it is when a commit
// has failed.
const spaceCheck = 5 * time.Second

func newSpace(s *Store) (*space, error) {
	dir := filepath.Dir(s.path)
	fi, err := os.Stat(dir)
	sp := &space{s: s, dir: dir, origin: fi, look: lookAt, quit: make(chan struct{}), reserve: reserve{path: s.path + reserveSuffix, size: s.o.ReserveBytes}}
	sp.free.Store(-1)
	return sp, err
}

// watch looks at the disk now and by timer until the store is closed.
func (sp *space) watch() {
	sp.done.Go(func() {
		t := time.NewTicker(spaceCheck)
		defer t.Stop()
		for {
			sp.check()
			select {
			case <-t.C:
			case <-sp.quit:
				return
			}
		}
	})
}

func (sp *space) close() {
	close(sp.quit)
	sp.done.Wait()
}

// check looks at the disk and judges it. One look at a time.
func (sp *space) check() {
	if !sp.checking.TryLock() {
		return
	}
	defer sp.checking.Unlock()
	sp.checkLocked()
}

func (sp *space) checkLocked() {
	d, ok := sp.probe()
	if !ok {
		return
	}
	sp.refill(d.free)
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.pace.note(sp.s.o.Clock.Mono(), sizeOf(sp.s.path))
	sp.judge(d.free)
}

// probe asks the file system, and ends the store when nothing can be written
// there any more. It reports whether the answer is known.
func (sp *space) probe() (disk, bool) {
	if sp.s.w.err() != nil {
		return disk{}, false
	}
	d, err := sp.look(sp.dir)
	if fault := sp.gone(d, err); fault != nil {
		sp.s.w.fail(fault)
		return disk{}, false
	}
	if err != nil {
		return disk{}, false
	}
	sp.free.Store(d.free)
	return d, true
}

// refill makes the reserve when it is not there and there is room for it.
func (sp *space) refill(free int64) {
	r := &sp.reserve
	if r.size == 0 {
		return
	}
	if r.there() {
		sp.kept.Store(r.size)
		return
	}
	sp.kept.Store(0)
	const twice = 2 // the reserve, and as much for the work that then goes on
	if free >= 0 && free < sp.s.limits.Load().LowWaterBytes+twice*r.size {
		return
	}
	if err := r.make(); err != nil {
		if !sp.spent.Load() {
			sp.s.log.Warn("the reserve for a full disk could not be made", "path", r.path, "err", err)
		}
		return
	}
	sp.kept.Store(r.size)
}

// gone says that the file system cannot be written to any more, or is another.
func (sp *space) gone(d disk, err error) error {
	const way = "nothing can be stored there: look at the disk and its mount, then restart"
	if d.readOnly {
		return fmt.Errorf("the file system of %s is read-only: %s", sp.dir, way)
	}
	fi, statErr := os.Stat(sp.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(statErr, fs.ErrNotExist):
		return fmt.Errorf("the directory %s is gone: %s", sp.dir, way)
	case statErr == nil && sp.origin != nil && !os.SameFile(sp.origin, fi):
		return fmt.Errorf("another directory is in the place of %s: %s", sp.dir, way)
	}
	return nil
}

// judge decides the state by what is free. An eighth more than the mark ends a
// low state, so that it does not flicker; after a full disk the reserve must be
// there again.
func (sp *space) judge(free int64) {
	mark := sp.s.limits.Load().LowWaterBytes
	leave := free < 0 || free >= mark+mark/8
	if sp.spent.Load() {
		leave = leave && (sp.kept.Load() > 0 || sp.reserve.size == 0 && (free < 0 || free >= spentRoom))
	}
	switch {
	case free >= 0 && free < mark && !sp.lowDisk:
		sp.lowDisk = true
		sp.reason = fmt.Sprintf("the disk of %s has less free than storage.low_water_bytes (%d): make space", sp.dir, mark) // without how much: that changes while the reason stays
	case sp.lowDisk && leave:
		sp.lowDisk = false
		sp.spent.Store(false)
	}
	sp.publish()
}

// spentRoom is what must be free after a full disk when there is no reserve.
const spentRoom = 8 << 20

// failed looks at why the writer could not commit.
func (sp *space) failed(err error) {
	if classify(err) != passing {
		return
	}
	if resultCode(err)&0xff == codes.SQLITE_FULL {
		sp.full()
		return
	}
	if resultCode(err)&0xff == codes.SQLITE_IOERR {
		sp.probe()
	}
}

// onlyEnds answers, while the disk is full, what is not the end of something
// under way. It returns nil when nothing of a batch is left, and an empty batch
// that had nothing in it.
func (w *writer) onlyEnds(batch []*op) []*op {
	if !w.store.space.spent.Load() || len(batch) == 0 {
		if batch == nil {
			batch = []*op{}
		}
		return batch
	}
	var ends, rest []*op
	for _, o := range batch {
		if o.ends {
			ends = append(ends, o)
		} else {
			rest = append(rest, o)
		}
	}
	answer(rest, edge.ErrLowSpace)
	return ends
}

// full is called by the writer when the disk had no room for a commit: the reserve
// is given up, and from now on only ends are stored.
func (sp *space) full() {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	first := !sp.spent.Swap(true)
	if sp.kept.Swap(0) > 0 {
		if err := sp.reserve.give(); err != nil {
			sp.s.log.Error("the reserve could not be given up", "path", sp.reserve.path, "err", err)
		}
	}
	if first {
		sp.lowDisk = true
		sp.reason = fmt.Sprintf("the disk of %s is full: make space; until then only what is under way is stored", sp.dir)
		sp.s.log.Error("the disk is full: the reserve is given up, and only ends of what is under way are stored", "directory", sp.dir)
	}
	sp.publish()
}

// logIs says whether the log of the database is at its bound.
func (sp *space) logIs(long bool) {
	if sp.long.Swap(long) == long {
		return
	}
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if long && !sp.lowDisk {
		sp.reason = fmt.Sprintf("another process reads %s and keeps its log from being emptied: end that process", sp.s.path)
	}
	sp.publish()
}

// publish makes the state known, and says once per episode that it has changed.
func (sp *space) publish() {
	low := sp.lowDisk || sp.long.Load()
	if sp.low.Swap(low) == low {
		return
	}
	if low {
		sp.s.log.Warn("low space: no event is taken and nothing new is begun", "reason", sp.reason, "free_bytes", sp.free.Load())
		return
	}
	sp.reason = ""
	sp.s.log.Info("there is space again: work goes on", "free_bytes", sp.free.Load())
	sp.s.w.poke()
}

// state is the state of the storage and why it is not healthy.
func (sp *space) state() (edge.StorageState, string) {
	if err := sp.s.w.err(); err != nil {
		return edge.StorageFault, "nothing more is stored by this process: restart it; its log says why"
	}
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if sp.low.Load() {
		return edge.StorageLow, sp.reason
	}
	return edge.StorageHealthy, ""
}

// refuseWhenLow is ErrLowSpace while no event is taken.
func (sp *space) refuseWhenLow() error {
	if !sp.low.Load() {
		return nil
	}
	return edge.ErrLowSpace
}

func sizeOf(path string) int64 {
	fi, err := os.Lstat(path)
	if err != nil {
		return 0
	}
	return fi.Size()
}
