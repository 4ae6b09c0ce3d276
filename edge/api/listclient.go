package api

import (
	"context"
	"net/url"
	"strconv"
)

// ListDeliveries are the filters of a listing. Empty fields select all.
type ListDeliveries struct {
	State, Handler, Target, Code string
	Event                        string // public id or number
	Type, Source, Subject        string // of the event
	Since, Until                 Stamp  // accepted at or after, and before
	Newest                       bool   // only those of which no redrive has made another
	Before                       string // cursor: Next of the page before
	Limit                        int    // 0 = DefaultPage
}

// Deliveries lists deliveries, newest first.
func (c *Client) Deliveries(ctx context.Context, f ListDeliveries) (DeliveryPage, error) {
	q := values("state", f.State, "handler", f.Handler, "target", f.Target, "code", f.Code, "event", f.Event,
		"type", f.Type, "source", f.Source, "subject", f.Subject, "since", f.Since.String(), "until", f.Until.String(),
		"newest", flag(f.Newest), "before", f.Before)
	setLimit(q, f.Limit)
	return get[DeliveryPage](ctx, c, "/v1/deliveries", q)
}

// ListEvents are the filters of a listing of events. Empty fields select all.
type ListEvents struct {
	Type, Source, Subject, ID string
	Since, Until              Stamp  // accepted at or after, and before
	Before                    string // cursor: Next of the page before
	Limit                     int    // 0 = DefaultPage
}

// Events lists events without their data, newest first.
func (c *Client) Events(ctx context.Context, f ListEvents) (EventPage, error) {
	q := values("type", f.Type, "source", f.Source, "subject", f.Subject, "id", f.ID,
		"since", f.Since.String(), "until", f.Until.String(), "before", f.Before)
	setLimit(q, f.Limit)
	return get[EventPage](ctx, c, "/v1/events", q)
}

// Event returns one event with its data and deliveries.
func (c *Client) Event(ctx context.Context, id string) (EventDetail, error) {
	return get[EventDetail](ctx, c, "/v1/events/"+url.PathEscape(id), nil)
}

// ListTargets are the filters of a listing of targets.
type ListTargets struct {
	Handler string
	Stalled bool
	Stall   string // held, blocked or halted
	Open    bool   // only those with deliveries that are not final
	After   string // cursor: Next of the page before
	Limit   int    // 0 = DefaultPage
}

// Targets lists targets by handler and key.
func (c *Client) Targets(ctx context.Context, f ListTargets) (TargetPage, error) {
	q := values("handler", f.Handler, "stalled", flag(f.Stalled), "stall", f.Stall, "open", flag(f.Open), "after", f.After)
	setLimit(q, f.Limit)
	return get[TargetPage](ctx, c, "/v1/targets", q)
}

// Backlog says what waits longest, worst targets at most.
func (c *Client) Backlog(ctx context.Context, worst int) (Backlog, error) {
	return get[Backlog](ctx, c, "/v1/backlog", values("worst", strconv.Itoa(worst)))
}

// Bulk does one verb to many deliveries.
func (c *Client) Bulk(ctx context.Context, req BulkRequest) (BulkAnswer, error) {
	return post[BulkAnswer](ctx, c, "/v1/bulk", req)
}

// RetryNow makes a waiting retry due now.
func (c *Client) RetryNow(ctx context.Context, id string) (Delivery, error) {
	return post[Delivery](ctx, c, deliveryPath(id, "/retry-now"), struct{}{})
}

// values are the parameters that are not empty, of names and values in turn.
func values(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return q
}

func flag(b bool) string {
	if b {
		return "true"
	}
	return ""
}
