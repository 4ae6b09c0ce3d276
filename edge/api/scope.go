package api

import (
	"crypto/subtle"
	"net/http"
)

// Scope is what a caller must be allowed to do for a route.
type Scope string

// Scopes. Each token has exactly one.
const (
	ScopePublic   Scope = "public"       // anybody: the routes say no more than ok
	ScopeEvents   Scope = "events:write" // hand in events
	ScopeMetrics  Scope = "metrics:read" // read the metrics
	ScopeOperator Scope = "operator"     // whoever may connect to the socket; never on the network
)

// Route is one row of the table of routes. A segment of Path in braces stands
// for any one segment.
type Route struct {
	Method string
	Path   string
	Scope  Scope
}

// NetworkRoutes is every route of the network listener. What is not here is 404
// there, whoever asks.
var NetworkRoutes = [...]Route{
	{http.MethodPost, "/v1/events", ScopeEvents},
	{http.MethodGet, "/metrics", ScopeMetrics},
	{http.MethodGet, "/healthz", ScopePublic},
	{http.MethodGet, "/readyz", ScopePublic},
}

// tokens are the tokens of a listener by scope. A scope without one is closed.
type tokens map[Scope]TokenHash

// require lets a request through that carries the bearer token (RFC 6750) of the
// scope. A token of another scope is 403, everything else 401.
func (t tokens) require(scope Scope, next http.HandlerFunc) http.HandlerFunc {
	if scope == ScopePublic {
		return next
	}
	return func(w http.ResponseWriter, r *http.Request) {
		has := t.scopesOf(bearer(r.Header.Values("Authorization")))
		switch {
		case has[scope]:
			next(w, r)
		case len(has) > 0:
			w.Header().Set("WWW-Authenticate", `Bearer realm="fencepost", error="insufficient_scope", scope="`+string(scope)+`"`)
			writeProblem(w, r, NewProblem(CodeScope, "the token is not for this: it needs the scope "+string(scope)))
		default:
			w.Header().Set("WWW-Authenticate", `Bearer realm="fencepost"`)
			writeProblem(w, r, NewProblem(CodeUnauthorized, "send the token of this node as: Authorization: Bearer <token>"))
		}
	}
}

// scopesOf compares with every token, in the same time whatever the outcome. No
// token is the zero value, which matches none.
func (t tokens) scopesOf(got TokenHash) map[Scope]bool {
	var has map[Scope]bool
	for scope, want := range t {
		if subtle.ConstantTimeCompare(got[:], want[:]) == 1 && want != (TokenHash{}) {
			if has == nil {
				has = make(map[Scope]bool, 1)
			}
			has[scope] = true
		}
	}
	return has
}
