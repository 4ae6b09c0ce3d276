package api

import (
	"net/http"
	"strings"
)

// idempotencyKey reads the header Idempotency-Key: a string of Structured
// Fields (RFC 8941), that is quoted, or the bare token that most clients send.
func idempotencyKey(h http.Header) (key string, given bool, err error) {
	values := h.Values("Idempotency-Key")
	if len(values) == 0 {
		return "", false, nil
	}
	fault := func(detail string) (string, bool, error) {
		return "", false, invalid(FieldFault{Header: "Idempotency-Key", Detail: detail})
	}
	if len(values) > 1 {
		return fault("is given more than once")
	}
	key = strings.Trim(values[0], " \t")
	if strings.HasPrefix(key, `"`) {
		var ok bool
		if key, ok = unquote(key); !ok {
			return fault(`is not a string: write it as "key", with \" and \\ inside`)
		}
	} else if strings.ContainsAny(key, " \t\",;\\") {
		return fault(`has a character that needs quotes: write it as "key"`)
	}
	if strings.TrimSpace(key) == "" {
		return fault("is empty")
	}
	for _, c := range []byte(key) {
		if c < 0x20 || c > 0x7e {
			return fault("has a character that is not printable ASCII")
		}
	}
	return key, true, nil
}

// unquote reads a quoted string: double quotes, and backslash before a quote or
// a backslash.
func unquote(s string) (string, bool) {
	if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' {
		return "", false
	}
	s = s[1 : len(s)-1]
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '"':
			return "", false
		case '\\':
			i++
			if i == len(s) || s[i] != '"' && s[i] != '\\' {
				return "", false
			}
		}
		out = append(out, s[i])
	}
	return string(out), true
}
