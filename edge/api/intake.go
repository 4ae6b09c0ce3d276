package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"fencepost/edge"
)

// Intake takes events. The answers are in the order of the events; a fault of
// one event is in its answer.
type Intake interface {
	EnqueueBatch(ctx context.Context, events []edge.Event) ([]edge.Accepted, error)
	// EnqueueOnce is EnqueueBatch for a request with a key, whose answers are
	// kept: see [edge.Engine.EnqueueOnce].
	EnqueueOnce(ctx context.Context, key edge.RequestKey, events []edge.Event) (edge.Kept, error)
}

// Receipt is the answer to an accepted event.
type Receipt struct {
	ID         string        `json:"id"`       // public id of the event
	Existing   bool          `json:"existing"` // accepted before; nothing changed
	Deliveries []DeliveryRef `json:"deliveries"`
	Targets    int           `json:"targets"` // how many targets the event is owed to
}

// DeliveryRef names a delivery.
type DeliveryRef struct {
	ID     string     `json:"id"`
	Target string     `json:"target"`
	State  edge.State `json:"state"`
}

// BatchItem is the answer to one event of a batch: a receipt, or the problem.
type BatchItem struct {
	Status int `json:"status"` // 202 new, 200 existing, 400, 409 or 507 refused
	*Receipt
	Problem *Problem `json:"problem,omitempty"`
}

// intake answers POST /v1/events.
type intake struct {
	names   func() edge.Names // id of the node, for public ids
	take    Intake
	maxBody int
	keep    func() time.Duration // how long keys are remembered; nil = not published
	fail    func(http.ResponseWriter, *http.Request, error)
}

func (h *intake) post(w http.ResponseWriter, r *http.Request) {
	in, err := Decode(r, h.maxBody)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	if err := h.reserved(in); err != nil {
		h.fail(w, r, err)
		return
	}
	received(r.Context())
	var answers []edge.Accepted
	switch {
	case len(in.Events) == 0:
	case in.Key != "":
		answers, err = h.once(w, r, in)
	default:
		answers, err = h.take.EnqueueBatch(r.Context(), in.Events)
	}
	if err != nil {
		h.fail(w, r, err)
		return
	}
	if len(answers) != len(in.Events) {
		h.fail(w, r, errors.New("the store answered for another number of events"))
		return
	}
	if in.Batch {
		h.answerBatch(w, answers)
		return
	}
	h.answerOne(w, r, in, answers[0])
}

// reserved refuses a batch whole that has an event which says it is the node's own,
// as one with any other event that is invalid. Of a single event the engine says so.
func (h *intake) reserved(in Intent) error {
	if !in.Batch {
		return nil
	}
	own := "fencepost/" + h.names().Node()
	for i, ev := range in.Events {
		if strings.EqualFold(ev.Source, own) {
			return invalid(FieldFault{Pointer: fmt.Sprintf("/%d/source", i), Detail: fmt.Sprintf("%q is that of the node's own events", ev.Source)})
		}
	}
	return nil
}

func (h *intake) answerOne(w http.ResponseWriter, r *http.Request, in Intent, a edge.Accepted) {
	switch {
	case in.KeyID && errors.Is(a.Err, edge.ErrConflict):
		h.fail(w, r, edge.ErrKeyReused)
	case a.Err != nil:
		h.fail(w, r, a.Err)
	default:
		writeJSON(w, statusOf(a), "application/json", h.receipt(a))
	}
}

func (h *intake) answerBatch(w http.ResponseWriter, answers []edge.Accepted) {
	status := http.StatusOK
	items := make([]BatchItem, len(answers))
	for i, a := range answers {
		if a.Err != nil {
			p := problemOf(a.Err)
			setRetryAfter(w, p)
			items[i] = BatchItem{Status: p.Status, Problem: p}
			setRetryAfter(w, p)
			status = http.StatusMultiStatus
			continue
		}
		items[i] = BatchItem{Status: statusOf(a), Receipt: h.receipt(a)}
		if status == http.StatusOK {
			status = items[i].Status
		}
	}
	writeJSON(w, status, "application/json", items)
}

func statusOf(a edge.Accepted) int {
	if a.Existing {
		return http.StatusOK
	}
	return http.StatusAccepted
}

func (h *intake) receipt(a edge.Accepted) *Receipt {
	names := h.names()
	rc := &Receipt{
		ID:         names.Format(edge.KindEvent, int64(a.Event)),
		Existing:   a.Existing,
		Deliveries: make([]DeliveryRef, len(a.Deliveries)),
		Targets:    len(a.Deliveries),
	}
	for i, d := range a.Deliveries {
		rc.Deliveries[i] = DeliveryRef{
			ID:     names.Format(edge.KindDelivery, int64(d.ID)),
			Target: d.Target.String(),
			State:  d.State,
		}
	}
	return rc
}
