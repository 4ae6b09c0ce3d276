package api

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"strings"
	"unicode/utf8"

	"fencepost/edge"
)

// Intent is what a request to POST /v1/events asks for.
type Intent struct {
	Events []edge.Event
	Batch  bool   // came as a batch: the answer is an array
	Key    string // Idempotency-Key of the request; "" = none
	KeyID  bool   // the id of the event is the Idempotency-Key
}

// DefaultSource is the source of an event that comes without one.
const DefaultSource = "/http"

// maxFaults bounds the faults that one problem lists.
const maxFaults = 20

// Content types of CloudEvents.
const (
	typeBatch      = "application/cloudevents-batch+json"
	typeStructured = "application/cloudevents+json"
)

// Decode reads the events of a request, in any of the forms that the package
// comment lists, and judges each by [edge.Event.Validate]. maxBody is the limit
// of the body of one event in bytes, 0 for [edge.MaxDataBytes]; a batch has
// [edge.MaxBatchBytes]. It reads at most one byte more. Every error is a
// [*Problem].
func Decode(r *http.Request, maxBody int) (Intent, error) {
	if maxBody <= 0 {
		maxBody = edge.MaxDataBytes
	}
	contentType, err := contentTypeOf(r.Header)
	if err != nil {
		return Intent{}, err
	}
	key, keyed, err := idempotencyKey(r.Header)
	if err != nil {
		return Intent{}, err
	}
	d := decoder{r: r, contentType: contentType, maxBody: maxBody, key: key, keyed: keyed}
	in, err := d.intent()
	if err != nil {
		return Intent{}, err
	}
	in.Key = key
	if trace := traceOf(r.Header); trace.Parent != "" {
		for i := range in.Events {
			in.Events[i].Trace = trace
		}
	}
	return in, nil
}

// intent reads the form that Content-Type and headers tell; batch comes first,
// as its type begins like the other.
func (d *decoder) intent() (Intent, error) {
	switch {
	case hasPrefixFold(d.contentType, "application/cloudevents-batch"):
		return d.batch()
	case hasPrefixFold(d.contentType, "application/cloudevents"):
		return d.structured()
	case hasAttributeHeader(d.r.Header):
		return d.binary()
	}
	return d.plain()
}

// traceOf is the trace of the hop: of the request itself, not of its events.
func traceOf(h http.Header) edge.Trace {
	parents := h.Values("Traceparent")
	if len(parents) == 0 {
		return edge.Trace{}
	}
	return edge.ParseTrace(parents, h.Values("Tracestate"))
}

type decoder struct {
	r           *http.Request
	contentType string
	maxBody     int
	key         string // Idempotency-Key
	keyed       bool
}

// plain reads a body whose attributes are query parameters.
func (d *decoder) plain() (Intent, error) {
	query, err := url.ParseQuery(d.r.URL.RawQuery)
	if err != nil {
		return Intent{}, invalid(FieldFault{Detail: "the query is malformed: percent-encode the values of its parameters"})
	}
	ev := edge.Event{Source: DefaultSource, ContentType: d.contentType}
	if fault := plainAttributes(&ev, query); fault != nil {
		return Intent{}, invalid(*fault)
	}
	keyed := d.keyed && !query.Has("id")
	switch {
	case keyed:
		ev.ID = d.key
	case !query.Has("id"):
		ev.ID = edge.NewName()
	}
	if !query.Has("type") {
		return Intent{}, invalid(FieldFault{Parameter: "type",
			Detail: "is required: POST /v1/events?type=greeting.hello, or send a CloudEvent (ce- headers or " + typeStructured + ")"})
	}
	if ev.Data, err = readBody(d.r, d.maxBody); err != nil {
		return Intent{}, err
	}
	return d.one(ev, keyed, func(field string) FieldFault {
		switch field {
		case "id":
			if keyed {
				return FieldFault{Header: "Idempotency-Key"}
			}
			return FieldFault{Parameter: field}
		case "type", "source", "subject":
			return FieldFault{Parameter: field}
		}
		return headerPlace(field)
	})
}

func plainAttributes(ev *edge.Event, query url.Values) *FieldFault {
	for name, values := range query {
		if len(values) > 1 {
			return &FieldFault{Parameter: clip(name), Detail: "is given more than once"}
		}
		switch name {
		case "type":
			ev.Type = values[0]
		case "source":
			ev.Source = values[0]
		case "subject":
			ev.Subject = values[0]
		case "id":
			ev.ID = values[0]
		default:
			return &FieldFault{Parameter: clip(name), Detail: "is not known: the parameters are type, source, subject and id"}
		}
	}
	return nil
}

// one judges the only event of a request. place says where a field came from.
func (d *decoder) one(ev edge.Event, keyed bool, place func(field string) FieldFault) (Intent, error) {
	if fault := judge(&ev, d.maxBody, place); fault != nil {
		return Intent{}, invalid(*fault)
	}
	return Intent{Events: []edge.Event{ev}, KeyID: keyed}, nil
}

