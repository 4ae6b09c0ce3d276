package edge

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"
)

// NoticePrefix begins the type of every event that the node itself makes.
const NoticePrefix = "fencepost."

// Notice is something about the node that people may want to know. It becomes an
// ordinary event of source fencepost/ and the node's id, which routes can send
// anywhere.
type Notice struct {
	Type    string // after [NoticePrefix]
	ID      string // names the fact: telling the same again changes nothing
	Subject string
	Data    any // becomes JSON
}

// NoticeSource is the source of the events that the engine makes of notices. No
// one else may use it, in whatever case: not producers, nor follow-up events.
func (e *Engine) NoticeSource() string { return "fencepost/" + e.store.Node() }

// Notify accepts an event that says n, in the background and in the order of the
// calls. It does not wait; a store that is unavailable is asked again until the
// engine stops. What may be told once only should therefore be remembered until
// it was stored, and be told again, under the same ID, after a restart.
func (e *Engine) Notify(n Notice) {
	data, err := json.Marshal(n.Data)
	if err != nil {
		e.log.Error("notice cannot be told", "type", n.Type, "id", n.ID, "err", err)
		return
	}
	ev := Event{
		Source: e.NoticeSource(), ID: n.ID, Type: NoticePrefix + n.Type, Subject: n.Subject,
		Time:        time.UnixMilli(e.clock.NowMS()).UTC().Format(time.RFC3339Nano),
		ContentType: "application/json", Data: data,
	}
	e.notices.add(e, func(ctx context.Context) error { return e.acceptNotice(ctx, ev) })
}

// acceptNotice stores one notice. One that was told before is told.
func (e *Engine) acceptNotice(ctx context.Context, ev Event) error {
	sub, err := e.submission(ev)
	if err != nil {
		e.log.Error("notice cannot be told", "type", ev.Type, "id", ev.ID, "err", err)
		return nil
	}
	sub.Exempt = true // few by construction, and what tells of a full backlog
	answers, err := e.store.Accept(ctx, []Submission{sub})
	if err == nil {
		err = answers[0].Err
	}
	if err == nil || errors.Is(err, ErrConflict) {
		e.expireWith([]Submission{sub})
		e.logUnplaced([]Submission{sub}, answers)
		return nil
	}
	return err
}

// notices are the steps that wait to be done, one after the other, by a goroutine
// that exists only while there are some.
type notices struct {
	mu   sync.Mutex
	list []func(context.Context) error
	busy bool
	idle chan struct{} // closed when not busy; nil when nobody waits
}

// maxNotices bounds what waits for a store that takes nothing.
const maxNotices = 1000

func (q *notices) add(e *Engine, step func(context.Context) error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.list) >= maxNotices {
		e.log.Error("notice is dropped: too many wait for the store")
		return
	}
	q.list = append(q.list, step)
	if !q.busy {
		q.busy = e.spawn(func() { q.run(e) })
	}
}

func (q *notices) next() func(context.Context) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.list) > 0 {
		step := q.list[0]
		q.list = q.list[1:]
		return step
	}
	q.busy = false
	if q.idle != nil {
		close(q.idle)
		q.idle = nil
	}
	return nil
}

func (q *notices) run(e *Engine) {
	for step := q.next(); step != nil; step = q.next() {
		for pause := holdFirst; ; pause = min(2*pause, holdMost) {
			ctx, cancel := context.WithTimeout(e.bg, storeTimeout)
			err := step(ctx)
			cancel()
			if err == nil {
				break
			}
			if definite(err) || e.bg.Err() != nil {
				e.storeFault("notice", err)
				break
			}
			if !sleep(e.bg, pause) {
				break
			}
		}
	}
}

// wait returns when all is done, or after d.
func (q *notices) wait(d time.Duration) {
	q.mu.Lock()
	if !q.busy {
		q.mu.Unlock()
		return
	}
	if q.idle == nil {
		q.idle = make(chan struct{})
	}
	idle := q.idle
	q.mu.Unlock()
	<-sooner(idle, d)
}
