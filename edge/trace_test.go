package edge_test

import (
	"strings"
	"testing"

	"fencepost/edge"

	"github.com/stretchr/testify/require"
)

const (
	traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	spanID  = "00f067aa0ba902b7"
	parent  = "00-" + traceID + "-" + spanID + "-01"
)

func TestParseTrace_Parent(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		parent:                                                 parent,
		"\t" + parent:                                          parent,
		" " + parent + "\t ":                                   parent,
		"00-" + traceID + "-" + spanID + "-00":                 "00-" + traceID + "-" + spanID + "-00",
		"00-" + traceID + "-" + spanID + "-03":                 "00-" + traceID + "-" + spanID + "-03",
		"00-" + traceID + "-" + spanID + "-ff":                 "00-" + traceID + "-" + spanID + "-03", // bits without a meaning
		"cc-" + traceID + "-" + spanID + "-01":                 parent,
		"cc-" + traceID + "-" + spanID + "-01-what-the-future": parent,
		"cc-" + traceID + "-" + spanID + "-01-":                parent,
	} {
		require.Equal(t, edge.Trace{Parent: want}, edge.ParseTrace([]string{in}, nil), in)
	}
	zeros := strings.Repeat("0", 32)
	for _, in := range []string{
		"", "00", "ff-" + traceID + "-" + spanID + "-01", "00-" + zeros + "-" + spanID + "-01", "00-" + traceID + "-" + zeros[:16] + "-01",
		"00-" + traceID[1:] + "-" + spanID + "-01", "00-" + traceID + "a-" + spanID + "-01", "00-" + traceID + "-" + spanID[1:] + "-01",
		parent + "-extra", parent + "-", parent + "x", "cc-" + traceID + "-" + spanID + "-01.what", "cc-" + traceID + "-" + spanID + "-01what",
		strings.ToUpper(parent), "00-" + strings.ToUpper(traceID) + "-" + spanID + "-01", "0g-" + traceID + "-" + spanID + "-01",
		"00_" + traceID + "-" + spanID + "-01", "00-" + traceID + "-" + spanID + "-0g", "00-" + traceID + "-" + spanID + "-1", "-" + parent[1:],
		"FF-" + traceID + "-" + spanID + "-01", parent + "," + parent,
	} {
		require.Equal(t, edge.Trace{}, edge.ParseTrace([]string{in}, []string{"a=1"}), "%q begins a new trace", in)
	}
	require.Equal(t, edge.Trace{}, edge.ParseTrace([]string{parent, parent}, nil), "two headers")
	require.Equal(t, edge.Trace{}, edge.ParseTrace(nil, []string{"a=1"}))
	require.Equal(t, traceID, edge.Trace{Parent: parent}.ID())
	require.Empty(t, edge.Trace{}.ID())
}

func TestParseTrace_State(t *testing.T) {
	t.Parallel()
	state := func(values ...string) string { return edge.ParseTrace([]string{parent}, values).State }
	member := func(key string, n int) string { return key + "=" + strings.Repeat("v", n) }
	for _, c := range []struct {
		in   []string
		want string
	}{
		{[]string{"a=1"}, "a=1"},
		{[]string{"rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"}, "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"},
		{[]string{"a=1", " b=2\t,,c=3"}, "a=1,b=2,c=3"},
		{[]string{"t0@sys=x y!", "a_-*/0=~"}, "t0@sys=x y!,a_-*/0=~"},
		{[]string{""}, ""}, {[]string{" , "}, ""},
		{[]string{"a"}, ""}, {[]string{"a="}, ""}, {[]string{"=1"}, ""}, {[]string{"A=1"}, ""}, {[]string{"a=1=2"}, ""}, {[]string{"a=é"}, ""},
		{[]string{"a@=1"}, ""}, {[]string{"@b=1"}, ""}, {[]string{"a@b@c=1"}, ""}, {[]string{"_a=1"}, ""}, {[]string{"a=\x01"}, ""},
		{[]string{"a=1,a=2"}, ""},
		{[]string{member("a", 256)}, member("a", 256)}, {[]string{member("a", 257)}, ""},
		{[]string{member(strings.Repeat("k", 257), 1)}, ""},
		{[]string{member("a", 200) + "," + member("b", 200) + ",c=1," + member("d", 200)}, member("a", 200) + "," + member("b", 200) + ",c=1"},
	} {
		require.Equal(t, c.want, state(c.in...), c.in)
	}
	many := func(n int) string {
		var ms []string
		for i := range n {
			ms = append(ms, "k"+strings.Repeat("x", i)+"=1")
		}
		return strings.Join(ms, ",")
	}
	require.Equal(t, many(20), state(many(20)))
	require.NotEmpty(t, state(many(32)))
	require.LessOrEqual(t, len(state(many(32))), 512)
	require.Empty(t, state(many(33)), "more than 32 members")
}

func TestClaim_Trace(t *testing.T) {
	t.Parallel()
	claim := func(ev edge.Event, fence edge.ExecutionID) *edge.Claim {
		return &edge.Claim{Event: &ev, EventID: "evt-n-1", DeliveryID: "dlv-n-1", Fence: fence}
	}
	valid := func(tr edge.Trace) {
		require.Equal(t, tr, edge.ParseTrace([]string{tr.Parent}, []string{tr.State}), tr.Parent)
	}
	origin := map[string]string{"traceparent": "00-" + strings.Repeat("1", 32) + "-" + spanID + "-00", "tracestate": "o=1"}
	for name, c := range map[string]struct {
		ev        edge.Event
		id, state string
		flags     string
	}{
		"hop":            {edge.Event{Trace: edge.Trace{Parent: parent, State: "a=1"}}, traceID, "a=1", "01"},
		"hop and origin": {edge.Event{Trace: edge.Trace{Parent: parent, State: "a=1"}, Extensions: origin}, traceID, "a=1", "01"},
		"origin":         {edge.Event{Extensions: origin}, strings.Repeat("1", 32), "o=1", "00"},
	} {
		first, second := claim(c.ev, 1).Trace(), claim(c.ev, 2).Trace()
		valid(first)
		require.Equal(t, c.id, first.ID(), name)
		require.Equal(t, c.id, second.ID(), "%s: a retry is in the same trace", name)
		require.Equal(t, c.state, first.State, name)
		require.NotEqual(t, first.Parent, second.Parent, "%s: each attempt has a parent id of its own", name)
		require.NotContains(t, first.Parent, spanID, name)
		require.True(t, strings.HasSuffix(first.Parent, c.flags), name)
		require.Equal(t, first, claim(c.ev, 1).Trace(), name)
	}
	fresh := claim(edge.Event{Extensions: map[string]string{"traceparent": "of-nothing"}}, 1).Trace()
	valid(fresh)
	require.Equal(t, fresh.ID(), claim(edge.Event{}, 2).Trace().ID(), "the same new trace for every attempt")
	other := edge.Event{}
	require.NotEqual(t, fresh.ID(), other.TraceOf("evt-n-2").ID())
}
