package api

import (
	"encoding/json"
	"fmt"
	"time"

	"fencepost/edge"
)

// stampLayout is RFC 3339 in UTC with milliseconds.
const stampLayout = "2006-01-02T15:04:05.000Z"

// Stamp is a time in milliseconds UTC, written in JSON as RFC 3339 in UTC with
// milliseconds whatever the zone of the host. 0 is no time and is left out.
type Stamp int64

// String is the JSON form without quotes; "" for no time.
func (s Stamp) String() string {
	if s == 0 {
		return ""
	}
	return time.UnixMilli(int64(s)).UTC().Format(stampLayout)
}

// MarshalJSON writes the time, or null.
func (s Stamp) MarshalJSON() ([]byte, error) {
	if s == 0 {
		return []byte("null"), nil
	}
	return json.Marshal(s.String())
}

// UnmarshalJSON reads any RFC 3339 time, or null.
func (s *Stamp) UnmarshalJSON(data []byte) error {
	var text *string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	if text == nil {
		*s = 0
		return nil
	}
	t, err := time.Parse(time.RFC3339Nano, *text)
	if err != nil {
		return fmt.Errorf("time %q: %w", *text, err)
	}
	*s = Stamp(t.UnixMilli())
	return nil
}

// Delivery is a delivery in JSON. Ids are public ids.
type Delivery struct {
	ID           string     `json:"id"`
	Event        string     `json:"event"`
	Target       string     `json:"target"`
	State        edge.State `json:"state"`
	Code         string     `json:"code,omitempty"`
	Route        string     `json:"route,omitempty"`
	Generation   int        `json:"generation"`
	RedriveOf    string     `json:"redrive_of,omitempty"`
	Again        bool       `json:"again,omitempty"`
	Key          string     `json:"key"` // the idempotency key
	Ordered      bool       `json:"ordered"`
	Line         string     `json:"line"` // place in line: the id it counts as
	Attempts     int        `json:"attempts"`
	Losses       int        `json:"losses"`
	Executions   int        `json:"executions"`
	Fence        int64      `json:"fence,omitempty"` // the latest execution
	AcceptedAt   Stamp      `json:"accepted_at,omitzero"`
	DueAt        Stamp      `json:"due_at,omitzero"`
	ExpiresAt    Stamp      `json:"expires_at,omitzero"`
	FirstStartAt Stamp      `json:"first_start_at,omitzero"`
	CancelAt     Stamp      `json:"cancel_at,omitzero"` // when cancelling was asked for
	FinishedAt   Stamp      `json:"finished_at,omitzero"`
	Version      int64      `json:"version"` // what a decision names
}

// Execution is an execution in JSON.
type Execution struct {
	Fence       int64        `json:"fence"`
	Attempt     int          `json:"attempt"`
	Owner       string       `json:"owner"`
	Effect      edge.Effect  `json:"effect"`
	Revision    string       `json:"revision,omitempty"`
	ClaimedAt   Stamp        `json:"claimed_at,omitzero"`
	StartedAt   Stamp        `json:"started_at,omitzero"`
	EndedAt     Stamp        `json:"ended_at,omitzero"`
	Outcome     edge.Outcome `json:"outcome,omitempty"`
	Code        string       `json:"code,omitempty"`
	Detail      string       `json:"detail,omitempty"`
	LateOutcome edge.Outcome `json:"late_outcome,omitempty"`
}

// Event is an event in JSON, without its data.
type Event struct {
	ID         string            `json:"id"`         // public id
	Attributes map[string]string `json:"attributes"` // CloudEvents attributes as received
	AcceptedAt Stamp             `json:"accepted_at,omitzero"`
	DataBytes  int               `json:"data_bytes"`
	Trace      string            `json:"trace,omitempty"`  // trace id of its attempts; not in listings
	Depth      int               `json:"depth,omitempty"`  // length of the chain of follow-ups
	Pruned     bool              `json:"pruned,omitempty"` // its data is no longer kept
}

// DeliveryDetail is a delivery with its event and the executions that are kept.
type DeliveryDetail struct {
	Delivery   Delivery    `json:"delivery"`
	Event      *Event      `json:"event,omitempty"` // left out when it was pruned
	Executions []Execution `json:"executions"`
}

// DeliveryPage is a page of deliveries, newest first. Next is the cursor
// ("before") of the next page; "" when there is none. Partial: enough rows were
// looked at, and there may be more behind Next.
type DeliveryPage struct {
	Deliveries []Delivery `json:"deliveries"`
	Next       string     `json:"next,omitempty"`
	Partial    bool       `json:"partial,omitempty"`
}

// Target is a target in JSON.
type Target struct {
	Target  string     `json:"target"`
	Slots   int        `json:"slots"`
	Busy    int        `json:"busy"`
	Open    int        `json:"open"`
	ReadyAt Stamp      `json:"ready_at,omitzero"`
	Stall   edge.Stall `json:"stall,omitempty"`
	Stalled string     `json:"stalled,omitempty"` // the delivery that the stall names
	Version int64      `json:"version"`
}

// TargetPage is a page of targets by handler and key. Next is the cursor
// ("after") of the next page; "" when there is none. Partial: enough targets were
// looked at, and there may be more behind Next.
type TargetPage struct {
	Targets []Target `json:"targets"`
	Next    string   `json:"next,omitempty"`
	Partial bool     `json:"partial,omitempty"`
}

