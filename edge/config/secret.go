package config

import "strings"

// The forms of a reference to a secret: an environment variable of the node, or
// a file. A reference is not itself secret; the handlers read what it names.
const (
	envScheme  = "env:"
	fileScheme = "file:"
)

// secretForms is what a fault says is allowed.
const secretForms = `name where it is: "env:NAME" or "file:/path"`

// secretWords end the names of headers and variables that hold secrets.
var secretWords = []string{
	"token", "secret", "password", "passphrase", "authorization", "cookie", "api-key", "api_key", "apikey", "access_key", "private_key",
}

// secretName reports whether a header or variable of this name holds a secret.
func secretName(name string) bool {
	name = strings.ToLower(name)
	for _, w := range secretWords {
		if strings.HasSuffix(name, w) {
			return true
		}
	}
	return false
}

// looksLikeRef reports whether s means to be a reference, well formed or not.
func looksLikeRef(s string) bool {
	return strings.HasPrefix(s, envScheme) || strings.HasPrefix(s, fileScheme)
}

// checkSecret accepts a reference and nothing else. Its answer never shows s.
func checkSecret(s string) (problem, allowed string) {
	switch name, isEnv := strings.CutPrefix(s, envScheme); {
	case isEnv && validEnvName(name):
		return "", ""
	case !looksLikeRef(s):
		return "a secret must not stand in the file", secretForms
	case isEnv:
		return "not a well-formed reference", secretForms
	}
	path := strings.TrimPrefix(s, fileScheme)
	if !strings.HasPrefix(path, "/") || validText(path, MaxTextBytes) != "" {
		return "not a well-formed reference", secretForms
	}
	return "", ""
}

func validEnvName(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	for i, c := range []byte(s) {
		switch {
		case c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', c == '_':
		case i > 0 && c >= '0' && c <= '9':
		default:
			return false
		}
	}
	return true
}
