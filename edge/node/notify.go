package node

import (
	"context"
	"fmt"
	"time"
)

// attend tells the service manager how the node is until over is done: ready when
// recovery has finished, alive while the database answers, stopping when ctx is
// done. A sign of life needs an answer of reader and writer, so a node whose
// writer hangs is ended and started again by the manager.
func (n *Node) attend(ctx, over context.Context) {
	tell := n.o.Notify
	if tell == nil {
		return
	}
	alive, stopTicks := ticks(tell.Watchdog())
	defer stopTicks()
	begun, asked := n.engine.Started(), ctx.Done()
	for {
		select {
		case <-begun:
			begun = nil
			tell.Ready(n.statusLine())
		case <-asked:
			asked = nil
			tell.Stopping(n.conf().Node.ShutdownGrace + stopMargin)
		case <-alive:
			if n.answers(over, tell.Watchdog()/2) {
				tell.Alive(n.statusLine())
			}
		case <-over.Done():
			if asked != nil && ctx.Err() != nil { // an idle node ends so soon that both are ready
				tell.Stopping(n.conf().Node.ShutdownGrace + stopMargin)
			}
			return
		}
	}
}

// stopMargin is how long a stop may take beside the grace: running work is cut,
// its end is stored, and the store closes.
const stopMargin = 30 * time.Second

// ticks come often enough that one may be late; never when nobody watches.
func ticks(watchdog time.Duration) (<-chan time.Time, func()) {
	if watchdog <= 0 {
		return nil, func() {}
	}
	t := time.NewTicker(max(watchdog/3, time.Millisecond))
	return t.C, t.Stop
}

// answers reports whether the database answers within most.
func (n *Node) answers(ctx context.Context, most time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- n.door().Probe(ctx) }()
	select {
	case err := <-done:
		if err != nil && ctx.Err() == nil {
			n.log.Warn("no sign of life for the service manager: the database does not answer", "err", err)
		}
		return err == nil
	case <-ctx.Done():
		n.log.Warn("no sign of life for the service manager: the database does not answer", "waited_ms", most.Milliseconds())
		return false
	}
}

// statusLine is what systemctl status shows.
func (n *Node) statusLine() string {
	if err := n.engine.Ready(); err != nil {
		return "not ready: " + err.Error()
	}
	s := n.engine.Status()
	line := fmt.Sprintf("delivering: %d running", s.Live)
	if s.Held > 0 {
		line += fmt.Sprintf(", %d results wait for the disk", s.Held)
	}
	if s.Doubted {
		line += ", the clock is doubted (fencepost clock)"
	}
	return line
}

// notifying runs attend and returns its end.
func (n *Node) notifying(ctx context.Context) (end func()) {
	over, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.attend(ctx, over)
	}()
	return func() {
		stop()
		<-done
	}
}
