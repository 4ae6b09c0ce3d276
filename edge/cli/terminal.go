package cli

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"fencepost/handlers"
)

// standardWidth is that of a terminal that does not tell.
const standardWidth = 80

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && windowWidth(f.Fd()) > 0
}

// widthOf is how many columns a table may have on w: those of the terminal, or
// what COLUMNS says of it; 0 (no limit) when w is none.
func widthOf(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	width := windowWidth(f.Fd())
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 && width > 0 {
		return n
	}
	return width
}

// maxShown bounds one field or line of output for people.
const maxShown = 4 << 10

// safe makes a text from outside harmless to a terminal, in one line: what is
// not printable is written as \xNN, \uNNNN or \UNNNNNNNN.
func safe(s string) string { return escape(handlers.Line(s, maxShown)) }

// escape writes out what a terminal might act on or not show. Newlines and tabs
// stay.
func escape(s string) string {
	clean := true
	for _, r := range s {
		if !shown(r) || r == utf8.RuneError {
			clean = false
			break
		}
	}
	if clean {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n <= 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case shown(r):
			b.WriteRune(r)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
		s = s[n:]
	}
	return b.String()
}

func shown(r rune) bool { return unicode.IsPrint(r) || r == '\n' || r == '\t' }

// notingWriter keeps the first error of writing, for those who do not look.
type notingWriter struct {
	w   io.Writer
	err error
}

func (n *notingWriter) Write(b []byte) (int, error) {
	c, err := n.w.Write(b)
	if n.err == nil {
		n.err = err
	}
	return c, err
}

// plainWriter passes text on with everything escaped that a terminal might act
// on: for what other packages print.
type plainWriter struct{ w io.Writer }

func (p plainWriter) Write(b []byte) (int, error) {
	if _, err := io.WriteString(p.w, escape(string(b))); err != nil {
		return 0, err
	}
	return len(b), nil
}

// jsonEscaper does the same to JSON, within its rules: what is not printable can
// only stand in strings, where it is written as \uNNNN.
type jsonEscaper struct{ w io.Writer }

func (j jsonEscaper) Write(b []byte) (int, error) {
	if _, err := j.w.Write(escapeJSON(b)); err != nil {
		return 0, err
	}
	return len(b), nil
}

func escapeJSON(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		switch {
		case r == utf8.RuneError && n <= 1:
			out = append(out, `\ufffd`...)
		case r < 0x7f || shown(r):
			out = append(out, b[:n]...)
		case r > 0xffff:
			r -= 0x10000
			out = fmt.Appendf(out, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		b = b[n:]
	}
	return out
}

// columnsOf is how many columns of a terminal s takes.
func columnsOf(s string) int {
	n := 0
	for _, r := range s {
		n += columns(r)
	}
	return n
}

func columns(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case r >= 0x1100 && r <= 0x115f, r >= 0x2e80 && r <= 0xa4cf, r >= 0xac00 && r <= 0xd7a3, r >= 0xf900 && r <= 0xfaff,
		r >= 0xfe30 && r <= 0xfe6f, r >= 0xff00 && r <= 0xff60, r >= 0xffe0 && r <= 0xffe6, r >= 0x1f300 && r <= 0x1faff,
		r >= 0x20000 && r <= 0x3fffd:
		return 2
	}
	return 1
}

// cut shortens s to so many columns and marks that it did.
func cut(s string, limit int) string {
	if columnsOf(s) <= limit {
		return s
	}
	used := 0
	for i, r := range s {
		if used += columns(r); used > limit-1 {
			return s[:i] + "…"
		}
	}
	return s
}
