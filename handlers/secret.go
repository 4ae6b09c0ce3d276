package handlers

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
)

// MaxSecretBytes is the limit of one secret, as it is in its variable or file.
const MaxSecretBytes = 64 << 10

// ErrSecretMissing says that a secret's variable or file is not there, is empty
// or cannot be read. The text names the reference, never a value.
var ErrSecretMissing = errors.New("secret missing")

// Result codes for faults of secrets. Both come with the outcome blocked:
// nothing had begun, and a change of the configuration lets the work go on.
const (
	CodeSecretMissing = "secret_missing" // the variable or file is not there
	CodeSecretInvalid = "secret_invalid" // it is there, and not of the form needed
)

// CodeTemplateError: a text with ${...} could not be made of the event. The outcome
// is blocked too: nothing had begun.
const CodeTemplateError = "template_error"

const redacted = "[redacted]"

// Secret is a value that shows itself to nobody by accident: every way of
// printing, encoding or logging it gives "[redacted]", also as a private field
// of a printed struct. The zero value is the empty secret.
type Secret struct {
	reveal func() string // not a string: fmt prints private strings by reflection
}

// NewSecret wraps a value.
func NewSecret(value string) Secret {
	return Secret{reveal: func() string { return value }}
}

// Reveal returns the value. Call it only where the value is used.
func (s Secret) Reveal() string {
	if s.reveal == nil {
		return ""
	}
	return s.reveal()
}

// String returns "[redacted]".
func (s Secret) String() string { return redacted }

// GoString returns "[redacted]".
func (s Secret) GoString() string { return redacted }

// Format writes "[redacted]" for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// MarshalText returns "[redacted]".
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// MarshalJSON returns "[redacted]" as a JSON string.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// LogValue returns "[redacted]".
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

const (
	envPrefix  = "env:"
	filePrefix = "file:"
)

// IsSecretRef reports whether s is meant as a reference to a secret: it begins
// with "env:" or "file:". Where literals are allowed too, all else is one.
func IsSecretRef(s string) bool {
	return strings.HasPrefix(s, envPrefix) || strings.HasPrefix(s, filePrefix)
}

// CheckSecretRef reports the fault in the form of a reference, env:NAME or
// file:/absolute/path. It does not look whether the secret is there. Its error
// does not repeat a text that is no reference, as that may be a secret.
func CheckSecretRef(ref string) error {
	if name, ok := strings.CutPrefix(ref, envPrefix); ok {
		if !ValidEnvName(name) {
			return errors.New("secret reference: after env: comes the name of an environment variable, such as env:HOOK_SECRET")
		}
		return nil
	}
	if path, ok := strings.CutPrefix(ref, filePrefix); ok {
		if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
			return fmt.Errorf("secret reference: %q: after file: comes an absolute path, such as file:/etc/fencepost/secret", ref)
		}
		return nil
	}
	return errors.New("secret reference: write env:NAME or file:/path; the secret itself does not belong into the configuration")
}

// ResolveSecret reads the secret that ref names. Handlers do it at each
// attempt, so that a changed secret needs no restart. One newline at the end of
// a file is not part of the secret. A file that others than its owner can use,
// or that neither this user nor root owns, is refused. The error wraps [ErrSecretMissing] unless
// the reference itself is malformed.
func ResolveSecret(ref string) (Secret, error) {
	if err := CheckSecretRef(ref); err != nil {
		return Secret{}, err
	}
	if name, ok := strings.CutPrefix(ref, envPrefix); ok {
		v := os.Getenv(name)
		if v == "" {
			return Secret{}, fmt.Errorf("%w: %s: the environment variable is not set or empty", ErrSecretMissing, ref)
		}
		if len(v) > MaxSecretBytes {
			return Secret{}, fmt.Errorf("%w: %s: longer than %d bytes", ErrSecretMissing, ref, MaxSecretBytes)
		}
		return NewSecret(v), nil
	}
	v, err := readSecretFile(strings.TrimPrefix(ref, filePrefix))
	if err != nil {
		return Secret{}, fmt.Errorf("%w: %s: %w", ErrSecretMissing, ref, err)
	}
	return NewSecret(v), nil
}

// ResolveValue returns what a configured value stands for: the secret when it
// is a reference, else itself.
func ResolveValue(s string) (v Secret, isRef bool, err error) {
	if !IsSecretRef(s) {
		return NewSecret(s), false, nil
	}
	v, err = ResolveSecret(s)
	return v, true, err
}

// readSecretFile judges the file that it has opened, so that nothing can be put
// in its place in between. A link is followed: secrets are often supplied as
// links, and what they lead to is judged the same.
func readSecretFile(path string) (string, error) {
	f, err := os.OpenFile(path, openFlags, 0)
	if err != nil {
		return "", withoutPath(err)
	}
	defer func() { _ = f.Close() }() // only read from
	info, err := f.Stat()
	if err != nil {
		return "", withoutPath(err)
	}
	if !info.Mode().IsRegular() {
		return "", errors.New("not a regular file")
	}
	if err := privateSecret(info, isCredential(path)); err != nil {
		return "", err
	}
	b, err := io.ReadAll(io.LimitReader(f, MaxSecretBytes+3))
	if err != nil {
		return "", withoutPath(err)
	}
	s := strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
	switch {
	case len(s) > MaxSecretBytes:
		return "", fmt.Errorf("longer than %d bytes", MaxSecretBytes)
	case s == "":
		return "", errors.New("the file is empty")
	}
	return s, nil
}

// isCredential reports whether path is in the directory of this service's
// credentials (systemd.exec(5)).
func isCredential(path string) bool {
	dir := os.Getenv("CREDENTIALS_DIRECTORY")
	return dir != "" && filepath.Dir(filepath.Clean(path)) == filepath.Clean(dir)
}

// withoutPath drops the path from a file error: the reference names it already.
func withoutPath(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// ValidEnvName reports whether s can be the name of an environment variable:
// letters, digits and underscores, not beginning with a digit, at most 128.
func ValidEnvName(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	for i, c := range []byte(s) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '_':
		case i > 0 && c >= '0' && c <= '9':
		default:
			return false
		}
	}
	return true
}
