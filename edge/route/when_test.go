package route_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/route"
)

func paid(data string) *edge.Event {
	e := event()
	e.ContentType, e.Data = "application/json", []byte(data)
	return e
}

func TestWhen(t *testing.T) {
	t.Parallel()
	r := newRouter(t,
		route.Rule{Name: "large", Handler: "a", Key: key(""), When: `data.amount > 9007199254740992`},
		route.Rule{Name: "all", Handler: "b", Key: key(""), When: `true`},
		route.Rule{Name: "north", Handler: "c", Key: key(""), When: `ext.region == "north"`},
		route.Rule{Name: "other", Handler: "d", Type: "other.*", When: `data.never.asked`},
	)
	require.Equal(t, []edge.Routed{{Route: "large", Handler: "a"}, {Route: "all", Handler: "b"}, {Route: "north", Handler: "c"}},
		r.Route(paid(`{"amount": 9007199254740993}`)))
	require.Equal(t, []edge.Routed{{Route: "all", Handler: "b"}, {Route: "north", Handler: "c"}},
		r.Route(paid(`{"amount": 9007199254740992}`)))
}

// An error is not false: the route has a fault, and the others go on.
func TestWhenThatFails(t *testing.T) {
	t.Parallel()
	r := newRouter(t,
		route.Rule{Name: "missing", Handler: "a", When: `data.amount > 1`},
		route.Rule{Name: "type", Handler: "b", When: `data.note > 1`},
		route.Rule{Name: "no answer", Handler: "c", When: `data.note`},
		route.Rule{Name: "endless", Handler: "d", When: `all(data.l, all(data.l, all(data.l, all(data.l, true))))`},
		route.Rule{Name: "good", Handler: "e", Key: key("id"), When: `data.note == "canary"`},
	)
	got := r.Route(paid(`{"note": "canary", "l": [` + strings.Repeat("1,", 999) + `1]}`))
	require.Equal(t, []edge.Routed{
		{Route: "missing", Handler: "a", Fault: "when: data.amount is missing"},
		{Route: "type", Handler: "b", Fault: "when: a text and a number have no order; two numbers or two texts have"},
		{Route: "no answer", Handler: "c", Fault: "when: it gives a text; a condition gives true or false"},
		{Route: "endless", Handler: "d", Fault: "when: it takes more than 1000000 steps"},
		{Route: "good", Handler: "e", Key: "e1"},
	}, got)
}

// Replay of R71 for keys: what is missing is a fault unless it has a default.
func TestKeyFromTheData_R71(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ template, key, fault string }{
		{`${data.till}`, "4", ""},
		{`till-${data.till}`, "till-4", ""},
		{`${data.big}`, "9007199254740993", ""},
		{`${source}/${data.till}`, "/shop/1/4", ""},
		{`${data.zone ?? "none"}`, "none", ""},
		{`$${x}`, "${x}", ""},
		{`${data.zone}`, "", "key: ${...} number 1: data.zone is missing"},
		{`${data.none}`, "", "key: ${...} number 1: it is null; give a default with ??"},
		{`${data.empty}`, "", "key: the text is empty"},
		{`a${data.line}`, "", "key: the text has a control character, such as a line end"},
		{`${data.c1}`, "", "key: the text has a control character, such as a line end"},
		{`${data.long}`, "", "key: the text has 513 bytes, the limit is 512"},
		{`${data.reserved}`, "", `key is "!route", which is reserved`},
		{`${data}`, "", "key: ${...} number 1: an object has no text; write json(...) for its JSON"},
	} {
		r := newRouter(t, route.Rule{Name: "r", Handler: "h", Key: &tc.template}, route.Rule{Name: "good", Handler: "g", Key: key("")})
		got := r.Route(paid(`{"till": 4, "big": 9007199254740993, "none": null, "empty": "", "line": "x\nbc", "c1": "\u0085", "reserved": "!route",
			"long": "` + strings.Repeat("x", 513) + `"}`))
		require.Equal(t, []edge.Routed{{Route: "r", Handler: "h", Key: tc.key, Fault: tc.fault}, {Route: "good", Handler: "g"}}, got, tc.template)
	}
}

func TestNewRefusesBadExpressions(t *testing.T) {
	t.Parallel()
	for want, rule := range map[string]route.Rule{
		`route "r": when: column 1: amount is not known`: {When: "amount > 1"},
		`route "r": when: it gives a text`:               {When: "type"},
		`route "r": key: ${...} number 1 has no }`:       {Key: key("${data")},
		`route "r": key: ${...} number 2: column 1: x`:   {Key: key("${id}${x}")},
	} {
		rule.Name, rule.Handler = "r", "h"
		_, err := route.New([]route.Rule{rule})
		require.ErrorIs(t, err, edge.ErrInvalid)
		require.ErrorContains(t, strip(err), want)
	}
}

// strip drops the class that each level names again.
func strip(err error) error {
	return stripped(strings.ReplaceAll(err.Error(), edge.ErrInvalid.Error()+": ", ""))
}

type stripped string

func (s stripped) Error() string { return string(s) }

func BenchmarkRoute(b *testing.B) {
	e := paid(`{"amount": 120, "till": 4}`)
	for name, rule := range map[string]route.Rule{
		"pattern":  {Type: "order.*", Key: key("subject")},
		"when":     {Type: "order.*", Key: key("subject"), When: `ext.region == "north"`},
		"data":     {Type: "order.*", Key: key("subject"), When: `data.amount > 100`},
		"template": {Type: "order.*", Key: key("till-${data.till}")},
	} {
		b.Run(name, func(b *testing.B) {
			rule.Name, rule.Handler = "r", "h"
			r, err := route.New([]route.Rule{rule})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				r.Route(e)
			}
		})
	}
}
