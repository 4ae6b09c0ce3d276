package api

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"fencepost/edge"
)

func (l *local) status(*http.Request) (any, error) { return l.node.Status(), nil }

func (l *local) delivery(r *http.Request) (any, error) {
	id, err := l.pathID(r)
	if err != nil {
		return nil, err
	}
	d, err := l.node.Delivery(r.Context(), id)
	if err != nil {
		return nil, err
	}
	executions, err := l.node.Executions(r.Context(), id)
	if err != nil {
		return nil, err
	}
	f := l.form()
	detail := DeliveryDetail{Delivery: f.delivery(d), Executions: each(executions, f.execution)}
	ev, err := l.node.Event(r.Context(), d.Event)
	switch {
	case err == nil:
		detail.Event = f.event(ev)
	case !errors.Is(err, edge.ErrNotFound):
		return nil, err
	}
	return detail, nil
}

func (l *local) handlers(r *http.Request) (any, error) {
	found, err := l.node.Handlers(r.Context())
	if err != nil {
		return nil, err
	}
	return each(found, l.form().handler), nil
}

func (l *local) counters(r *http.Request) (any, error) {
	c, err := l.node.Counters(r.Context())
	if c == nil && err == nil {
		c = map[string]int64{}
	}
	return c, err
}

// Explanation says why a delivery is where it is.
type Explanation struct {
	Delivery Delivery `json:"delivery"`
	Text     []string `json:"text"` // sentences: why, what happens next, what a person can do
	Target   Target   `json:"target"`
	Handler  Handler  `json:"handler"`
	Head     string   `json:"head,omitempty"` // first open delivery of the line, when it is another
	Ahead    int      `json:"ahead"`
	Newer    string   `json:"newer,omitempty"` // the generation that a redrive made of it
}

func (l *local) explain(r *http.Request) (any, error) {
	id, err := l.pathID(r)
	if err != nil {
		return nil, err
	}
	facts, err := l.node.Facts(r.Context(), id)
	if err != nil {
		return nil, err
	}
	f := l.form()
	text := edge.Explain(facts, l.node.Clock().NowMS())
	if st := l.node.Status(); st.Owner != "" { // who that is
		text = strings.ReplaceAll(text, "Owner "+st.Owner+" holds", fmt.Sprintf("Owner %s (this node, process %d) holds", st.Owner, st.PID))
	}
	x := Explanation{
		Delivery: f.delivery(facts.Delivery),
		Text:     strings.Split(strings.TrimSpace(text), "\n"),
		Target:   f.target(facts.Target), Handler: f.handler(facts.Handler),
		Ahead: facts.Ahead, Newer: f.deliveryID(facts.Newer),
	}
	if facts.Head != nil {
		x.Head = f.deliveryID(facts.Head.ID)
	}
	return x, nil
}
