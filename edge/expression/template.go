package expression

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"fencepost/edge"
)

// Use is what a template's text is for. It decides what a text may hold, which is
// judged when the template is compiled and again for each text it makes.
type Use int

// Uses of templates.
const (
	// Plain is a text of any form: standard input, or a body.
	Plain Use = iota
	// JSON is a JSON document. A value stands in it as its JSON, and inside the
	// quotes of a JSON string as the text, escaped; so a value can never
	// become more than one value.
	JSON
	// Key is a target's key: not empty, at most [edge.MaxNameBytes], without
	// control characters.
	Key
	// Header is the value of an HTTP header: no control character but tab.
	Header
	// Argument is one argument of a program: no NUL, and never an option that
	// the event chose. A text that begins with the event's part must not begin
	// with "-"; after a "-" of the configuration the option's name must be
	// complete, up to its "=".
	Argument
	// Variable is the value of an environment variable: no NUL.
	Variable
)

// BodyUse is the use of a body of a content type: [JSON] or [Plain].
func BodyUse(contentType string) Use {
	if isJSON(contentType) {
		return JSON
	}
	return Plain
}

// Template is a text with ${...} in it. It is immutable.
type Template struct {
	use   Use
	parts []part
}

// part is a literal, or an expression.
type part struct {
	literal string
	x       *Expr
	quoted  bool // inside the quotes of a JSON string
}

// IsTemplate reports whether a text of the configuration is a template: it holds
// "${". $${ stands for the two characters themselves.
func IsTemplate(s string) bool { return strings.Contains(s, "${") }

// CompileTemplate compiles a text. The error says which ${...} and where in it is
// wrong and what is allowed; it wraps [edge.ErrInvalid].
func CompileTemplate(s string, use Use) (*Template, error) {
	t := &Template{use: use}
	err := t.split(s)
	switch {
	case len(s) > MaxSourceBytes:
		err = fmt.Errorf("the text has %d bytes, the limit is %d", len(s), MaxSourceBytes)
	case err == nil:
		err = t.check()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", edge.ErrInvalid, err)
	}
	return t, nil
}

// split finds the parts of s.
func (t *Template) split(s string) error {
	literal := ""
	for number := 1; ; {
		before, rest, found := strings.Cut(s, "${")
		literal += before
		if !found {
			break
		}
		if escaped, ok := strings.CutSuffix(literal, "$"); ok {
			literal, s = escaped+"${", rest
			continue
		}
		end := closing(rest)
		if end < 0 {
			return fmt.Errorf("${...} number %d has no }", number)
		}
		x, err := compile(rest[:end])
		if err != nil {
			return fmt.Errorf("${...} number %d: %w", number, err)
		}
		t.parts = append(t.parts, part{literal: literal}, part{x: x})
		literal, s = "", rest[end+1:]
		number++
	}
	t.parts = append(t.parts, part{literal: literal})
	return nil
}

// closing is the place of the } that ends an expression: one outside of texts,
// comments and other braces. -1 when there is none.
func closing(s string) int {
	depth := 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '"', '\'', '`':
			n := quotedLength(s[i:], c)
			if n < 0 {
				return -1
			}
			i += n - 1
		case '/':
			if n := commentLength(s[i:]); n > 0 {
				i += n - 1
			}
		case '{':
			depth++
		case '}':
			if depth == 0 {
				return i
			}
			depth--
		}
	}
	return -1
}

// quotedLength is the length of the text in quotes that begins s; -1 when it does
// not end.
func quotedLength(s string, quote byte) int {
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '\\' && quote != '`':
			i++
		case s[i] == quote:
			return i + 1
		}
	}
	return -1
}

func commentLength(s string) int {
	switch {
	case strings.HasPrefix(s, "//"):
		if i := strings.IndexByte(s, '\n'); i >= 0 {
			return i
		}
		return len(s)
	case strings.HasPrefix(s, "/*"):
		if i := strings.Index(s[2:], "*/"); i >= 0 {
			return i + 4
		}
		return len(s)
	}
	return 0
}

