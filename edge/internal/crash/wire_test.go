package crash_test

import (
	"bufio"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// wire is a receiver that keeps each request as it was on the wire and answers with
// what the test says.
type wire struct {
	net.Listener
	answer func(path string) string
	reply  func(net.Conn) // in place of answer; set before the first request

	mu       sync.Mutex
	requests []wireRequest
}

// wireRequest is a request: the lines of its head, and its body.
type wireRequest struct {
	head []string
	body string
}

func newWire(t *testing.T, answer func(path string) string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &wire{Listener: l, answer: answer}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { w.serve(c) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); serving.Wait() })
	return w
}

// serve reads one request by its own rules, which are as simple as those of the
// worst of receivers: a line ends at LF, and the body has the length that was told.
func (w *wire) serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	var r wireRequest
	length := 0
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimSuffix(line, "\n")
		if line = strings.TrimSuffix(line, "\r"); line == "" {
			break
		}
		r.head = append(r.head, line)
		if v, ok := strings.CutPrefix(line, "Content-Length: "); ok {
			if length, err = strconv.Atoi(v); err != nil {
				return
			}
		}
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(in, body); err != nil || len(r.head) == 0 {
		return
	}
	r.body = string(body)
	w.mu.Lock()
	w.requests = append(w.requests, r)
	w.mu.Unlock()
	if w.reply != nil {
		w.reply(c)
		return
	}
	path := strings.Split(r.head[0]+"  ", " ")[1]
	_, _ = io.WriteString(c, w.answer(path)) // a sender that is gone does not matter
}

func (w *wire) all() []wireRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]wireRequest(nil), w.requests...)
}

// header is the value of a header of a request, "" without it.
func (r wireRequest) header(name string) string {
	for _, line := range r.head[1:] {
		if k, v, _ := strings.Cut(line, ":"); strings.EqualFold(k, name) {
			return strings.TrimPrefix(v, " ")
		}
	}
	return ""
}
