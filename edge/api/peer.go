package api

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/user"
	"slices"
	"strconv"
	"sync"
)

// peer is who is at the other end of a connection to the socket, as the kernel
// says: who they were when they connected.
type peer struct {
	uid    int
	groups []int // the primary one and all others
}

// name is the account name, or the number when it has none.
func (p peer) name() string {
	if u, err := user.LookupId(strconv.Itoa(p.uid)); err == nil && u.Username != "" {
		return u.Username
	}
	return fmt.Sprintf("uid %d", p.uid)
}

// peerConn is a connection whose other end is known.
type peerConn struct {
	net.Conn
	peer    peer
	allowed bool
}

// peerListener asks the kernel about each connection. The modes of the socket
// file already keep others out; this holds also when they were loosened.
type peerListener struct {
	net.Listener
	group int // members may use the socket; -1: nobody but root and our user
}

// Accept returns the next connection. One that may not use the socket is
// returned too, so that it gets an answer that says so.
func (l *peerListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	p, known, err := peerOf(c)
	switch {
	case err != nil: // it is gone already, or cannot be told: nobody is let in
		return &peerConn{Conn: c, peer: peer{uid: -1}}, nil
	case !known:
		return c, nil
	}
	return &peerConn{Conn: c, peer: p, allowed: l.allows(p)}, nil
}

func (l *peerListener) allows(p peer) bool {
	return p.uid == 0 || p.uid == os.Geteuid() || l.group >= 0 && slices.Contains(p.groups, l.group)
}

type peerKey struct{}

// withPeer keeps the peer of a connection for its requests.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	if pc, ok := c.(*peerConn); ok {
		return context.WithValue(ctx, peerKey{}, pc)
	}
	return ctx
}

// peerFrom is the peer of a request; nil where the system does not tell, or when
// it did not come over the socket.
func peerFrom(ctx context.Context) *peerConn {
	pc, _ := ctx.Value(peerKey{}).(*peerConn)
	return pc
}

// decidedBy is who decided, for the record: the account that the kernel names.
// Who says another name has both recorded.
func decidedBy(r *http.Request, says string) string {
	pc := peerFrom(r.Context())
	if pc == nil {
		return says
	}
	name := pc.peer.name()
	if says == "" || says == name {
		return name
	}
	return says + " (as " + name + ")"
}

// doorkeeper refuses requests of peers that may not use the socket.
type doorkeeper struct {
	logger *slog.Logger
	next   http.Handler

	mu   sync.Mutex
	told map[int]bool // users of whom the log knows
}

// ServeHTTP answers 403 to them.
func (d *doorkeeper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	pc := peerFrom(r.Context())
	if pc == nil || pc.allowed {
		d.next.ServeHTTP(w, r)
		return
	}
	if d.first(pc.peer.uid) {
		d.logger.Warn("a user was refused at the socket", "user", pc.peer.name())
	}
	w.Header().Set("Connection", "close")
	writeProblem(w, r, NewProblem(CodeForbidden, "this node answers to its own user, to root, and to the members of http.socket_group: ask the operator to add "+pc.peer.name()+" to that group"))
}

// first reports whether a user is refused for the first time. So many are told
// of and no more: whoever is refused must not be able to fill the log.
func (d *doorkeeper) first(uid int) bool {
	const most = 100
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.told[uid] || len(d.told) >= most {
		return false
	}
	d.told[uid] = true
	return true
}
