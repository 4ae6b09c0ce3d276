package edgetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
)

// History judges what a store committed and what handlers were given:
//
//   - a final delivery never changes again;
//   - fences only grow, per strict target and per delivery;
//   - a strict target never has two deliveries under way at once;
//   - the starts of a strict target follow the line: none while one before it
//     is open;
//   - the effect of an event for a target is done once, unless asked for again.
//
// It may be fed from many goroutines; changes must come in commit order.
type History struct {
	mu      sync.Mutex
	changes []edge.Change
	began   []edge.Claim
}

// NewHistory returns an empty history.
func NewHistory() *History { return &History{} }

// Record adds committed changes. It fits [edge.Store.Watch].
func (h *History) Record(cs []edge.Change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changes = append(h.changes, cs...)
}

// Began adds a call of a handler. [Script] does it for each of its calls when
// it was given the history.
func (h *History) Began(c *edge.Claim) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.began = append(h.began, *c)
}

// Check fails the test when the history breaks a rule. s is asked for the place
// in line of each delivery.
func (h *History) Check(t testing.TB, s edge.Reader) {
	t.Helper()
	found, err := h.Faults(context.WithoutCancel(t.Context()), s)
	require.NoError(t, err)
	require.Empty(t, found, "the history breaks rules")
}

// Faults lists the broken rules.
func (h *History) Faults(ctx context.Context, s edge.Reader) ([]string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	j := judge{
		rows:  map[edge.DeliveryID]edge.Delivery{},
		state: map[edge.DeliveryID]edge.State{},
		fence: map[string]edge.ExecutionID{},
		done:  map[consumption]edge.DeliveryID{},
	}
	for _, c := range h.changes {
		if _, known := j.rows[c.Delivery]; known {
			continue
		}
		d, err := s.Delivery(ctx, c.Delivery)
		if err != nil && !errors.Is(err, edge.ErrNotFound) { // what was pruned has no line any more
			return nil, fmt.Errorf("delivery %d of the history: %w", c.Delivery, err)
		}
		j.rows[c.Delivery] = d
	}
	for _, c := range h.changes {
		j.change(c)
	}
	j.calls(h.began)
	return j.found, nil
}

// judge walks through a history.
type judge struct {
	rows  map[edge.DeliveryID]edge.Delivery
	state map[edge.DeliveryID]edge.State // of those that have appeared
	fence map[string]edge.ExecutionID    // the highest of a scope
	done  map[consumption]edge.DeliveryID
	found []string
}

func (j *judge) wrong(format string, args ...any) {
	j.found = append(j.found, fmt.Sprintf(format, args...))
}

func (j *judge) change(c edge.Change) {
	was := j.state[c.Delivery]
	if was.Final() {
		j.wrong("delivery %d was %s and became %s", c.Delivery, was, c.State)
	}
	j.state[c.Delivery] = c.State
	working := was == edge.Leased || was == edge.Running
	if !working && (c.State == edge.Leased || c.State == edge.Running) {
		j.claimed(c)
	}
	d := j.rows[c.Delivery]
	if c.State == edge.Succeeded && c.Code != edge.CodeAlreadyConsumed && !d.Again {
		at := consumption{c.Event, c.Target}
		if first, twice := j.done[at]; twice {
			j.wrong("event %d succeeded twice for %s: deliveries %d and %d", c.Event, c.Target, first, c.Delivery)
		}
		j.done[at] = c.Delivery
	}
}

// claimed judges the beginning of an execution.
func (j *judge) claimed(c edge.Change) {
	d := j.rows[c.Delivery]
	j.grows(scope(d.Ordered, c.Target, c.Delivery), c.Execution)
	if !d.Ordered {
		return
	}
	for id, state := range j.state {
		o := j.rows[id]
		if id == c.Delivery || !o.Ordered || o.Target != c.Target || state.Final() {
			continue
		}
		switch {
		case state == edge.Leased || state == edge.Running:
			j.wrong("target %s: delivery %d was claimed while %d was %s", c.Target, c.Delivery, id, state)
		case o.Line < d.Line:
			j.wrong("target %s: delivery %d was claimed while %d, before it in line, was %s", c.Target, c.Delivery, id, state)
		}
	}
}

func scope(ordered bool, target edge.Target, id edge.DeliveryID) string {
	if ordered {
		return target.String()
	}
	return fmt.Sprint("delivery ", id)
}

func (j *judge) grows(scope string, e edge.ExecutionID) {
	if e <= j.fence[scope] {
		j.wrong("%s: fence %d came after %d", scope, e, j.fence[scope])
	}
	j.fence[scope] = max(j.fence[scope], e)
}

// calls judges the fences in the order in which handlers saw them.
func (j *judge) calls(began []edge.Claim) {
	j.fence = map[string]edge.ExecutionID{}
	for i := range began {
		c := &began[i]
		j.grows("handler of "+scope(j.rows[c.Delivery].Ordered, c.Target, c.Delivery), c.Fence)
	}
}
