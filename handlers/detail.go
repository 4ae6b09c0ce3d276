package handlers

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"fencepost/edge"
)

// TruncatedMark stands at the end of a text of which a part is missing.
const TruncatedMark = "[truncated]"

// Detail makes the detail of a result: a head of our own words, then text from
// outside made safe. Every occurrence of a secret is replaced, bytes that are
// not UTF-8 and control characters other than newline and tab are written as
// \xNN or \u00NN. The whole is at most [edge.MaxDetailBytes]; when something is missing,
// or truncated says that it is, [TruncatedMark] ends it.
func Detail(head string, text []byte, truncated bool, secrets []Secret) string {
	var b strings.Builder
	safeText(&b, scrub([]byte(head), secrets))
	if len(text) > 0 {
		if head != "" {
			b.WriteByte('\n')
		}
		safeText(&b, scrub(text, secrets))
	}
	return capText(b.String(), edge.MaxDetailBytes, truncated)
}

// Line makes text from outside safe to stand within one line: as [Detail], and
// newline and tab are escaped too. It is cut to limit bytes with the mark.
func Line(text string, limit int) string {
	var b strings.Builder
	truncated := len(text) > limit
	if truncated {
		text = text[:limit] // escaping only makes it longer
	}
	safeText(&b, []byte(text))
	s := lineEscaper.Replace(b.String())
	return strings.ReplaceAll(capText(s, limit+len(TruncatedMark)+1, truncated), "\n", " ")
}

// LongestSecret is the length of the longest of secrets in bytes. Who cuts a
// text before Detail must keep this much more, so that no part of a secret
// stands unseen at the cut.
func LongestSecret(secrets []Secret) int {
	n := 0
	for _, s := range secrets {
		n = max(n, len(s.Reveal()))
	}
	return n
}

// leastRedacted is the least length of a secret that is looked for in texts. What
// is shorter hides nothing, and replacing it everywhere would make texts
// unreadable.
const leastRedacted = 4

func scrub(text []byte, secrets []Secret) []byte {
	values := make([]string, 0, len(secrets))
	for _, s := range secrets {
		if v := s.Reveal(); len(v) >= leastRedacted {
			values = append(values, v)
		}
	}
	// The longest first: one secret may be a part of another.
	slices.SortFunc(values, func(a, b string) int { return len(b) - len(a) })
	for _, v := range values {
		text = bytes.ReplaceAll(text, []byte(v), []byte(redacted))
	}
	return text
}

func safeText(b *strings.Builder, text []byte) {
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && n <= 1:
			fmt.Fprintf(b, `\x%02x`, text[0])
		case r == '\n' || r == '\t':
			b.WriteRune(r)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(b, `\x%02x`, r)
		case r >= 0x80 && r <= 0x9f || bidiControl(r):
			fmt.Fprintf(b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
		text = text[n:]
	}
}

// bidiControl reports characters that make a terminal show a text in another
// order than it has, and the two that some programs take for a line end.
func bidiControl(r rune) bool {
	return r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0x2028 || r == 0x2029
}

func capText(s string, limit int, truncated bool) string {
	if len(s) <= limit && !truncated {
		return s
	}
	end := min(len(s), limit-len(TruncatedMark)-1)
	for end > 0 && end < len(s) && !utf8.RuneStart(s[end]) {
		end--
	}
	if end == 0 {
		return TruncatedMark
	}
	return s[:end] + "\n" + TruncatedMark
}

// lineEscaper keeps a text in one line.
var lineEscaper = strings.NewReplacer("\n", `\n`, "\t", `\t`)
