package api

import (
	"container/list"
	"context"
	"net"
	"sync"
)

// DefaultConnections is how many connections a listener holds at once.
const DefaultConnections = 1024

// LimitListener bounds the connections of l to most; 0 means
// [DefaultConnections]. When they are all taken, the one that has been waiting
// longest for the rest of its request, or for its next one, is closed for the
// newcomer; a connection whose request is complete is never closed for another.
// When every connection is busy with a complete request, the newcomer is closed.
// So a crowd of half-open connections cannot keep others out.
func LimitListener(l net.Listener, most int) net.Listener {
	if most <= 0 {
		most = DefaultConnections
	}
	return &limitListener{Listener: l, most: most, idle: list.New()}
}

type limitListener struct {
	net.Listener
	most int

	mu   sync.Mutex
	open int
	idle *list.List // of *limitedConn that may be closed, longest waiting first
}

// limitedConn is one of the connections of a limitListener.
type limitedConn struct {
	net.Conn
	l      *limitListener
	place  *list.Element // in l.idle; nil while busy or closed
	closed bool
}

// Accept returns the next connection that there is room for.
func (l *limitListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if lc := l.admit(c); lc != nil {
			return lc, nil
		}
		_ = c.Close()
	}
}

func (l *limitListener) admit(c net.Conn) *limitedConn {
	l.mu.Lock()
	var victim *limitedConn
	if l.open >= l.most {
		front := l.idle.Front()
		if front == nil {
			l.mu.Unlock()
			return nil
		}
		victim = front.Value.(*limitedConn)
		victim.leaveLocked()
	}
	lc := &limitedConn{Conn: c, l: l}
	lc.place = l.idle.PushBack(lc)
	l.open++
	l.mu.Unlock()
	if victim != nil {
		_ = victim.Conn.Close()
	}
	return lc
}

// Close closes the connection and gives its place back.
func (c *limitedConn) Close() error {
	c.l.mu.Lock()
	c.leaveLocked()
	c.l.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite ends the sending side, so that a caller who is still sending gets
// the answer before the connection is gone.
func (c *limitedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// leaveLocked gives the place back, once.
func (c *limitedConn) leaveLocked() {
	if c.closed {
		return
	}
	c.closed = true
	c.l.open--
	if c.place != nil {
		c.l.idle.Remove(c.place)
		c.place = nil
	}
}

// busy says that a whole request has come: the connection is not closed for
// another.
func (c *limitedConn) busy() {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if c.place != nil {
		c.l.idle.Remove(c.place)
		c.place = nil
	}
}

// waiting says that the connection has been answered.
func (c *limitedConn) waiting() {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if !c.closed && c.place == nil {
		c.place = c.l.idle.PushBack(c)
	}
}

// connKey is the context key of a request's limitedConn.
type connKey struct{}

// received marks the connection of a request as having sent all of it.
func received(ctx context.Context) {
	if c, ok := ctx.Value(connKey{}).(*limitedConn); ok {
		c.busy()
	}
}
