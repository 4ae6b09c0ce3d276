package expression

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"strings"
	"unicode/utf8"

	"fencepost/edge"
)

// Env is one event as expressions see it, for one goroutine. What is decoded is
// decoded once, when the first expression asks for it.
type Env struct {
	event   *edge.Event
	decoded bool
	data    any
	dataErr error
	ext     map[string]any
	spent   int // steps of all evaluations so far
}

// NewEnv is the environment of e, which must not change while it is used.
func NewEnv(e *edge.Event) *Env { return &Env{event: e} }

// attribute is the value of a name, or a fault that says that it is missing.
func (v *Env) attribute(name string) (any, error) {
	s := ""
	switch name {
	case "id":
		s = v.event.ID
	case "source":
		s = v.event.Source
	case "type":
		s = v.event.Type
	case "subject":
		s = v.event.Subject
	case "time":
		s = v.event.Time
	case "datacontenttype":
		s = v.event.ContentType
	case "ext":
		return v.extensions(), nil
	default:
		return v.decode()
	}
	if s == "" {
		return nil, missingf("the event has no %s", name)
	}
	return s, nil
}

func (v *Env) extensions() map[string]any {
	if v.ext == nil {
		v.ext = make(map[string]any, len(v.event.Extensions))
		for name, value := range v.event.Extensions {
			v.ext[name] = value
		}
	}
	return v.ext
}

func (v *Env) decode() (any, error) {
	if !v.decoded {
		v.data, v.dataErr = decodeData(v.event.ContentType, v.event.Data)
		v.decoded = true
	}
	return v.data, v.dataErr
}

// decodeData is JSON decoded when the content type says JSON, or says nothing (as
// CloudEvents has it); else the data as a text.
func decodeData(contentType string, data []byte) (any, error) {
	if len(data) == 0 {
		return nil, missingf("the event has no data")
	}
	if !utf8.Valid(data) {
		return nil, faultf("data is not valid UTF-8")
	}
	if !isJSON(contentType) {
		return string(data), nil
	}
	if err := boundJSON(data); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, faultf("data is not valid JSON")
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, faultf("data is not valid JSON: something follows the value")
	}
	return v, nil
}

// isJSON reports whether a content type is that of JSON; "" is.
func isJSON(contentType string) bool {
	if contentType == "" {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		media, _, _ = strings.Cut(contentType, ";")
		media = strings.ToLower(strings.TrimSpace(media))
	}
	return media == "application/json" || media == "text/json" || strings.HasSuffix(media, "+json")
}

// boundJSON refuses data whose decoded form would be out of proportion, before
// it is decoded.
func boundJSON(data []byte) error {
	depth, values := 0, 1
	inText, escaped := false, false
	for _, c := range data {
		switch {
		case escaped:
			escaped = false
		case inText:
			escaped = c == '\\'
			inText = c != '"'
		case c == '"':
			inText = true
		case c == '[' || c == '{':
			depth++
			values++
		case c == ']' || c == '}':
			depth--
		case c == ',':
			values++
		}
		if depth > MaxDepth {
			return faultf("data is nested more than %d deep", MaxDepth)
		}
	}
	if values > MaxValues {
		return faultf("data has more than %d values", MaxValues)
	}
	return nil
}
