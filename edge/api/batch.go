package api

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"fencepost/edge"
)

// ParseEvent reads one event in the JSON format of CloudEvents, as
// POST /v1/events does. Attributes that it lacks are those of defaults: ID, Type
// and Source; specversion may be absent. maxBody is as in [Decode]. Every error is
// a [*Problem] whose pointers are into object.
func ParseEvent(object []byte, defaults edge.Event, maxBody int) (edge.Event, error) {
	if maxBody <= 0 {
		maxBody = edge.MaxDataBytes
	}
	if at, ok := validJSON(object); !ok {
		return edge.Event{}, invalid(FieldFault{Detail: fmt.Sprintf("is not valid JSON at byte %d", at)})
	}
	if !utf8.Valid(object) {
		return edge.Event{}, invalid(FieldFault{Detail: "is not valid UTF-8"})
	}
	fill := func(attributes map[string]string) {
		for name, value := range map[string]string{
			"specversion": "1.0", "id": defaults.ID, "type": defaults.Type, "source": defaults.Source,
		} {
			if _, ok := attributes[name]; !ok && value != "" {
				attributes[name] = value
			}
		}
	}
	ev, fault := readEvent(object, "", maxBody, fill)
	if fault != nil {
		return edge.Event{}, invalid(*fault)
	}
	return ev, nil
}

// ParseEvents reads one event, or a JSON array of events, as [ParseEvent] does each.
// The faults of all events are in one [*Problem].
func ParseEvents(text []byte, defaults edge.Event, maxBody int) ([]edge.Event, error) {
	if !bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("[")) {
		ev, err := ParseEvent(text, defaults, maxBody)
		return []edge.Event{ev}, err
	}
	if at, ok := validJSON(text); !ok {
		return nil, invalid(FieldFault{Detail: fmt.Sprintf("is not valid JSON at byte %d", at)})
	}
	elements, err := batchElements(text)
	if err != nil {
		return nil, err
	}
	var faults []FieldFault
	events := make([]edge.Event, 0, len(elements))
	for i, element := range elements {
		ev, err := ParseEvent(element, defaults, maxBody)
		var p *Problem
		if errors.As(err, &p) {
			for _, f := range p.Errors {
				f.Pointer = "/" + strconv.Itoa(i) + f.Pointer
				faults = append(faults, f)
			}
			continue
		}
		events = append(events, ev)
	}
	if len(faults) > 0 {
		return nil, invalid(faults...)
	}
	return events, nil
}

// AppendEvent writes ev in the JSON format of CloudEvents. JSON data keeps its
// bytes; other data is base64.
func AppendEvent(b []byte, ev *edge.Event) []byte {
	b = append(b, `{"specversion":"1.0"`...)
	member := func(name, value string) {
		if value != "" {
			b = append(append(appendString(append(b, ','), name), ':'), appendString(nil, value)...)
		}
	}
	member("id", ev.ID)
	member("source", ev.Source)
	member("type", ev.Type)
	member("subject", ev.Subject)
	member("time", ev.Time)
	member("datacontenttype", ev.ContentType)
	for _, name := range slices.Sorted(maps.Keys(ev.Extensions)) {
		b = append(append(appendString(append(b, ','), name), ':'), appendString(nil, ev.Extensions[name])...)
	}
	switch {
	case len(ev.Data) == 0:
	case isJSON(ev.ContentType) && json.Valid(ev.Data) && len(bytes.TrimSpace(ev.Data)) == len(ev.Data):
		b = append(append(b, `,"data":`...), ev.Data...)
	default:
		b = append(b, `,"data_base64":"`...)
		b = base64.StdEncoding.AppendEncode(b, ev.Data)
		b = append(b, '"')
	}
	return append(b, '}')
}

// appendString is s as a JSON string.
func appendString(b []byte, s string) []byte {
	text, _ := json.Marshal(s) // a string cannot fail
	return append(b, text...)
}

// SendBatch hands in a batch: body is a JSON array of events, as [AppendEvent]
// writes them. The answers are in their order.
func (c *Client) SendBatch(ctx context.Context, body []byte, trace edge.Trace) ([]BatchItem, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url("/v1/events"), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", typeBatch)
	setTrace(req.Header, trace)
	var items []BatchItem
	err = c.do(req, &items)
	return items, err
}

// maxRetryAfter is the most that a Retry-After can ask for.
const maxRetryAfter = time.Hour

// retryAfter reads a Retry-After (RFC 9110 10.2.3): seconds, or a date seen from
// the clock of who wrote it. 0 is none, or one that is malformed.
func retryAfter(h http.Header) time.Duration {
	s := h.Get("Retry-After")
	if t, err := http.ParseTime(s); err == nil {
		now, err := http.ParseTime(h.Get("Date"))
		if err != nil {
			now = time.Now()
		}
		return min(max(t.Sub(now), 0), maxRetryAfter)
	}
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0
		}
	}
	n, err := strconv.ParseUint(s, 10, 32)
	switch {
	case s == "":
		return 0
	case err != nil || n > uint64(maxRetryAfter/time.Second):
		return maxRetryAfter
	}
	return time.Duration(n) * time.Second
}
