package node

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	"fencepost/edge/api"
)

// server is one listener with its HTTP server. Its methods do nothing on nil.
type server struct {
	l    net.Listener
	http *http.Server

	handler *switchable
}

func newServer(l net.Listener, h http.Handler, log *slog.Logger, t api.Timeouts) *server {
	s := &switchable{}
	s.set(h)
	return &server{l: l, http: api.NewServer(s, log, t), handler: s}
}

// drain is how long requests under way may take once the node stops.
const drain = time.Second

// shutdown takes no more requests and waits for those under way, for a bounded
// time.
func (s *server) shutdown() {
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close()
	}
}

func (s *server) close() {
	if s == nil {
		return
	}
	_ = s.http.Close()
	_ = s.l.Close() // when it was never served
}
