package command

import (
	"os"
	"sync"
	"time"
)

// output reads all that a program writes and keeps the beginning, so that the
// program never waits for us.
type output struct {
	file  *os.File
	limit int
	done  chan struct{}

	mu        sync.Mutex
	text      []byte
	truncated bool
}

func collect(file *os.File, limit int) *output {
	o := &output{file: file, limit: limit, done: make(chan struct{})}
	go o.read()
	return o
}

func (o *output) read() {
	defer close(o.done)
	buf := make([]byte, 32<<10)
	for {
		n, err := o.file.Read(buf)
		o.keep(buf[:n])
		if err != nil {
			return
		}
	}
}

func (o *output) keep(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	room := o.limit - len(o.text)
	if len(b) > room {
		b, o.truncated = b[:room], true
	}
	o.text = append(o.text, b...)
}

// finish returns what was kept. When someone else still holds the output open,
// it is cut after a while.
func (o *output) finish(wait time.Duration) (text []byte, truncated bool) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	cut := false
	select {
	case <-o.done:
	case <-timer.C:
		cut = true
		_ = o.file.Close() // ends the reading
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text[:len(o.text):len(o.text)], o.truncated || cut
}
