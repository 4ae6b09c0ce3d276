package edgetest

import (
	"fmt"

	"fencepost/edge"
)

// Source is the source of the events that this package makes.
const Source = "urn:edgetest"

// NewEvent makes a valid event with this id. Its subject is key, so that the
// default target key is key as well.
func NewEvent(id, key string) edge.Event {
	return edge.Event{
		ID: id, Source: Source, Type: "test.happened", Subject: key,
		ContentType: "application/json", Data: []byte(`{"id":"` + id + `"}`),
	}
}

// Owe makes an event and the route that owes it to one target.
func Owe(id, handler, key string) edge.Submission {
	return edge.Submission{
		Event:  NewEvent(id, key),
		Routes: []edge.Routed{{Route: "to-" + handler, Handler: handler, Key: key}},
	}
}

// Events makes n events for one target, with ids prefix-1 to prefix-n.
func Events(prefix, handler, key string, n int) []edge.Submission {
	subs := make([]edge.Submission, n)
	for i := range subs {
		subs[i] = Owe(fmt.Sprintf("%s-%d", prefix, i+1), handler, key)
	}
	return subs
}