// check judges what is known before any event.
func (t *Template) check() error {
	number := 0
	for _, p := range t.parts {
		if p.x == nil {
			continue
		}
		number++
		if k := p.x.kind; t.use != JSON && (k == kindList || k == kindObject || k == kindNil) {
			return fmt.Errorf("${...} number %d gives %s, which has no text; write json(...) for its JSON", number, k)
		}
	}
	first := t.parts[0].literal
	switch t.use {
	case JSON:
		return t.checkJSON()
	case Argument:
		if len(t.parts) > 1 && strings.HasPrefix(first, "-") && !strings.Contains(first, "=") {
			return errors.New(`the event must not decide the name of an option: write the option up to its =, as in --name=${...}, or the value as an argument of its own`)
		}
	}
	for _, p := range t.parts {
		if err := t.use.allows(p.literal); err != nil {
			return err
		}
	}
	return nil
}

// allows reports a character that the use does not allow.
func (u Use) allows(s string) error {
	switch u {
	case Argument, Variable:
		if strings.IndexByte(s, 0) >= 0 {
			return faultf("the text has a NUL byte")
		}
	case Header, Key:
		for _, r := range s {
			if r < ' ' && (u == Key || r != '\t') || r == 0x7f || u == Key && r >= 0x80 && r <= 0x9f {
				return faultf("the text has a control character, such as a line end")
			}
		}
	}
	return nil
}

// Render makes the text for an event. An error is a fault of this event, or of
// the template: something missing or null without a default, a text that the
// use does not allow, or a limit. It names no data.
func (t *Template) Render(env *Env) (string, error) {
	f := &frame{env: env}
	var b strings.Builder
	number := 0
	for _, p := range t.parts {
		if p.x == nil {
			if err := f.made(len(p.literal)); err != nil {
				return "", err
			}
			b.WriteString(p.literal)
			continue
		}
		number++
		if err := t.write(f, &b, p); err != nil {
			return "", fmt.Errorf("${...} number %d: %w", number, err)
		}
	}
	return b.String(), t.judge(b.String())
}

func (t *Template) write(f *frame, b *strings.Builder, p part) error {
	v, err := p.x.value(f.env)
	if err != nil {
		return err
	}
	if t.use == JSON && !p.quoted {
		return f.writeJSON(b, v)
	}
	s, err := text(v)
	if err != nil {
		return err
	}
	if err := f.made(len(s)); err != nil {
		return err
	}
	if p.quoted {
		escapeJSON(b, s)
	} else {
		b.WriteString(s)
	}
	return nil
}

// judge is the last look at a whole text.
func (t *Template) judge(s string) error {
	if err := t.use.allows(s); err != nil {
		return err
	}
	switch {
	case t.use == Key && s == "":
		return faultf("the text is empty")
	case t.use == Key && len(s) > edge.MaxNameBytes:
		return faultf("the text has %d bytes, the limit is %d", len(s), edge.MaxNameBytes)
	case t.use == Argument && strings.HasPrefix(s, "-") && !strings.HasPrefix(t.parts[0].literal, "-"):
		return faultf(`the argument would begin with "-" and be taken for an option; write it as --name=${...}`)
	}
	return nil
}

// checkJSON finds which expressions stand inside quotes, and whether the whole is
// JSON with a value in place of each.
func (t *Template) checkJSON() error {
	var sample strings.Builder
	quoted, escaped := false, false
	for i := range t.parts {
		p := &t.parts[i]
		if p.x != nil {
			if escaped {
				return errors.New(`a \ stands before ${...}`)
			}
			p.quoted = quoted
			if quoted && (p.x.kind == kindList || p.x.kind == kindObject || p.x.kind == kindNil) {
				return fmt.Errorf("%s inside the quotes of a JSON string has no text; write it without the quotes", p.x.kind)
			}
			// Neither can be a part of what stands beside it.
			sample.WriteString(map[bool]string{true: "x", false: "null"}[quoted])
			continue
		}
		sample.WriteString(p.literal)
		for _, c := range []byte(p.literal) {
			switch {
			case escaped:
				escaped = false
			case c == '\\':
				escaped = quoted
			case c == '"':
				quoted = !quoted
			}
		}
	}
	if !utf8.ValidString(sample.String()) || !json.Valid([]byte(sample.String())) {
		return errors.New(`with a value in place of each ${...} it is not JSON`)
	}
	return nil
}
