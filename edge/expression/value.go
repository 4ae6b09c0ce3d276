package expression

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// The Go types of values: nil, bool, string, json.Number, []any, map[string]any.

type kind uint8

const (
	kindAny kind = iota // not known before the event
	kindNil
	kindBool
	kindText
	kindNumber
	kindList
	kindObject
)

var kindNames = [...]string{"a value", "null", "true or false", "a text", "a number", "a list", "an object"}

func (k kind) String() string { return kindNames[k] }

func kindOf(v any) kind {
	switch v.(type) {
	case bool:
		return kindBool
	case string:
		return kindText
	case json.Number:
		return kindNumber
	case []any:
		return kindList
	case map[string]any:
		return kindObject
	}
	return kindNil
}

// fault is an error of an evaluation. Its text names no data.
type fault struct {
	text    string
	missing bool // something is not there, which ?? and ?. mend
}

func (f *fault) Error() string { return f.text }

func faultf(format string, args ...any) error {
	return &fault{text: fmt.Sprintf(format, args...)}
}

func missingf(format string, args ...any) error {
	return &fault{text: fmt.Sprintf(format, args...), missing: true}
}

func isMissing(err error) bool {
	var f *fault
	return errors.As(err, &f) && f.missing
}

// equal compares two values. Of two kinds, of which none is null, it is a fault.
func (f *frame) equal(a, b any) (bool, error) {
	ka, kb := kindOf(a), kindOf(b)
	if ka != kb && ka != kindNil && kb != kindNil {
		return false, faultf("%s is compared with %s", ka, kb)
	}
	return f.same(a, b)
}

// same is equal for values inside of others, where kinds may differ.
func (f *frame) same(a, b any) (bool, error) {
	if err := f.step(1); err != nil {
		return false, err
	}
	if kindOf(a) != kindOf(b) {
		return false, nil
	}
	switch x := a.(type) {
	case bool:
		return x == b.(bool), nil
	case string:
		y := b.(string)
		if len(x) != len(y) {
			return false, nil
		}
		return x == y, f.step(len(x) / bytesPerStep)
	case json.Number:
		c, err := f.compareNumbers(x, b.(json.Number))
		return c == 0, err
	case []any:
		return f.sameLists(x, b.([]any))
	case map[string]any:
		return f.sameObjects(x, b.(map[string]any))
	}
	return true, nil
}

func (f *frame) sameLists(a, b []any) (bool, error) {
	if len(a) != len(b) {
		return false, nil
	}
	for i := range a {
		if ok, err := f.same(a[i], b[i]); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

func (f *frame) sameObjects(a, b map[string]any) (bool, error) {
	if len(a) != len(b) {
		return false, nil
	}
	names, err := f.names(a) // in order, so that the steps are the same each time
	if err != nil {
		return false, err
	}
	for _, name := range names {
		y, there := b[name]
		if !there {
			return false, nil
		}
		if ok, err := f.same(a[name], y); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// names are the names in an object, in order.
func (f *frame) names(x map[string]any) ([]string, error) {
	if err := f.step(len(x)); err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(x)), nil
}

func (f *frame) compareNumbers(a, b json.Number) (int, error) {
	if err := f.step((len(a) + len(b)) / bytesPerStep); err != nil {
		return 0, err
	}
	return compareNumbers(a, b)
}

// order is the order of two numbers or two texts.
func (f *frame) order(a, b any) (int, error) {
	switch x := a.(type) {
	case json.Number:
		if y, ok := b.(json.Number); ok {
			return f.compareNumbers(x, y)
		}
	case string:
		if y, ok := b.(string); ok {
			return strings.Compare(x, y), f.step(min(len(x), len(y)) / bytesPerStep)
		}
	}
	return 0, faultf("%s and %s have no order; two numbers or two texts have", kindOf(a), kindOf(b))
}

// text is the text of a value in a template: that of a text, a number as it is
// written, true or false. Nothing else has one.
func text(v any) (string, error) {
	switch x := v.(type) {
	case string:
		return x, nil
	case json.Number:
		return string(x), nil
	case bool:
		if x {
			return "true", nil
		}
		return "false", nil
	case nil:
		return "", faultf("it is null; give a default with ??")
	}
	return "", faultf("%s has no text; write json(...) for its JSON", kindOf(v))
}

// writeJSON writes a value as compact JSON, names in order, numbers as they are
// written.
func (f *frame) writeJSON(b *strings.Builder, v any) error {
	if err := f.step(1); err != nil {
		return err
	}
	before := b.Len()
	switch x := v.(type) {
	case nil:
		b.WriteString("null")
	case bool, json.Number:
		s, err := text(x)
		if err != nil {
			return err
		}
		b.WriteString(s)
	case string:
		writeJSONText(b, x)
	case []any:
		for i, item := range x {
			b.WriteByte("[,"[min(i, 1)])
			if err := f.writeJSON(b, item); err != nil {
				return err
			}
		}
		if len(x) == 0 {
			b.WriteByte('[')
		}
		b.WriteByte(']')
		return nil
	case map[string]any:
		return f.writeJSONObject(b, x)
	}
	return f.made(b.Len() - before)
}

func (f *frame) writeJSONObject(b *strings.Builder, x map[string]any) error {
	names, err := f.names(x)
	if err != nil {
		return err
	}
	b.WriteByte('{')
	for i, name := range names {
		if i > 0 {
			b.WriteByte(',')
		}
		writeJSONText(b, name)
		b.WriteByte(':')
		if err := f.made(len(name) + 4); err != nil {
			return err
		}
		if err := f.writeJSON(b, x[name]); err != nil {
			return err
		}
	}
	b.WriteByte('}')
	return nil
}

func writeJSONText(b *strings.Builder, s string) {
	b.WriteByte('"')
	escapeJSON(b, s)
	b.WriteByte('"')
}

// escapeJSON writes what stands between the quotes of a JSON string.
func escapeJSON(b *strings.Builder, s string) {
	const hex = "0123456789abcdef"
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x20 || r == 0x7f:
			b.WriteString(`\u00`)
			b.WriteByte(hex[r>>4])
			b.WriteByte(hex[r&15])
		case r == 0x2028 || r == 0x2029: // line ends to some programs
			b.WriteString(`\u202`)
			b.WriteByte(hex[r&15])
		default:
			b.WriteRune(r)
		}
	}
}

// length is that of a list or object, or the characters of a text.
func length(v any) (int, error) {
	switch x := v.(type) {
	case string:
		return utf8.RuneCountInString(x), nil
	case []any:
		return len(x), nil
	case map[string]any:
		return len(x), nil
	}
	return 0, faultf("%s has no length", kindOf(v))
}
