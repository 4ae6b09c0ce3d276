package route_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/route"
)

func key(s string) *string { return &s }

func newRouter(t *testing.T, rules ...route.Rule) *route.Router {
	t.Helper()
	r, err := route.New(rules)
	require.NoError(t, err)
	return r
}

func event() *edge.Event {
	return &edge.Event{
		ID: "e1", Source: "/shop/1", Type: "order.paid", Subject: "order-7",
		Extensions: map[string]string{"partitionkey": "till-3", "region": "north"},
	}
}

func TestRouteMatchesTypeSourceAndSubject(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		rule route.Rule
		want bool
	}{
		{"all by default", route.Rule{}, true},
		{"exact", route.Rule{Type: "order.paid", Source: "/shop/1", Subject: "order-7"}, true},
		{"star passes dots", route.Rule{Type: "*d"}, true},
		{"prefix", route.Rule{Type: "order.*"}, true},
		{"a star may stand for nothing", route.Rule{Type: "order.paid*"}, true},
		{"another type", route.Rule{Type: "order.pai"}, false},
		{"a dot is a dot", route.Rule{Type: "orderxpaid"}, false},
		{"case counts", route.Rule{Type: "Order.*"}, false},
		{"another source", route.Rule{Type: "*", Source: "/shop/2"}, false},
		{"another subject", route.Rule{Subject: "order-8*"}, false},
		{"no sign but * is special", route.Rule{Type: "order.p?id"}, false},
		{"no sets", route.Rule{Type: "order.[p]aid"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.rule.Name, tc.rule.Handler = "r", "h"
			require.Equal(t, tc.want, len(newRouter(t, tc.rule).Route(event())) == 1)
		})
	}
}

func TestRouteWithoutSubject(t *testing.T) {
	t.Parallel()
	e := event()
	e.Subject = ""
	require.Len(t, newRouter(t, route.Rule{Name: "r", Handler: "h", Subject: "*"}).Route(e), 1)
	require.Empty(t, newRouter(t, route.Rule{Name: "r", Handler: "h", Subject: "?*"}).Route(e))
	require.Empty(t, newRouter(t, route.Rule{Name: "r", Handler: "h", Subject: "a*"}).Route(e))
}

func TestKeyOfATarget(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		key   *string
		want  string
		fault string
	}{
		"default is partitionkey": {nil, "till-3", ""},
		"one line":                {key(""), "", ""},
		"id":                      {key("id"), "e1", ""},
		"source":                  {key("source"), "/shop/1", ""},
		"type":                    {key("type"), "order.paid", ""},
		"subject":                 {key("subject"), "order-7", ""},
		"partitionkey":            {key("partitionkey"), "till-3", ""},
		"an extension":            {key("region"), "north", ""},
		"a missing extension":     {key("zone"), "", "key: the event has no zone"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := newRouter(t, route.Rule{Name: "r", Handler: "h", Key: tc.key, TTL: 1500 * time.Millisecond}).Route(event())
			require.Equal(t, []edge.Routed{{Route: "r", Handler: "h", Key: tc.want, TTLMS: 1500, Fault: tc.fault}}, got)
		})
	}
}

func TestDefaultKeyFallsBack(t *testing.T) {
	t.Parallel()
	r := newRouter(t, route.Rule{Name: "r", Handler: "h"})
	e := event()
	delete(e.Extensions, "partitionkey")
	require.Equal(t, "order-7", r.Route(e)[0].Key)
	e.Subject = ""
	require.Equal(t, []edge.Routed{{Route: "r", Handler: "h"}}, r.Route(e))
}

func TestMissingSubjectIsAFaultAndLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	r := newRouter(t,
		route.Rule{Name: "bad", Handler: "a", Key: key("subject")},
		route.Rule{Name: "bad-too", Handler: "a", Key: key("zone")},
		route.Rule{Name: "bad-there", Handler: "b", Key: key("zone")},
		route.Rule{Name: "good", Handler: "a", Key: key("")},
	)
	e := event()
	e.Subject = ""
	got := r.Route(e)
	require.Equal(t, []edge.Routed{
		{Route: "bad", Handler: "a", Fault: "key: the event has no subject"},
		{Route: "bad-there", Handler: "b", Fault: "key: the event has no zone"},
		{Route: "good", Handler: "a"},
	}, got)
}

