package sqlite

import "time"

// The guard is the one goroutine of a store beside its writer. It syncs the side
// file within a second of a write, and looks every few seconds whether the
// database still has its name, so that one that is taken away from an idle node
// is noticed too. It never wakes the writer.
type guard struct {
	w       *writer
	present *present
	stop    chan struct{}
	ended   chan struct{}
}

const (
	markSync      = time.Second
	presentPeriod = 4900 * time.Millisecond // noticed within 5 s, the look included
)

func newGuard(w *writer) (*guard, error) {
	p, err := newPresent(w.store.path)
	if err == nil {
		err = p.check() // notes the log: one that goes before the first tick is missed else
	}
	if err != nil {
		return nil, err
	}
	if err := p.check(); err != nil { // it notes the log, which is there since the writer has opened it
		return nil, err
	}
	g := &guard{w: w, present: p, stop: make(chan struct{}), ended: make(chan struct{})}
	go g.run()
	return g, nil
}

func (g *guard) run() {
	defer close(g.ended)
	look := time.NewTicker(presentPeriod)
	defer look.Stop()
	var dirty chan struct{}
	if g.w.mark != nil {
		dirty = g.w.mark.dirty
	}
	var due <-chan time.Time
	lookNow := func() {
		if gone := g.present.check(); gone != nil {
			g.w.fail(gone)
		}
	}
	lookNow() // which log is there, if one is
	for {
		select {
		case <-g.stop:
			return
		case <-g.w.failed:
			return
		case <-look.C:
			lookNow()
		case <-dirty:
			if g.present.log == nil { // the first commit has made one
				lookNow()
			}
			if due == nil {
				due = time.After(markSync)
			}
		case <-due:
			due = nil
			if err := g.w.mark.sync(); err != nil {
				_ = g.w.markFault(err)
			}
		}
	}
}

func (g *guard) close() {
	close(g.stop)
	<-g.ended
}
