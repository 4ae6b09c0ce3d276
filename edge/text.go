package edge

import (
	"fmt"
	"regexp"
	"runtime/debug"
	"strings"
	"unicode/utf8"
)

// maxTextBytes bounds text that the engine takes from panics and routers.
const maxTextBytes = 512

// truncated marks text that was cut.
const truncated = " [truncated]"

// secretName is a name after which a secret often stands.
const secretName = `(?:authorization|password|passwd|secret|token|api[_-]?key|cookie)["']?`

// secretLike finds what often holds a secret in free text: user information in
// a URL, and the value after a telling name. Its second group is what stays. A
// reference to a secret, env:NAME: or file:/path:, is not secret and stays whole,
// with the telling words around it and what is said of it.
var secretLike = regexp.MustCompile(`(?i)(?:` + secretName + `:\s)?(?-i:secret missing:\s)?\b(?-i:env:[A-Za-z_][A-Za-z0-9_]*|file:/[^\s:=?&@]*):\s` +
	`|(://)[^/\s@]+@|(` + secretName + `\s*[:=]\s*(?:bearer\s+|basic\s+)?)[^\s,;&]+`)

// scrub makes free text fit to be stored and shown: no control characters, no
// invalid UTF-8, nothing that looks like a secret, at most limit bytes.
func scrub(s string, limit int) string {
	if len(s) > 4*limit {
		s = s[:4*limit]
	}
	s = strings.Map(func(r rune) rune {
		if r < 0x20 || r >= 0x7f && r <= 0x9f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	return cut(redact(s), limit)
}

// redact puts *** in place of what looks like a secret.
func redact(s string) string {
	var b strings.Builder
	done := 0
	for _, m := range secretLike.FindAllStringSubmatchIndex(s, -1) {
		b.WriteString(s[done:m[0]])
		done = m[1]
		switch {
		case m[2] >= 0:
			b.WriteString("://***@")
		case m[4] >= 0:
			b.WriteString(s[m[4]:m[5]] + "***")
		default:
			b.WriteString(s[m[0]:m[1]])
		}
	}
	return b.String() + s[done:]
}

// cut bounds s to limit bytes at a rune's edge and marks that it was cut.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	end := limit - len(truncated)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + truncated
}

// panicText describes a recovered panic without its stack.
func panicText(p any) string {
	return scrub(fmt.Sprintf("panic: %v", p), maxTextBytes)
}

// panicAttrs are the log attributes of a recovered panic, with its stack. It is
// called by the function that recovers.
func panicAttrs(p any) []any {
	return []any{"panic", panicText(p), "stack", string(debug.Stack())}
}

// validDetail makes a handler's detail fit to be stored.
func validDetail(s string) string {
	return cut(strings.ToValidUTF8(cut(s, MaxDetailBytes), "?"), MaxDetailBytes)
}