// judge validates ev, and its data when the content type says JSON.
func judge(ev *edge.Event, maxBody int, place func(field string) FieldFault) *FieldFault {
	err := ev.Validate(maxBody)
	var field *edge.FieldError
	switch {
	case errors.As(err, &field):
		return faultAt(place, field.Field, field.Detail)
	case err != nil:
		return &FieldFault{Detail: err.Error()}
	}
	if len(ev.Data) > 0 && isJSON(ev.ContentType) {
		if detail := checkJSON(ev.Data); detail != "" {
			return faultAt(place, "data", detail)
		}
	}
	return nil
}

// faultAt is a fault of a field, named in words when the request has no place
// for the field.
func faultAt(place func(field string) FieldFault, field, detail string) *FieldFault {
	f := place(field)
	f.Detail = detail
	if f.Pointer == "" && f.Header == "" && f.Parameter == "" {
		f.Detail = field + ": " + detail
	}
	return &f
}

// noQuery refuses parameters beside a CloudEvent, which would be ignored.
func (d *decoder) noQuery() error {
	if d.r.URL.RawQuery != "" {
		return invalid(FieldFault{Detail: "a CloudEvent carries its attributes: leave the query out"})
	}
	return nil
}

func invalid(faults ...FieldFault) *Problem {
	detail := faults[0].String()
	if n := len(faults); n > 1 {
		detail = fmt.Sprintf("%s (and %d more)", detail, n-1)
	}
	return NewProblem(CodeInvalid, detail, faults...)
}

// contentTypeOf returns the Content-Type. Codings of the content are refused:
// what is stored is what was sent.
func contentTypeOf(h http.Header) (string, error) {
	for _, coding := range h.Values("Content-Encoding") {
		if !strings.EqualFold(strings.TrimSpace(coding), "identity") {
			return "", NewProblem(CodeMediaType, "Content-Encoding is not supported: send the body as it is",
				FieldFault{Header: "Content-Encoding", Detail: "must be absent"})
		}
	}
	values := h.Values("Content-Type")
	switch len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	}
	return "", invalid(FieldFault{Header: "Content-Type", Detail: "is given more than once"})
}

// wantMedia refuses the content types of CloudEvents other than want.
func (d *decoder) wantMedia(want string) error {
	media, params, err := mime.ParseMediaType(d.contentType)
	charset := params["charset"]
	if err == nil && media == want && (charset == "" || strings.EqualFold(charset, "utf-8")) {
		return nil
	}
	return NewProblem(CodeMediaType, "of the CloudEvents formats only JSON in UTF-8 is supported: send Content-Type "+want,
		FieldFault{Header: "Content-Type", Detail: "must be " + want})
}

// readBody reads the body of a request, at most limit bytes and one more. A
// body that is announced as larger is not read at all.
func readBody(r *http.Request, limit int) ([]byte, error) {
	tooLarge := NewProblem(CodeTooLarge, fmt.Sprintf("the limit of this body is %d bytes", limit))
	if r.ContentLength > int64(limit) {
		return nil, tooLarge
	}
	if r.Body == nil {
		return []byte{}, nil
	}
	body, err := readAll(io.LimitReader(r.Body, int64(limit)+1), r.ContentLength)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, NewProblem(CodeSlowRequest, "the body did not arrive in time")
	case err != nil:
		return nil, invalid(FieldFault{Detail: "the body ended early or its framing is broken"})
	case len(body) > limit:
		return nil, tooLarge
	}
	return body, nil
}

// readAll is io.ReadAll with a first guess of the size, which is not trusted
// beyond 64 KiB.
func readAll(r io.Reader, size int64) ([]byte, error) {
	const trusted = 64 << 10
	body := make([]byte, 0, min(max(size, 512), trusted)+1)
	for {
		n, err := r.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if err == io.EOF {
			return body, nil
		}
		if err != nil {
			return body, err
		}
		if len(body) == cap(body) {
			body = append(body, 0)[:len(body)]
		}
	}
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// isJSON reports whether a content type says JSON.
func isJSON(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	media = strings.ToLower(strings.TrimSpace(media))
	return strings.HasSuffix(media, "/json") || strings.HasSuffix(media, "+json")
}

// clip bounds a name that a caller chose, for showing it back.
func clip(s string) string {
	const most = 64
	if len(s) > most {
		s = s[:most] + "..."
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// checkJSON says what is wrong with a JSON text; "" when nothing is. Numbers
// and repeated keys are left to those who read the data.
func checkJSON(data []byte) string {
	if !utf8.Valid(data) {
		return "is not valid UTF-8"
	}
	if depth := jsonDepth(data); depth > maxJSONDepth {
		return fmt.Sprintf("is nested deeper than the limit of %d", maxJSONDepth)
	}
	if at, ok := validJSON(data); !ok {
		return fmt.Sprintf("is not valid JSON at byte %d", at)
	}
	return ""
}
