package api

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"fencepost/edge"
)

// maxJSONDepth is the limit of nesting of JSON data; a single object has depth 1.
const maxJSONDepth = 64

// structured reads one event in the JSON format of CloudEvents 1.0.
func (d *decoder) structured() (Intent, error) {
	body, err := d.jsonBody(typeStructured, d.maxBody)
	if err != nil {
		return Intent{}, err
	}
	ev, fault := structuredEvent(body, "", d.maxBody)
	if fault != nil {
		return Intent{}, invalid(*fault)
	}
	return Intent{Events: []edge.Event{ev}}, nil
}

// batch reads an array of events. One that is malformed refuses them all.
func (d *decoder) batch() (Intent, error) {
	body, err := d.jsonBody(typeBatch, max(d.maxBody, edge.MaxBatchBytes))
	if err != nil {
		return Intent{}, err
	}
	elements, err := batchElements(body)
	if err != nil {
		return Intent{}, err
	}
	in := Intent{Events: make([]edge.Event, 0, len(elements)), Batch: true}
	var faults []FieldFault
	for i, element := range elements {
		ev, fault := structuredEvent(element, "/"+strconv.Itoa(i), d.maxBody)
		if fault != nil {
			if faults = append(faults, *fault); len(faults) == maxFaults {
				break
			}
			continue
		}
		in.Events = append(in.Events, ev)
	}
	if len(faults) > 0 {
		return Intent{}, invalid(faults...)
	}
	return in, nil
}

func batchElements(body []byte) ([]json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	if t, err := dec.Token(); err != nil || t != json.Delim('[') {
		return nil, invalid(FieldFault{Detail: "a batch is a JSON array of events"})
	}
	var elements []json.RawMessage
	for dec.More() {
		if len(elements) == edge.MaxBatchEvents {
			return nil, invalid(FieldFault{Detail: fmt.Sprintf("more than %d events, the limit of a batch", edge.MaxBatchEvents)})
		}
		var element json.RawMessage
		if err := dec.Decode(&element); err != nil {
			return nil, invalid(FieldFault{Pointer: "/" + strconv.Itoa(len(elements)), Detail: "is not valid JSON"})
		}
		elements = append(elements, element)
	}
	return elements, nil
}

// jsonBody reads a body that must be one JSON text in UTF-8.
func (d *decoder) jsonBody(media string, limit int) ([]byte, error) {
	if err := d.wantMedia(media); err != nil {
		return nil, err
	}
	if err := d.noQuery(); err != nil {
		return nil, err
	}
	body, err := readBody(d.r, limit)
	if err != nil {
		return nil, err
	}
	if !utf8.Valid(body) {
		return nil, invalid(FieldFault{Detail: "the body is not valid UTF-8"})
	}
	if at, ok := validJSON(body); !ok {
		return nil, invalid(FieldFault{Detail: fmt.Sprintf("the body is not valid JSON at byte %d", at)})
	}
	return body, nil
}

// validJSON reports whether data is one JSON text, and if not where it fails.
func validJSON(data []byte) (at int64, ok bool) {
	if json.Valid(data) {
		return 0, true
	}
	var raw json.RawMessage
	var syntax *json.SyntaxError
	if err := json.Unmarshal(data, &raw); errors.As(err, &syntax) {
		return syntax.Offset, false
	}
	return 0, false
}

// structuredEvent reads one event of valid JSON. at is the JSON Pointer of the
// event in the body.
func structuredEvent(object []byte, at string, maxBody int) (edge.Event, *FieldFault) {
	return readEvent(object, at, maxBody, nil)
}

// readEvent is structuredEvent with a function that may fill in attributes; nil
// fills in none.
func readEvent(object []byte, at string, maxBody int, fill func(attributes map[string]string)) (edge.Event, *FieldFault) {
	members, fault := objectMembers(object, at)
	if fault != nil {
		return edge.Event{}, fault
	}
	place := func(field string) FieldFault {
		switch field {
		case "attributes", "extensions":
			return FieldFault{Pointer: at}
		}
		return FieldFault{Pointer: at + "/" + field}
	}
	attributes := make(map[string]string, len(members))
	var data, encoded json.RawMessage
	for name, value := range members {
		f := FieldFault{Pointer: at + "/" + pointerEscape(name)}
		switch {
		case name == "data":
			data = value
			continue
		case name == "data_base64":
			encoded = value
			continue
		case !validName(name):
			f.Detail = nameRule
		}
		if f.Detail == "" {
			attributes[name], f.Detail = attributeText(name, value)
		}
		if f.Detail != "" {
			return edge.Event{}, &f
		}
		if string(value) == "null" { // null means that the attribute is not there
			delete(attributes, name)
		}
	}
	if fill != nil {
		fill(attributes)
	}
	ev := edge.Event{Data: []byte{}} // nil would mean that the data was pruned
	if fault := assign(&ev, attributes); fault != nil {
		fault.Pointer = at + fault.Pointer
		return edge.Event{}, fault
	}
	if fault := structuredData(&ev, data, encoded, place); fault != nil {
		return edge.Event{}, fault
	}
	return ev, judge(&ev, maxBody, place)
}

