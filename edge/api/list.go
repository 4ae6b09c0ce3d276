package api

import (
	"net/http"
	"strconv"
	"time"

	"fencepost/edge"
)

// EventPage is a page of events, newest first. Next is the cursor ("before") of
// the next page; "" when there is none. Partial: enough rows were looked at, and
// there may be more behind Next.
type EventPage struct {
	Events  []Event `json:"events"`
	Next    string  `json:"next,omitempty"`
	Partial bool    `json:"partial,omitempty"`
}

// EventDetail is an event with its data and the deliveries that are owed of it,
// newest first, at most MaxPage.
type EventDetail struct {
	Event      Event      `json:"event"`
	Data       []byte     `json:"data_base64,omitempty"` // exactly as received
	Deliveries []Delivery `json:"deliveries"`
}

// Backlog is what waits longest, and how fast work is done.
type Backlog struct {
	Worst         []TargetBacklog `json:"worst"`
	InFlight      map[string]int  `json:"in_flight"` // by handler
	Finished      int             `json:"finished"`  // since
	Since         Stamp           `json:"since,omitzero"`
	OldestEventAt Stamp           `json:"oldest_event_at,omitzero"`
	Now           Stamp           `json:"now"`
}

// TargetBacklog is the backlog of one target: its oldest waiting delivery.
type TargetBacklog struct {
	Target     Target     `json:"target"`
	Oldest     string     `json:"oldest"`
	AcceptedAt Stamp      `json:"accepted_at,omitzero"`
	State      edge.State `json:"state"`
	Code       string     `json:"code,omitempty"`
	DueAt      Stamp      `json:"due_at,omitzero"`
}

// deliveryParameters are the filters of deliveries.
var deliveryParameters = []string{
	"state", "handler", "target", "code", "event", "type", "source", "subject", "since", "until", "newest", "limit", "before",
}

func (l *local) deliveryFilter(r *http.Request) (edge.DeliveryFilter, error) {
	node := l.node.Names()
	q := readQuery(r, deliveryParameters...)
	f := edge.DeliveryFilter{
		State:   q.state("state"),
		Handler: q.text("handler"),
		Target:  q.target("target"),
		Code:    q.text("code"),
		Event:   edge.EventID(q.id("event", edge.KindEvent, node)),
		Type:    q.text("type"), Source: q.text("source"), Subject: q.text("subject"),
		SinceMS: q.time("since"), UntilMS: q.time("until"),
		Newest: q.flag("newest"),
		Before: edge.DeliveryID(q.id("before", edge.KindDelivery, node)),
		Limit:  q.limit("limit"),
	}
	return f, q.err
}

func (l *local) deliveries(r *http.Request) (any, error) {
	f, err := l.deliveryFilter(r)
	if err != nil {
		return nil, err
	}
	found, err := l.node.ListDeliveries(r.Context(), f)
	if err != nil {
		return nil, err
	}
	form := l.form()
	return DeliveryPage{
		Deliveries: each(found.Deliveries, form.delivery), Next: form.deliveryID(found.Next), Partial: found.Partial,
	}, nil
}

func (l *local) events(r *http.Request) (any, error) {
	q := readQuery(r, "type", "source", "subject", "id", "since", "until", "limit", "before")
	f := edge.EventFilter{
		Type: q.text("type"), Source: q.text("source"), Subject: q.text("subject"), ID: q.text("id"),
		SinceMS: q.time("since"), UntilMS: q.time("until"),
		Before: edge.EventID(q.id("before", edge.KindEvent, l.node.Names())),
		Limit:  q.limit("limit"),
	}
	if q.err != nil {
		return nil, q.err
	}
	found, err := l.node.ListEvents(r.Context(), f)
	if err != nil {
		return nil, err
	}
	form := l.form()
	page := EventPage{Events: each(found.Events, form.eventInfo), Partial: found.Partial}
	if found.Next != 0 {
		page.Next = form.names.Format(edge.KindEvent, int64(found.Next))
	}
	return page, nil
}

func (f form) eventInfo(x edge.EventInfo) Event {
	e := *f.event(x.Event)
	e.DataBytes, e.Pruned, e.Trace = x.DataBytes, x.Pruned, "" // a listing does not read it
	return e
}

func (l *local) event(r *http.Request) (any, error) {
	n, err := l.node.Names().Parse(edge.KindEvent, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	ev, err := l.node.Event(r.Context(), edge.EventID(n))
	if err != nil {
		return nil, err
	}
	found, err := l.node.ListDeliveries(r.Context(), edge.DeliveryFilter{Event: ev.N, Limit: edge.MaxPage})
	if err != nil {
		return nil, err
	}
	form := l.form()
	x := EventDetail{Event: *form.event(ev), Data: ev.Data, Deliveries: each(found.Deliveries, form.delivery)}
	x.Event.Pruned = ev.Data == nil
	return x, nil
}

func (l *local) targets(r *http.Request) (any, error) {
	q := readQuery(r, "handler", "stalled", "stall", "open", "limit", "after")
	f := edge.TargetFilter{
		Handler: q.text("handler"), OnlyStalled: q.flag("stalled"), Stall: q.stall("stall"), OnlyOpen: q.flag("open"), Limit: q.limit("limit"),
	}
	if after := q.target("after"); after != nil {
		f.After = *after
	}
	if q.err != nil {
		return nil, q.err
	}
	found, err := l.node.ListTargets(r.Context(), f)
	if err != nil {
		return nil, err
	}
	page := TargetPage{Targets: each(found.Targets, l.form().target), Partial: found.Partial}
	if found.Next != (edge.Target{}) {
		page.Next = found.Next.String()
	}
	return page, nil
}

// mostWorst bounds the targets of a backlog.
const mostWorst = 100

func (l *local) backlog(r *http.Request) (any, error) {
	q := readQuery(r, "worst")
	n := 10
	if s := q.text("worst"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil || n < 0 || n > mostWorst {
			q.fault("worst", "must be a number from 0 to "+strconv.Itoa(mostWorst))
		}
	}
	if q.err != nil {
		return nil, q.err
	}
	found, err := l.node.Backlog(r.Context(), n)
	if err != nil {
		return nil, err
	}
	form := l.form()
	return Backlog{
		Worst: each(found.Worst, func(x edge.TargetBacklog) TargetBacklog {
			return TargetBacklog{
				Target: form.target(x.Target), Oldest: form.deliveryID(x.Oldest), AcceptedAt: Stamp(x.OldestMS),
				State: x.State, Code: x.Code, DueAt: Stamp(x.DueMS),
			}
		}),
		InFlight: found.InFlight, Finished: found.Finished, Since: Stamp(found.SinceMS),
		OldestEventAt: Stamp(found.OldestEventMS), Now: Stamp(l.node.Clock().NowMS()),
	}, nil
}

func (q *query) stall(name string) edge.Stall {
	switch s := edge.Stall(q.text(name)); s {
	case edge.NoStall, edge.StallHeld, edge.StallBlocked, edge.StallHalted:
		return s
	}
	q.fault(name, "must be held, blocked or halted")
	return ""
}

// time reads an RFC 3339 time as milliseconds UTC; 0 for none.
func (q *query) time(name string) int64 {
	s := q.text(name)
	if s == "" {
		return 0
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil || t.UnixMilli() <= 0 {
		q.fault(name, "must be a time such as 2026-01-31T12:00:00Z (RFC 3339)")
		return 0
	}
	return t.UnixMilli()
}
