package sqlite

import (
	"fencepost/edge"

	"github.com/jmoiron/sqlx"
)

// aside is work for the write connection that is not a transaction of the store,
// such as a step of a backup. The writer does it between two commits.
type aside struct {
	run  func(conn *sqlx.Conn) error
	last bool // run it even when the store has failed: it gives something up
	err  error
	done chan struct{}
}

// doAside lets the writer run fn between two commits. It must be short.
func (w *writer) doAside(fn func(conn *sqlx.Conn) error) error { return w.queueAside(&aside{run: fn}) }

// endAside lets the writer give up what an aside began.
func (w *writer) endAside(fn func() error) error {
	return w.queueAside(&aside{run: func(*sqlx.Conn) error { return fn() }, last: true})
}

func (w *writer) queueAside(a *aside) error {
	a.done = make(chan struct{})
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return edge.ErrClosed
	}
	w.asides = append(w.asides, a)
	w.mu.Unlock()
	w.poke()
	<-a.done
	return a.err
}

// runAsides runs what waits beside the operations.
func (w *writer) runAsides() {
	w.mu.Lock()
	waiting := w.asides
	w.asides = nil
	w.mu.Unlock()
	for _, a := range waiting {
		if a.err = w.err(); a.err == nil || a.last {
			a.err = a.run(w.conn)
		}
		close(a.done)
	}
}
