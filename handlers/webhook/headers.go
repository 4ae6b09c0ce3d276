package webhook

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"fencepost/handlers"
)

// maxHeaderValueBytes is the limit of one static header's value.
const maxHeaderValueBytes = 8 << 10

// Names that a static header must not have: those that frame the message or
// steer the connection (RFC 9110 section 7.6.1), those that this handler or the
// transport sets, and those that make Go's transport repeat a request by itself.
var reservedHeaders = []string{
	"connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization",
	"te", "trailer", "transfer-encoding", "upgrade", "host", "content-length", "expect",
	"http2-settings", "content-type", "content-encoding", "accept-encoding",
	"idempotency-key", "x-idempotency-key", "traceparent", "tracestate",
}

var reservedPrefixes = []string{"ce-", "fencepost-", "webhook-"}

func checkHeaders(headers map[string]string) error {
	if len(headers) > MaxHeaders {
		return fmt.Errorf("headers: %d, the limit is %d", len(headers), MaxHeaders)
	}
	var faults []error
	seen := map[string]bool{}
	for _, name := range sortedNames(headers) {
		lower := strings.ToLower(name)
		if seen[lower] {
			faults = append(faults, fmt.Errorf("header %q: given twice", name))
		}
		seen[lower] = true
		if err := checkHeader(name, headers[name]); err != nil {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

// checkFilled judges headers whose values an event made. A value that looks like a
// reference to a secret is not one.
func checkFilled(headers map[string]string) error {
	if len(headers) > MaxHeaders {
		return fmt.Errorf("headers: %d, the limit is %d", len(headers), MaxHeaders)
	}
	for _, name := range sortedNames(headers) {
		if err := checkHeaderName(name); err != nil {
			return err
		}
		if err := checkHeaderValue(headers[name]); err != nil {
			return fmt.Errorf("header %q: %w", name, err)
		}
	}
	return nil
}

func checkHeader(name, value string) error {
	if err := checkHeaderName(name); err != nil {
		return err
	}
	check := checkHeaderValue
	if handlers.IsSecretRef(value) {
		check = handlers.CheckSecretRef
	}
	if err := check(value); err != nil {
		return fmt.Errorf("header %q: %w", name, err)
	}
	return nil
}

func checkHeaderName(name string) error {
	lower := strings.ToLower(name)
	switch {
	case !isToken(name):
		return fmt.Errorf("header %q: a name has letters, digits and !#$%%&'*+-.^_`|~ only, at most 128", name)
	case slices.Contains(reservedHeaders, lower):
		return fmt.Errorf("header %q: this one is set by the handler or not allowed", name)
	case slices.ContainsFunc(reservedPrefixes, func(p string) bool { return strings.HasPrefix(lower, p) }):
		return fmt.Errorf("header %q: names that begin with Ce-, Fencepost- or Webhook- are the handler's own", name)
	}
	return nil
}

// checkHeaderValue does not show the value: it may be a secret.
func checkHeaderValue(value string) error {
	if len(value) > maxHeaderValueBytes {
		return fmt.Errorf("the value has %d bytes, the limit is %d", len(value), maxHeaderValueBytes)
	}
	for _, c := range []byte(value) {
		if c < 0x20 && c != '\t' || c == 0x7f {
			return errors.New("the value has a control character, such as a line end")
		}
	}
	return nil
}

// isToken follows RFC 9110 section 5.6.2.
func isToken(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	for _, c := range []byte(s) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return true
}

// staticHeaders sets the configured headers and returns the secrets among their
// values. The error wraps handlers.ErrSecretMissing when a secret is not there.
func staticHeaders(into http.Header, headers map[string]string) ([]handlers.Secret, error) {
	var secrets []handlers.Secret
	for _, name := range sortedNames(headers) {
		v, isRef, err := handlers.ResolveValue(headers[name])
		if err != nil {
			return nil, fmt.Errorf("header %q: %w", name, err)
		}
		if err := checkHeaderValue(v.Reveal()); err != nil {
			return nil, fmt.Errorf("header %q: %w", name, err)
		}
		if isRef {
			secrets = append(secrets, v)
		}
		into.Set(name, v.Reveal())
	}
	return secrets, nil
}

func sortedNames(m map[string]string) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// encodeAttribute is the percent-encoding of the CloudEvents HTTP binding 1.0.2,
// section 3.1.3.2: space, double quote, percent and everything outside U+0021 to
// U+007E, as UTF-8 in upper-case hexadecimal.
func encodeAttribute(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' || c == '"' || c == '%' {
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}
