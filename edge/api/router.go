package api

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// router finds the handler of a request by the path exactly as it was sent.
// Nothing is cleaned, decoded or redirected first: another spelling of a path
// is another path, and leads nowhere.
type router struct {
	routes []route
	scope  Scope // of the routes of handle
}

// route is one method and path. A segment of the path in braces takes any one
// segment, which the handler reads with r.PathValue.
type route struct {
	Route
	segments []string
	handler  http.HandlerFunc
}

// handle adds a route of the router's scope.
func (t *router) handle(method, path string, h http.HandlerFunc) {
	t.add(Route{method, path, t.scope}, h)
}

// add adds a route. One without a scope must not exist.
func (t *router) add(at Route, h http.HandlerFunc) {
	if at.Scope == "" || h == nil {
		panic("api: route " + at.Method + " " + at.Path + " without a scope or a handler")
	}
	t.routes = append(t.routes, route{at, strings.Split(at.Path, "/"), h})
}

// ServeHTTP answers 404 to an unknown path and 405 to another method.
func (t *router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	segments := strings.Split(pathAsSent(r), "/")
	var allowed []string
	for _, route := range t.routes {
		values, ok := route.match(segments)
		if !ok {
			continue
		}
		matched(w, route.Path)
		if route.Method != r.Method {
			allowed = append(allowed, route.Method)
			continue
		}
		for name, value := range values {
			r.SetPathValue(name, value)
		}
		route.handler(w, r)
		return
	}
	if len(allowed) == 0 {
		writeProblem(w, r, NewProblem(CodeNoRoute, "paths are compared exactly as sent; see the documentation for the list"))
		return
	}
	slices.Sort(allowed)
	w.Header().Set("Allow", strings.Join(slices.Compact(allowed), ", "))
	writeProblem(w, r, NewProblem(CodeMethodNotAllowed, "allowed: "+w.Header().Get("Allow")))
}

// pathAsSent is the path of the request line, before anything was decoded.
func pathAsSent(r *http.Request) string {
	path, _, _ := strings.Cut(r.RequestURI, "?")
	if strings.HasPrefix(path, "/") {
		return path
	}
	return r.URL.EscapedPath() // of a request for an absolute address
}

func (rt *route) match(segments []string) (values map[string]string, ok bool) {
	if len(segments) != len(rt.segments) {
		return nil, false
	}
	for i, want := range rt.segments {
		if !strings.HasPrefix(want, "{") {
			if segments[i] != want {
				return nil, false
			}
			continue
		}
		value, err := url.PathUnescape(segments[i])
		if err != nil || value == "" {
			return nil, false
		}
		if values == nil {
			values = make(map[string]string)
		}
		values[strings.Trim(want, "{}")] = value
	}
	return values, true
}
