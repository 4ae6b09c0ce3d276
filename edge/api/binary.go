package api

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"fencepost/edge"
)

// headerPrefix begins the headers that carry attributes in the binary mode of
// CloudEvents, in the form that Go gives them.
const headerPrefix = "Ce-"

func hasAttributeHeader(h http.Header) bool {
	for name := range h {
		if strings.HasPrefix(name, headerPrefix) {
			return true
		}
	}
	return false
}

// binary reads an event whose attributes are ce- headers and whose data is the
// body (CloudEvents 1.0, HTTP protocol binding 3.1).
func (d *decoder) binary() (Intent, error) {
	if err := d.noQuery(); err != nil {
		return Intent{}, err
	}
	attributes, err := attributeHeaders(d.r.Header)
	if err != nil {
		return Intent{}, err
	}
	ev := edge.Event{ContentType: d.contentType}
	if fault := assign(&ev, attributes); fault != nil {
		fault.Header, fault.Pointer = "ce-"+strings.TrimPrefix(fault.Pointer, "/"), ""
		return Intent{}, invalid(*fault)
	}
	if ev.Data, err = readBody(d.r, d.maxBody); err != nil {
		return Intent{}, err
	}
	return d.one(ev, false, headerPlace)
}

// headerPlace is where the binary mode has a field.
func headerPlace(field string) FieldFault {
	switch field {
	case "datacontenttype":
		return FieldFault{Header: "Content-Type"}
	case "data", "attributes", "extensions":
		return FieldFault{}
	}
	return FieldFault{Header: "ce-" + field}
}

// attributeHeaders collects the ce- headers, decoded. The order of the faults
// does not depend on the order of a map.
func attributeHeaders(h http.Header) (map[string]string, error) {
	var names []string
	for name := range h {
		if strings.HasPrefix(name, headerPrefix) {
			names = append(names, name)
		}
	}
	if len(names) > edge.MaxAttributes {
		return nil, invalid(FieldFault{Detail: fmt.Sprintf("%d attributes, the limit is %d", len(names), edge.MaxAttributes)})
	}
	slices.Sort(names)
	attributes := make(map[string]string, len(names))
	for _, header := range names {
		name := strings.ToLower(header[len(headerPrefix):])
		place := FieldFault{Header: clip("ce-" + name)}
		if values := h[header]; len(values) > 1 {
			place.Detail = "is given more than once"
			return nil, invalid(place)
		}
		if !validName(name) {
			place.Detail = nameRule
			return nil, invalid(place)
		}
		if name == "data" || name == "datacontenttype" {
			place.Detail = "is not used in this form: the data is the body, its type is Content-Type"
			return nil, invalid(place)
		}
		value, fault := decodeHeader(h[header][0])
		if fault != "" {
			place.Detail = fault
			return nil, invalid(place)
		}
		attributes[name] = value
	}
	return attributes, nil
}

const nameRule = "a name has 1 to 20 lower-case letters and digits"

func validName(name string) bool {
	if name == "" || len(name) > 20 {
		return false
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// assign gives ev its attributes. The fault's pointer is the attribute's name.
func assign(ev *edge.Event, attributes map[string]string) *FieldFault {
	switch v, ok := attributes["specversion"]; {
	case !ok:
		return &FieldFault{Pointer: "/specversion", Detail: `is required and must be "1.0"`}
	case v != "1.0":
		return &FieldFault{Pointer: "/specversion", Detail: fmt.Sprintf(`is %q, only "1.0" is supported`, clip(v))}
	}
	for name, value := range attributes {
		switch name {
		case "specversion":
		case "id":
			ev.ID = value
		case "source":
			ev.Source = value
		case "type":
			ev.Type = value
		case "subject":
			ev.Subject = value
		case "time":
			ev.Time = value
		case "datacontenttype":
			ev.ContentType = value
		default:
			if ev.Extensions == nil {
				ev.Extensions = make(map[string]string)
			}
			ev.Extensions[name] = value
		}
	}
	return nil
}

// decodeHeader undoes the encoding of an attribute in a header: quotes, if the
// value has them, then percent-encoding. It accepts lower-case digits and
// needless escapes, and refuses what is not UTF-8 in the end.
func decodeHeader(s string) (value, fault string) {
	if strings.HasPrefix(s, `"`) {
		var ok bool
		if s, ok = unquoteHeader(s); !ok {
			return "", "has a quote that is not closed, or text after it"
		}
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			out = append(out, s[i])
			continue
		}
		if i+2 >= len(s) || unhex(s[i+1]) < 0 || unhex(s[i+2]) < 0 {
			return "", "has a % without two hexadecimal digits: write % as %25"
		}
		out = append(out, byte(unhex(s[i+1])<<4|unhex(s[i+2])))
		i += 2
	}
	if !utf8.Valid(out) {
		return "", "is not valid UTF-8 after decoding"
	}
	return string(out), ""
}

// unquoteHeader reads a quoted string of HTTP (RFC 9110 5.6.4), in which a
// backslash may stand before any character.
func unquoteHeader(s string) (string, bool) {
	out := make([]byte, 0, len(s))
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '"':
			return string(out), i == len(s)-1
		case '\\':
			i++
			if i == len(s) {
				return "", false
			}
		}
		out = append(out, s[i])
	}
	return "", false
}

// encodeHeader is the form of an attribute in a header: space, quote, percent
// and everything outside printable ASCII are percent-encoded.
func encodeHeader(s string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for _, c := range []byte(s) {
		if c > 0x20 && c < 0x7f && c != '"' && c != '%' {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(digits[c>>4])
		b.WriteByte(digits[c&15])
	}
	return b.String()
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
