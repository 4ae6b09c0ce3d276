package route_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"fencepost/edge"
	"fencepost/edge/route"
)

func TestExplain(t *testing.T) {
	t.Parallel()
	tenant, none := "tenant", ""
	r, err := route.New([]route.Rule{
		{Name: "all", Handler: "a"},
		{Name: "orders", Type: "order.*", Source: "/till/*", Handler: "b"},
		{Name: "large", When: "data.amount > 100", Handler: "c"},
		{Name: "twin", Type: "pay*", Handler: "a"},
		{Name: "tenant", Handler: "d", Key: &tenant},
		{Name: "refund", Subject: "refund-*", Handler: "d", Key: &none},
		{Name: "broken", When: "data.who.name == 'x'", Handler: "e"},
	})
	require.NoError(t, err)
	e := &edge.Event{ID: "1", Source: "/shop", Type: "payment", ContentType: "application/json", Data: []byte(`{"amount": 7}`)}
	vs := r.Explain(e)
	want := []struct {
		route string
		takes bool
		why   string // part of it, or of the fault
	}{
		{"all", true, ""},
		{"orders", false, `type "payment" does not fit "order.*"; source "/shop" does not fit "/till/*"`},
		{"large", false, `when is false: "data.amount > 100"`},
		{"twin", true, "route all leads to the same target"},
		{"tenant", true, "the event has no tenant"},
		{"refund", false, `the event has no subject, which must fit "refund-*"`},
		{"broken", true, "when: "},
	}
	require.Len(t, vs, len(want))
	for i, w := range want {
		require.Equal(t, w.route, vs[i].Route)
		require.Equal(t, w.takes, vs[i].Takes, w.route)
		require.Contains(t, vs[i].Why+vs[i].To.Fault, w.why, w.route)
	}
}

// Explain and Route never differ in what they take.
func TestExplainAgreesWithRoute(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.SampledFrom([]string{"*", "a", "a*", "*b", "a*b", "b"})
		var rules []route.Rule
		for i := range rapid.IntRange(0, 6).Draw(t, "rules") {
			rule := route.Rule{
				Name: string(rune('a' + i)), Type: pattern.Draw(t, "type"), Subject: pattern.Draw(t, "subject"),
				Handler: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "handler"),
				When:    rapid.SampledFrom([]string{"", "true", "type == 'ab'", "data.x > 1"}).Draw(t, "when"),
			}
			if key := rapid.SampledFrom([]string{"-", "", "subject", "ext"}).Draw(t, "key"); key != "-" {
				rule.Key = &key
			}
			rules = append(rules, rule)
		}
		r, err := route.New(rules)
		require.NoError(t, err)
		text := rapid.SampledFrom([]string{"a", "b", "ab", "axb"})
		e := &edge.Event{ID: "1", Source: "s", Type: text.Draw(t, "event type"), Subject: text.Draw(t, "event subject")}
		var taken []edge.Routed
		for _, v := range r.Explain(e) {
			if v.Takes && v.Why == "" {
				taken = append(taken, v.To)
			}
			require.Equal(t, !v.Takes, v.Why != "" && !strings.Contains(v.Why, "same target"))
		}
		require.Equal(t, r.Route(e), taken)
	})
}

func TestCovers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{"*", "*", true}, {"*", "a", true}, {"*", "a*b", true}, {"a*", "ab*", true}, {"a*", "a", true}, {"a", "a", true},
		{"a*", "*", false}, {"a", "a*", false}, {"a*b", "a*", false}, {"ab*", "a*", false}, {"*a*", "xa*y", true}, {"b", "a", false},
	} {
		require.Equal(t, tc.want, route.Covers(tc.a, tc.b), "%q covers %q", tc.a, tc.b)
	}
}
