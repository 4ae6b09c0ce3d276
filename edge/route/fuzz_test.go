package route_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/route"
)

// fits is the plain meaning of a pattern, by a table of all prefixes.
func fits(pattern, s string) bool {
	row := make([]bool, len(s)+1) // row[j]: the pattern so far fits s[:j]
	row[0] = true
	for _, c := range []byte(pattern) {
		next := make([]bool, len(s)+1)
		for j := range next {
			if c == '*' {
				next[j] = row[j] || j > 0 && next[j-1]
			} else {
				next[j] = j > 0 && row[j-1] && s[j-1] == c
			}
		}
		row = next
	}
	return row[len(s)]
}

func FuzzPattern(f *testing.F) {
	for _, seed := range [][2]string{
		{"*", ""}, {"a*", "a"}, {"*a", "aa"}, {"a*a", "a"}, {"a*b*a", "aba"}, {"**", "x"}, {"a**b", "axb"},
		{"*ab*ab", "abab"}, {"*ab*ab*", "abab"}, {"*aab", "aaab"}, {"a*bc*bc", "abcbc"}, {"ab*ba", "aba"},
		{strings.Repeat("*a", 200) + "b", strings.Repeat("a", 512)}, {"*é", "café"}, {"order.*", "order.paid.twice"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, pattern, s string) {
		if len(s) > edge.MaxNameBytes {
			s = s[:edge.MaxNameBytes]
		}
		r, err := route.New([]route.Rule{{Name: "r", Handler: "h", Type: pattern}})
		if err != nil {
			require.ErrorIs(t, err, edge.ErrInvalid)
			require.True(t, len(pattern) > edge.MaxNameBytes || strings.ContainsFunc(pattern, forbidden) || !utf8.ValidString(pattern), "%q: %v", pattern, err)
			return
		}
		if pattern == "" {
			pattern = "*"
		}
		require.Equal(t, fits(pattern, s), len(r.Route(&edge.Event{Type: s})) == 1, "pattern %q, text %q", pattern, s)
	})
}

func forbidden(r rune) bool { return r < ' ' || r >= 0x7f && r <= 0x9f || r == utf8.RuneError }

func FuzzKey(f *testing.F) {
	f.Add("subject", "/s", "t", "id", "sub", "ext", "value")
	f.Add("ext", "/s", "t", "id", "", "ext", "")
	f.Add("", "/s", "t", "id", "!route", "partitionkey", "!route")
	f.Add("data", "", "", "", "", "", strings.Repeat("x", 513))
	f.Fuzz(func(t *testing.T, name, source, eventType, id, subject, ext, value string) {
		e := &edge.Event{Source: source, Type: eventType, ID: id, Subject: subject, Extensions: map[string]string{ext: value}}
		r, err := route.New([]route.Rule{{Name: "named", Handler: "a", Key: &name}, {Name: "default", Handler: "b"}})
		if err != nil {
			require.ErrorIs(t, err, edge.ErrInvalid)
			require.NotContains(t, []string{"", "id", "source", "type", "subject", "partitionkey"}, name)
			return
		}
		got := r.Route(e)
		require.Len(t, got, 2)
		attribute := map[string]string{"id": id, "source": source, "type": eventType, "subject": subject}
		want, known := attribute[name]
		if !known && name == ext {
			want = value
		}
		requireKey(t, got[0], want, name == "")
		requireKey(t, got[1], edge.DefaultKey(e), true)
	})
}

// requireKey checks one answer: the value itself, or no key and a reason.
func requireKey(t *testing.T, got edge.Routed, want string, emptyIsRight bool) {
	t.Helper()
	if got.Route == "named" && emptyIsRight {
		want = "" // one line, whatever the event says
	}
	bad := len(want) > edge.MaxNameBytes || want == edge.RouteErrorKey || want == "" && !emptyIsRight
	if bad {
		require.NotEmpty(t, got.Fault)
		require.Empty(t, got.Key)
		return
	}
	require.Empty(t, got.Fault)
	require.Equal(t, want, got.Key)
}
