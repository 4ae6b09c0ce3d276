package api

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"fencepost/edge"
)

// query are the parameters of a listing. Those that are not known, or come
// twice, are faults: a filter that is silently ignored shows too much.
type query struct {
	values url.Values
	err    error
}

func readQuery(r *http.Request, known ...string) *query {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return &query{err: invalid(FieldFault{Detail: "the query is malformed"})}
	}
	q := &query{values: values}
	for name, v := range values {
		switch {
		case !slices.Contains(known, name):
			q.fault(clip(name), "is not known: the parameters are "+strings.Join(known, ", "))
		case len(v) > 1:
			q.fault(name, "is given more than once")
		}
	}
	return q
}

func (q *query) fault(name, detail string) {
	if q.err == nil {
		q.err = invalid(FieldFault{Parameter: name, Detail: detail})
	}
}

func (q *query) text(name string) string { return q.values.Get(name) }

func (q *query) state(name string) edge.State {
	s := edge.State(q.text(name))
	if s != "" && !slices.Contains(edge.States[:], s) {
		q.fault(name, fmt.Sprintf("%q is no state: the states are %v", clip(string(s)), edge.States))
	}
	return s
}

func (q *query) target(name string) *edge.Target {
	s := q.text(name)
	if s == "" {
		return nil
	}
	t, err := edge.ParseTarget(s)
	if err != nil {
		q.fault(name, fmt.Sprintf("%q is no target: write it as handler:key", clip(s)))
	}
	return &t
}

func (q *query) id(name, kind string, names edge.Names) int64 {
	s := q.text(name)
	if s == "" {
		return 0
	}
	n, err := names.Parse(kind, s)
	if err != nil && q.err == nil {
		q.err = err
	}
	return n
}

func (q *query) flag(name string) bool {
	switch s := q.text(name); s {
	case "", "false":
		return false
	case "true":
		return true
	default:
		q.fault(name, "must be true or false")
		return false
	}
}

// Limits of a page.
const (
	DefaultPage = 50
	MaxPage     = 1000
)

func (q *query) limit(name string) int {
	s := q.text(name)
	if s == "" {
		return DefaultPage
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > MaxPage {
		q.fault(name, fmt.Sprintf("must be a number from 1 to %d", MaxPage))
		return DefaultPage
	}
	return n
}
