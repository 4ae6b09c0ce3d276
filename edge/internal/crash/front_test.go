package crash_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// front stands before a node and breaks the promise on purpose: it acknowledges
// each event at once and hands it on later, from memory.
type front struct {
	addr  string
	l     *load
	token string

	mu      sync.Mutex
	queue   []sent
	dropped int
}

func newFront(t *testing.T, l *load) *front {
	t.Helper()
	f := &front{l: l, token: l.n.token()}
	server := httptest.NewServer(f)
	f.addr = strings.TrimPrefix(server.URL, "http://")
	stop := make(chan struct{})
	var goes sync.WaitGroup
	goes.Go(func() {
		tick := time.NewTicker(25 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				f.handOn()
			case <-stop:
				return
			}
		}
	})
	t.Cleanup(func() {
		close(stop)
		goes.Wait()
		server.CloseClientConnections()
		server.Close()
	})
	return f
}

// ServeHTTP acknowledges what it has only in memory.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	h := r.Header
	f.mu.Lock()
	f.queue = append(f.queue, sent{
		source: h.Get("Ce-Source"), id: h.Get("Ce-Id"), kind: h.Get("Ce-Type"), subject: h.Get("Ce-Subject"), body: string(body),
	})
	f.mu.Unlock()
	w.WriteHeader(http.StatusAccepted)
	_, _ = io.WriteString(w, "{}")
}

// handOn stores one event in the node, if it can.
func (f *front) handOn() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.queue) == 0 {
		return
	}
	e := f.queue[0]
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if status, err := post(ctx, f.l.n.http, *f.l.n.addr.Load(), f.token, &e); err == nil && status/100 == 2 {
		f.queue = f.queue[1:]
	}
}

func (f *front) held() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.queue)
}

// crash loses what is in memory, as the death of its process would.
func (f *front) crash() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dropped += len(f.queue)
	f.queue = nil
}

// flush hands on what is left.
func (f *front) flush() {
	for f.held() > 0 {
		f.handOn()
	}
}
