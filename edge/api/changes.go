package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"fencepost/edge"
)

// Change is one line of the stream of changes. Exactly one of three kinds: a
// committed change (Delivery is set), a gap (changes were missed: read again), or
// the end (the node stops).
type Change struct {
	Seq      uint64       `json:"seq,omitempty"` // of this opening of the store
	At       Stamp        `json:"at,omitzero"`
	Delivery string       `json:"delivery,omitempty"`
	Event    string       `json:"event,omitempty"`
	Target   string       `json:"target,omitempty"`
	State    edge.State   `json:"state,omitempty"`
	Code     string       `json:"code,omitempty"`
	Fence    int64        `json:"fence,omitempty"` // the execution, when one is involved
	Outcome  edge.Outcome `json:"outcome,omitempty"`
	Attempts int          `json:"attempts,omitempty"`
	DueAt    Stamp        `json:"due_at,omitzero"` // of a pending one
	Gap      string       `json:"gap,omitempty"`
	End      string       `json:"end,omitempty"`
}

// What a stream says of itself.
const (
	gapText = "changes were missed, read the state again"
	endText = "the node stops"
)

// writeChange bounds the writing of one line: a reader that does not read is cut.
const writeChange = 30 * time.Second

// beat is how often a quiet stream writes an empty line, which a reader skips.
const beat = 15 * time.Second

// changes streams committed changes as JSON, one a line, until the caller goes or
// the node stops. The filters are handler, target, state, code, event, delivery.
func (l *local) changes(w http.ResponseWriter, r *http.Request) {
	pick, err := l.changeFilter(r)
	if err != nil {
		l.faults.answer(w, r, err)
		return
	}
	sub := l.node.Subscribe(0)
	defer sub.Close()
	h := w.Header()
	h.Set("Content-Type", "application/x-ndjson")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	out := &lines{w: w, c: http.NewResponseController(w)}
	_ = out.c.SetReadDeadline(time.Time{}) // the limit of a request is none for a stream
	w.WriteHeader(http.StatusOK)
	if out.flush() != nil {
		return
	}
	for {
		wait, cancel := context.WithTimeoutCause(r.Context(), beat, errBeat)
		c, err := sub.Next(wait)
		cancel()
		switch {
		case err == nil:
			if pick(c) {
				err = out.write(l.form().change(c))
			}
		case errors.Is(err, edge.ErrGap):
			err = out.write(Change{Gap: gapText})
		case errors.Is(err, edge.ErrClosed):
			_ = out.write(Change{End: endText})
			return
		case errors.Is(err, errBeat):
			err = out.blank()
		}
		if err != nil {
			return // the caller is gone
		}
	}
}

var errBeat = errors.New("nothing happened for a while")

func (l *local) changeFilter(r *http.Request) (func(edge.Change) bool, error) {
	q := readQuery(r, "handler", "target", "state", "code", "event", "delivery")
	handler, code, target, state := q.text("handler"), q.text("code"), q.target("target"), q.state("state")
	event := edge.EventID(q.id("event", edge.KindEvent, l.node.Names()))
	delivery := edge.DeliveryID(q.id("delivery", edge.KindDelivery, l.node.Names()))
	return func(c edge.Change) bool {
		return (handler == "" || c.Target.Handler == handler) && (target == nil || c.Target == *target) &&
			(state == "" || c.State == state) && (code == "" || c.Code == code) &&
			(event == 0 || c.Event == event) && (delivery == 0 || c.Delivery == delivery)
	}, q.err
}

func (f form) change(c edge.Change) Change {
	return Change{
		Seq: c.Seq, At: Stamp(c.AtMS), Delivery: f.deliveryID(c.Delivery), Event: f.names.Format(edge.KindEvent, int64(c.Event)),
		Target: c.Target.String(), State: c.State, Code: c.Code, Fence: int64(c.Execution), Outcome: c.Outcome,
		Attempts: c.Attempts, DueAt: Stamp(c.DueMS),
	}
}

// lines writes JSON, one value a line, each within its own time.
type lines struct {
	w http.ResponseWriter
	c *http.ResponseController
}

func (l *lines) write(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_ = l.c.SetWriteDeadline(time.Now().Add(writeChange))
	if _, err := l.w.Write(append(text, '\n')); err != nil {
		return err
	}
	return l.flush()
}

func (l *lines) blank() error {
	_ = l.c.SetWriteDeadline(time.Now().Add(writeChange))
	if _, err := l.w.Write([]byte("\n")); err != nil {
		return err
	}
	return l.flush()
}

func (l *lines) flush() error { return l.c.Flush() }

// ListChanges are the filters of the stream of changes.
type ListChanges struct {
	Handler, Target, State, Code, Event, Delivery string
}

// maxLine is the limit of one line of the stream.
const maxLine = 64 << 10

// Changes gives every committed change to fn as it happens, until ctx is done,
// fn fails, or the stream ends: with the node's word, or cut. The error of an end
// wraps [ErrNoNode]. subscribed, when not nil, is called once the stream stands.
func (c *Client) Changes(ctx context.Context, f ListChanges, subscribed func(), fn func(Change) error) error {
	q := url.Values{}
	for name, value := range map[string]string{
		"handler": f.Handler, "target": f.Target, "state": f.State, "code": f.Code, "event": f.Event, "delivery": f.Delivery,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url("/v1/changes?"+q.Encode()), nil)
	if err != nil {
		return err
	}
	resp, err := c.open(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if subscribed != nil {
		subscribed()
	}
	in := bufio.NewScanner(resp.Body)
	in.Buffer(nil, maxLine)
	for in.Scan() {
		if len(in.Bytes()) == 0 {
			continue
		}
		var ch Change
		if err := json.Unmarshal(in.Bytes(), &ch); err != nil {
			return fmt.Errorf("the stream of the node is not understood; are both of one version? %w", err)
		}
		if ch.End != "" {
			return fmt.Errorf("%w any more: it has stopped. Start one with fencepost serve", ErrNoNode)
		}
		if err := fn(ch); err != nil {
			return err
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return fmt.Errorf("%w any more: the stream was cut. Start one with fencepost serve", ErrNoNode)
}