// objectMembers returns the members of a JSON object with the bytes of their
// values. A name that comes twice is a fault: readers differ on which one holds.
func objectMembers(object []byte, at string) (map[string]json.RawMessage, *FieldFault) {
	dec := json.NewDecoder(bytes.NewReader(object))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, &FieldFault{Pointer: at, Detail: "an event is a JSON object"}
	}
	members := make(map[string]json.RawMessage)
	for dec.More() {
		t, err := dec.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil, &FieldFault{Pointer: at, Detail: "is not valid JSON"}
		}
		f := &FieldFault{Pointer: at + "/" + pointerEscape(name)}
		if _, twice := members[name]; twice {
			f.Detail = "is given more than once"
			return nil, f
		}
		if len(members) >= edge.MaxAttributes+2 { // and data, and data_base64
			return nil, &FieldFault{Pointer: at, Detail: fmt.Sprintf("more attributes than the limit of %d", edge.MaxAttributes)}
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			f.Detail = "is not valid JSON, or is nested too deep"
			return nil, f
		}
		members[name] = value
	}
	return members, nil
}

// attributeText is the canonical text of an attribute's JSON value: a string, a
// boolean, or an integer of 32 bits.
func attributeText(name string, value json.RawMessage) (text, fault string) {
	switch c := value[0]; {
	case c == '"':
		return stringText(value)
	case c == 'n':
		return "", ""
	case isCore(name):
		return "", "must be a string"
	case c == 't', c == 'f':
		return string(value), ""
	case c == '{', c == '[':
		return "", "must be a string, a boolean or an integer"
	}
	n, err := strconv.ParseInt(string(value), 10, 32)
	if err != nil {
		return "", "must be an integer of 32 bits, written without fraction or exponent"
	}
	return strconv.FormatInt(n, 10), ""
}

func isCore(name string) bool {
	switch name {
	case "id", "source", "type", "specversion", "subject", "time", "datacontenttype", "dataschema":
		return true
	}
	return false
}

// stringText is the value of a JSON string. An escaped half of a surrogate pair
// is a fault, since no UTF-8 text has it.
func stringText(value json.RawMessage) (text, fault string) {
	if err := json.Unmarshal(value, &text); err != nil {
		return "", "is not a valid string"
	}
	if strings.ContainsRune(text, utf8.RuneError) && loneSurrogate(value) {
		return "", `has a \u escape that is half of a pair`
	}
	return text, ""
}

func loneSurrogate(value []byte) bool {
	const escape = 6 // \uXXXX
	unit := func(i int) int64 {
		if i+escape > len(value) || value[i] != '\\' || value[i+1] != 'u' {
			return -1
		}
		n, err := strconv.ParseInt(string(value[i+2:i+escape]), 16, 32)
		if err != nil {
			return -1
		}
		return n
	}
	for i := 0; i < len(value); i++ {
		if value[i] != '\\' {
			continue
		}
		u := unit(i)
		switch {
		case u >= 0xd800 && u < 0xdc00:
			if low := unit(i + escape); low < 0xdc00 || low > 0xdfff {
				return true
			}
			i += 2*escape - 1
		case u >= 0xdc00 && u <= 0xdfff:
			return true
		default:
			i++ // past the escaped character
		}
	}
	return false
}

// structuredData gives ev its data. JSON data is kept as the bytes that stand
// in the envelope; a string under another content type is the text itself.
func structuredData(ev *edge.Event, data, encoded json.RawMessage, place func(string) FieldFault) *FieldFault {
	fault := func(field, detail string) *FieldFault { return faultAt(place, field, detail) }
	if string(encoded) == "null" {
		encoded = nil
	}
	switch {
	case data != nil && encoded != nil:
		return fault("data_base64", "data and data_base64 are both given: send one of them")
	case encoded != nil:
		var text string
		if err := json.Unmarshal(encoded, &text); err != nil {
			return fault("data_base64", "must be a string")
		}
		body, err := io.ReadAll(base64.NewDecoder(base64.StdEncoding.Strict(), strings.NewReader(text)))
		if err != nil || strings.ContainsAny(text, "\r\n") {
			return fault("data_base64", "is not base64 (RFC 4648, with padding)")
		}
		ev.Data = body
	case data != nil && (ev.ContentType == "" || isJSON(ev.ContentType)):
		if ev.ContentType == "" {
			ev.ContentType = "application/json" // implied by the JSON format
		}
		ev.Data = data
	case data != nil:
		if data[0] != '"' {
			return fault("data", "must be a string, since datacontenttype does not say JSON; or use data_base64")
		}
		text, wrong := stringText(data)
		if wrong != "" {
			return fault("data", wrong)
		}
		ev.Data = []byte(text)
	}
	return nil
}

// jsonDepth is the deepest nesting of a JSON text. It needs no valid text.
func jsonDepth(data []byte) int {
	depth, deepest := 0, 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '{', '[':
			depth++
			deepest = max(deepest, depth)
		case '}', ']':
			depth--
		case '"':
			for i++; i < len(data) && data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
		}
	}
	return deepest
}

// pointerEscape is a member name in a JSON Pointer (RFC 6901), clipped.
func pointerEscape(name string) string {
	return pointerEscaper.Replace(clip(name))
}

var pointerEscaper = strings.NewReplacer("~", "~0", "/", "~1")
