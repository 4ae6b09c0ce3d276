package api

import (
	"net/http"
	"time"
)

// Observer is told of each answered request. route is the path of the table of
// routes, or "none" for a request that matched none: never what the caller sent.
// It is called from many goroutines and must be quick.
type Observer func(route string, status int, took time.Duration)

// NoRoute is the route of a request that matched none, or was refused before one
// was looked for.
const NoRoute = "none"

// statusWriter remembers the status of an answer, and the router the route.
type statusWriter struct {
	http.ResponseWriter
	status int
	route  string
}

// WriteHeader notes the status.
func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets [http.ResponseController] reach the connection.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// observed tells o of each request that next answers; nil tells nobody.
func observed(o Observer, next http.Handler) http.Handler {
	if o == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		sw := &statusWriter{ResponseWriter: w, route: NoRoute}
		defer func() {
			if sw.status == 0 {
				sw.status = http.StatusOK
			}
			o(sw.route, sw.status, time.Since(began))
		}()
		next.ServeHTTP(sw, r)
	})
}

// matched notes the route of a request.
func matched(w http.ResponseWriter, route string) {
	if sw, ok := w.(*statusWriter); ok {
		sw.route = route
	}
}
