package api

import (
	"crypto/sha256"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// TokenHash is the SHA-256 of a bearer token. The zero value is no token: it
// lets nobody in.
type TokenHash [sha256.Size]byte

// HashToken is the hash of a token. The hash of an empty token is the zero
// value.
func HashToken(token string) TokenHash {
	if token == "" {
		return TokenHash{}
	}
	return sha256.Sum256([]byte(token))
}

// bearer is the hash of the bearer token in the values of an Authorization
// header; the zero value when there is none.
func bearer(values []string) TokenHash {
	if len(values) != 1 {
		return TokenHash{}
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return TokenHash{}
	}
	return HashToken(strings.TrimLeft(token, " "))
}

// hostGuard refuses requests for other host names, so that a web page whose name
// was made to resolve to this machine gets nothing (DNS rebinding). The loopback
// names, the address that the request came in on, and the names given are let
// through; ports are not compared.
type hostGuard struct {
	names map[string]bool
	next  http.Handler
}

func newHostGuard(names []string, next http.Handler) *hostGuard {
	g := &hostGuard{names: map[string]bool{"localhost": true}, next: next}
	for _, name := range names {
		if h := hostName(name); h != "" {
			g.names[h] = true
		}
	}
	return g
}

// ServeHTTP answers 421 to a foreign name.
func (g *hostGuard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !g.allows(r) {
		writeProblem(w, r, NewProblem(CodeMisdirected, "add the name to http.allowed_hosts of the configuration if it is meant to be this node"))
		return
	}
	g.next.ServeHTTP(w, r)
}

func (g *hostGuard) allows(r *http.Request) bool {
	host := hostName(r.Host)
	if g.names[host] {
		return true
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	addr = addr.Unmap()
	if addr.IsLoopback() {
		return true
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	at, err := netip.ParseAddrPort(local.String())
	return err == nil && at.Addr().Unmap().WithZone("") == addr.WithZone("")
}

// hostName is the host of a Host header or a configured name: without port,
// brackets and final dot, in lower case.
func hostName(s string) string {
	if h, _, err := net.SplitHostPort(s); err == nil {
		s = h
	}
	s = strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")
	return strings.ToLower(strings.TrimSuffix(s, "."))
}

// refuseCrossOrigin stops what a web page of another site makes a browser send.
func refuseCrossOrigin(next http.Handler) http.Handler {
	guard := http.NewCrossOriginProtection()
	guard.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, r, NewProblem(CodeCrossOrigin, "send events from a program, not from a page of another site"))
	}))
	return guard.Handler(next)
}