// Handler is a handler in JSON.
type Handler struct {
	Name     string    `json:"name"`
	Gate     edge.Gate `json:"gate"`
	Code     string    `json:"code,omitempty"`
	ResumeAt Stamp     `json:"resume_at,omitzero"`
	Revision string    `json:"revision,omitempty"`
	Version  int64     `json:"version"`

	RateReadyAt  Stamp  `json:"rate_ready_at,omitzero"` // until when the rate limit lets nothing start
	FailingSince Stamp  `json:"failing_since,omitzero"` // when its other side began to fail
	FailingCode  string `json:"failing_code,omitempty"` // with what
}

// Uplink is an uplink in JSON.
type Uplink struct {
	Name      string `json:"name"`
	DownSince Stamp  `json:"down_since,omitzero"` // nothing of its handlers is attempted since then
	Detail    string `json:"detail,omitempty"`    // what the latest probe found wrong
}

// Violation is a broken invariant in JSON.
type Violation struct {
	Rule   string `json:"rule"`
	Detail string `json:"detail"`
}

// Status is what a node is and does now.
type Status struct {
	Node       string `json:"node"`  // id of the database file
	Owner      string `json:"owner"` // id of this opening
	PID        int    `json:"pid"`
	Version    string `json:"version"`
	Database   string `json:"database"`
	Durability string `json:"durability"`
	Listen     string `json:"listen,omitempty"` // address of the network listener
	StartedAt  Stamp  `json:"started_at,omitzero"`
	Now        Stamp  `json:"now"`
	Ready      bool   `json:"ready"`
	NotReady   string `json:"not_ready,omitempty"` // why
	Live       int    `json:"live"`                // executions under way
	Held       int    `json:"held"`                // of those, results that wait for the store
	Stubborn   int    `json:"stubborn"`            // of those, handlers that ignore that their time is over
	Doubted    bool   `json:"clock_doubted"`

	// Hold is why nothing is dispatched; left out when all is well.
	Hold *Loss `json:"hold,omitempty"`
	// LastEnd is how the process before ended: clean, killed, power_loss; "" = not known.
	LastEnd  string    `json:"last_end,omitempty"`
	Recovery *Recovery `json:"recovery,omitempty"` // of work that it had not finished

	Storage Storage  `json:"storage"`
	Uplinks []Uplink `json:"uplinks,omitempty"`
}

// form turns the domain's values into their JSON form for one node.
type form struct{ names edge.Names }

func (f form) deliveryID(id edge.DeliveryID) string {
	if id == 0 {
		return ""
	}
	return f.names.Format(edge.KindDelivery, int64(id))
}

func (f form) delivery(d edge.Delivery) Delivery {
	return Delivery{
		ID: f.deliveryID(d.ID), Event: f.names.Format(edge.KindEvent, int64(d.Event)),
		Target: d.Target.String(), State: d.State, Code: d.Code, Route: d.Route,
		Generation: d.Generation, RedriveOf: f.deliveryID(d.RedriveOf), Again: d.Again,
		Key: f.deliveryID(d.KeyOf), Ordered: d.Ordered, Line: f.deliveryID(d.Line),
		Attempts: d.Attempts, Losses: d.Losses, Executions: d.Executions, Fence: int64(d.Execution),
		AcceptedAt: Stamp(d.AcceptedMS), DueAt: Stamp(d.DueMS), ExpiresAt: Stamp(d.ExpiresMS),
		FirstStartAt: Stamp(d.FirstStartMS), CancelAt: Stamp(d.CancelMS), FinishedAt: Stamp(d.FinishedMS),
		Version: d.Version,
	}
}

func (f form) execution(e edge.Execution) Execution {
	return Execution{
		Fence: int64(e.ID), Attempt: e.Attempt, Owner: e.Owner, Effect: e.Effect, Revision: e.Revision,
		ClaimedAt: Stamp(e.ClaimedMS), StartedAt: Stamp(e.StartedMS), EndedAt: Stamp(e.EndedMS),
		Outcome: e.Outcome, Code: e.Code, Detail: e.Detail, LateOutcome: e.LateOutcome,
	}
}

func (f form) event(e edge.Event) *Event {
	attributes := map[string]string{"specversion": "1.0", "id": e.ID, "source": e.Source, "type": e.Type}
	for name, value := range map[string]string{"subject": e.Subject, "time": e.Time, "datacontenttype": e.ContentType} {
		if value != "" {
			attributes[name] = value
		}
	}
	for name, value := range e.Extensions {
		attributes[name] = value
	}
	id := f.names.Format(edge.KindEvent, int64(e.N))
	return &Event{
		ID: id, Attributes: attributes, Trace: e.TraceOf(id).ID(),
		AcceptedAt: Stamp(e.AcceptedMS), DataBytes: len(e.Data), Depth: e.Depth,
	}
}

func (f form) target(t edge.TargetInfo) Target {
	return Target{
		Target: t.Target.String(), Slots: t.Slots, Busy: t.Busy, Open: t.Open, ReadyAt: Stamp(t.ReadyMS),
		Stall: t.Stall, Stalled: f.deliveryID(t.Stalled), Version: t.Version,
	}
}

func (f form) handler(h edge.HandlerInfo) Handler {
	return Handler{
		Name: h.Name, Gate: h.Gate, Code: h.GateCode, ResumeAt: Stamp(h.ResumeMS), Revision: h.Revision, Version: h.Version,
		RateReadyAt: Stamp(h.RateReadyMS), FailingSince: Stamp(h.Episode.BeganMS), FailingCode: h.Episode.Code,
	}
}

// each applies fn to every element; the answer is never null in JSON.
func each[A, B any](in []A, fn func(A) B) []B {
	out := make([]B, len(in))
	for i := range in {
		out[i] = fn(in[i])
	}
	return out
}