func TestTwoRoutesToOneTargetMakeOneDelivery(t *testing.T) {
	t.Parallel()
	r := newRouter(t,
		route.Rule{Name: "first", Type: "order.*", Handler: "h", Key: key("subject"), TTL: time.Hour},
		route.Rule{Name: "second", Type: "*.paid", Handler: "h", Key: key("subject")},
		route.Rule{Name: "other-key", Handler: "h", Key: key("id")},
		route.Rule{Name: "other-handler", Handler: "g", Key: key("subject")},
	)
	var names []string
	for _, to := range r.Route(event()) {
		names = append(names, to.Route)
	}
	require.Equal(t, []string{"first", "other-key", "other-handler"}, names)
}

func TestKeyIsBounded(t *testing.T) {
	t.Parallel()
	e := event()
	for _, k := range []*string{nil, key("partitionkey"), key("region")} {
		r := newRouter(t, route.Rule{Name: "r", Handler: "h", Key: k})
		e.Extensions = map[string]string{"partitionkey": strings.Repeat("k", 512), "region": strings.Repeat("r", 512)}
		require.Empty(t, r.Route(e)[0].Fault)
		require.Len(t, r.Route(e)[0].Key, 512)
		e.Extensions = map[string]string{"partitionkey": strings.Repeat("k", 513), "region": strings.Repeat("r", 513)}
		require.Contains(t, r.Route(e)[0].Fault, "513 bytes, the limit is 512")
		require.Empty(t, r.Route(e)[0].Key)
	}
}

// No event may choose the target that is kept for route faults.
func TestReservedKeyIsAFault(t *testing.T) {
	t.Parallel()
	e := event()
	e.Extensions["partitionkey"] = edge.RouteErrorKey
	got := newRouter(t, route.Rule{Name: "r", Handler: "h"}).Route(e)
	require.Equal(t, []edge.Routed{{Route: "r", Handler: "h", Fault: `the default key is "!route", which is reserved`}}, got)
}

func TestNewRefusesBadRules(t *testing.T) {
	t.Parallel()
	good := route.Rule{Name: "r", Handler: "h"}
	for name, tc := range map[string]struct {
		change func(*route.Rule)
		want   string
	}{
		"no name":           {func(r *route.Rule) { r.Name = "" }, "route 2: the name is missing"},
		"a name twice":      {func(r *route.Rule) { r.Name = "ok" }, `route "ok": the name is given twice`},
		"no handler":        {func(r *route.Rule) { r.Handler = "" }, `route "r": the handler is missing`},
		"a negative ttl":    {func(r *route.Rule) { r.TTL = -1 }, "ttl"},
		"a ttl of no ms":    {func(r *route.Rule) { r.TTL = time.Microsecond }, "ttl"},
		"a long pattern":    {func(r *route.Rule) { r.Type = strings.Repeat("*", 513) }, "type: the pattern has 513 bytes"},
		"a control sign":    {func(r *route.Rule) { r.Source = "a\nb" }, "source: holds the character U+000A"},
		"bad UTF-8":         {func(r *route.Rule) { r.Subject = "a\xff" }, "subject: holds the character"},
		"time as key":       {func(r *route.Rule) { r.Key = key("time") }, "key: the attribute time cannot be a key"},
		"an upper-case key": {func(r *route.Rule) { r.Key = key("Region") }, "key: not the name"},
		"a long key":        {func(r *route.Rule) { r.Key = key(strings.Repeat("a", 21)) }, "key: the name of the attribute has 21 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bad := good
			tc.change(&bad)
			_, err := route.New([]route.Rule{{Name: "ok", Handler: "h"}, bad})
			require.ErrorIs(t, err, edge.ErrInvalid)
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestNoRules(t *testing.T) {
	t.Parallel()
	require.Nil(t, newRouter(t).Route(event()))
}

func TestRouterKeepsItsOwnKey(t *testing.T) {
	t.Parallel()
	k := "id"
	r := newRouter(t, route.Rule{Name: "r", Handler: "h", Key: &k})
	k = "type"
	require.Equal(t, "e1", r.Route(event())[0].Key)
}
