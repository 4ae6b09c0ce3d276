package crash_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	// lifeVariable carries the name of a process to what it starts and sends.
	lifeVariable = "CRASH_LIFE"
	lifeHeader   = "Crash-Life"
)

// arrival is one request of a webhook, as the receiver saw it.
type arrival struct {
	life     string // process that sent it
	key      string
	target   string
	delivery string
	event    string // CloudEvents id
	kind     string // CloudEvents type
	fence    int64
	attempt  int
	tries    int // arrivals of the key, this one included
	at       time.Time
	ended    time.Time // zero while it is open
	status   int       // what was answered; 0 = the sender went away first
	applied  bool      // a receiver that refuses stale fences would have done it
	refused  bool      // it would have refused it
}

// answerer decides the answer to a request. It may wait for done; what it
// answers after that reaches nobody.
type answerer func(done <-chan struct{}, a arrival) int

// receiver is a webhook's receiver. It keeps a ledger of every request and
// watches the rules that can be seen only while requests are open.
type receiver struct {
	server *httptest.Server
	answer answerer
	after  func(a arrival) // called when the answer has been sent; may be nil

	mu       sync.Mutex
	arrivals []*arrival
	open     map[string][]*arrival // by target
	highest  map[string]int64      // highest fence that was seen, by target
	keys     map[string]int        // arrivals by key
	faults   []string
	ghosts   int // requests of dead processes that were read late
	most     int // requests open at once
}

func newReceiver(t *testing.T, answer answerer) *receiver {
	t.Helper()
	r := &receiver{answer: answer, open: map[string][]*arrival{}, highest: map[string]int64{}, keys: map[string]int{}}
	r.server = httptest.NewServer(r)
	t.Cleanup(func() {
		r.server.CloseClientConnections()
		r.server.Close()
	})
	return r
}

// webhook is a handler's configuration that sends to r.
func (r *receiver) webhook(name string, lines ...string) string {
	return fmt.Sprintf("[[handler]]\nname = %q\nkind = \"webhook\"\nurl = %q\nallow_addresses = [\"127.0.0.0/8\"]\nheaders = { %s = \"env:%s\" }\n%s\n",
		name, r.server.URL+"/", lifeHeader, lifeVariable, strings.Join(lines, "\n"))
}

// route is the configuration of a route to a handler, one line for each subject.
func route(handler, pattern string) string {
	return fmt.Sprintf("[[route]]\nname = %q\ntype = %q\nhandler = %q\nkey = \"subject\"\n", handler+"-"+strings.Trim(pattern, ".*"), pattern, handler)
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	// Only behind a body that was read does a server notice that its client has
	// gone away.
	if _, err := io.Copy(io.Discard, req.Body); err != nil {
		return // cut before it was whole: nothing has arrived
	}
	h := req.Header
	fence, _ := strconv.ParseInt(h.Get("Fencepost-Fence"), 10, 64)
	attempt, _ := strconv.Atoi(h.Get("Fencepost-Attempt"))
	a := &arrival{
		life: h.Get(lifeHeader), key: h.Get("Webhook-Id"), target: h.Get("Fencepost-Target"), delivery: h.Get("Fencepost-Delivery"),
		event: h.Get("Ce-Id"), kind: h.Get("Ce-Type"), fence: fence, attempt: attempt, at: time.Now(),
	}
	if !r.begin(a, req.Context()) {
		return
	}
	status := r.answer(req.Context().Done(), *a)
	if req.Context().Err() != nil {
		status = 0
	}
	r.end(a, status)
	if status == 0 {
		return
	}
	w.WriteHeader(status)
	if r.after != nil {
		_ = http.NewResponseController(w).Flush() // a sender that is gone does not matter
		r.after(*a)
	}
}

// begin writes an arrival down and judges it. It reports false for a request of
// a process that was dead before a later one's arrived: it had been sent in time
// and was only read late.
func (r *receiver) begin(a *arrival, ctx context.Context) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.fence <= r.highest[a.target] && r.sentByTheDead(a) {
		r.mu.Unlock()
		gone := within(ctx.Done(), 5*time.Second)
		r.mu.Lock()
		if gone {
			r.ghosts++
			return false
		}
	}
	if a.key == "" || a.fence == 0 || a.life == "" {
		r.faults = append(r.faults, fmt.Sprintf("a request without key, fence or life: %+v", *a))
	}
	if a.fence <= r.highest[a.target] {
		r.faults = append(r.faults, fmt.Sprintf("%s: fence %d arrived after fence %d", a.target, a.fence, r.highest[a.target]))
	}
	for _, o := range r.open[a.target] {
		if o.life == a.life {
			r.faults = append(r.faults, fmt.Sprintf("%s: requests %d and %d of %s were open at once", a.target, o.fence, a.fence, a.life))
		}
	}
	r.highest[a.target] = max(r.highest[a.target], a.fence)
	r.keys[a.key]++
	a.tries = r.keys[a.key]
	r.arrivals = append(r.arrivals, a)
	r.open[a.target] = append(r.open[a.target], a)
	r.most = max(r.most, r.openLocked())
	return true
}

// sentByTheDead reports whether a later life of the same node has been heard on
// the target.
func (r *receiver) sentByTheDead(a *arrival) bool {
	node, _, _ := strings.Cut(a.life, "-")
	for i := len(r.arrivals) - 1; i >= 0; i-- {
		if b := r.arrivals[i]; b.target == a.target && strings.HasPrefix(b.life, node+"-") && b.life > a.life {
			return true
		}
	}
	return false
}

func (r *receiver) end(a *arrival, status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a.ended, a.status = time.Now(), status
	if status >= 200 && status < 300 {
		a.refused = a.fence < r.highest[a.target]
		a.applied = !a.refused
	}
	left := r.open[a.target][:0]
	for _, o := range r.open[a.target] {
		if o != a {
			left = append(left, o)
		}
	}
	r.open[a.target] = left
}

func (r *receiver) openLocked() int {
	n := 0
	for _, o := range r.open {
		n += len(o)
	}
	return n
}

// ledger is a copy of all arrivals so far, in the order of their arrival, that
// keep selects; nil selects all.
func (r *receiver) ledger(keep func(arrival) bool) []arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []arrival
	for _, a := range r.arrivals {
		if keep == nil || keep(*a) {
			out = append(out, *a)
		}
	}
	return out
}

// count is how many arrivals keep selects.
func (r *receiver) count(keep func(arrival) bool) int { return len(r.ledger(keep)) }

// broken are the rules that were seen broken.
func (r *receiver) broken() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.faults...)
}

// within reports whether c was closed before d was over.
func within(c <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c:
		return true
	case <-t.C:
		return false
	}
}

// always answers with one status.
func always(status int) answerer {
	return func(<-chan struct{}, arrival) int { return status }
}

// numberOf is the number at the end of a public id.
func numberOf(id string) int64 {
	n, _ := strconv.ParseInt(id[strings.LastIndexByte(id, '-')+1:], 10, 64)
	return n
}
