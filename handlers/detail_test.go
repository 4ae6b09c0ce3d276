package handlers_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/handlers"
)

func TestDetailIsSafeAndBounded(t *testing.T) {
	t.Parallel()
	secrets := []handlers.Secret{handlers.NewSecret("short"), handlers.NewSecret("short-and-long"), {}}
	for _, c := range []struct {
		name, head, text string
		truncated        bool
		want             string
	}{
		{"head alone", "HTTP 200 OK", "", false, "HTTP 200 OK"},
		{"text alone", "", "a\nb\tc", false, "a\nb\tc"},
		{"control", "h", "a\x00b\x1b[31m\r\x7f", false, "h\na\\x00b\\x1b[31m\\x0d\\x7f"},
		{"not UTF-8", "h", "\xff\xc0\xa0", false, "h\n\\xff\\xc0\\xa0"},
		{"C1, bidi, line separators", "h", "\u0085\u202e\u2066\u2028", false, `h` + "\n" + `\u0085\u202e\u2066\u2028`},
		{"umlaut", "h", "ü😀", false, "h\nü😀"},
		{"the longest secret first", "short", "x short-and-long y", false, "[redacted]\nx [redacted] y"},
		{"cut before", "h", "abc", true, "h\nabc\n[truncated]"},
		{"nothing and cut", "", "", true, "[truncated]"},
	} {
		require.Equal(t, c.want, handlers.Detail(c.head, []byte(c.text), c.truncated, secrets), c.name)
	}
	for _, unit := range []string{"x", "ü", "😀", "\x00", "\xff"} {
		d := handlers.Detail("head", []byte(strings.Repeat(unit, edge.MaxDetailBytes)), false, nil)
		require.LessOrEqual(t, len(d), edge.MaxDetailBytes)
		require.Greater(t, len(d), edge.MaxDetailBytes-32)
		require.True(t, strings.HasSuffix(d, "\n"+handlers.TruncatedMark))
		require.True(t, utf8.ValidString(d))
	}
}

func TestLineIsOneLine(t *testing.T) {
	t.Parallel()
	require.Equal(t, `a\nb\tc\x0d\x00`, handlers.Line("a\nb\tc\r\x00", 100))
	require.Equal(t, "abc [truncated]", handlers.Line("abcdef", 3))
	long := handlers.Line(strings.Repeat("\n", 1000), 100)
	require.NotContains(t, long, "\n")
	require.LessOrEqual(t, len(long), 100+len(handlers.TruncatedMark)+1)
}

func TestLongestSecret(t *testing.T) {
	t.Parallel()
	require.Equal(t, 3, handlers.LongestSecret([]handlers.Secret{handlers.NewSecret("a"), handlers.NewSecret("abc"), {}}))
	require.Zero(t, handlers.LongestSecret(nil))
}
