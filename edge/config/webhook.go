package config

import (
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"fencepost/edge/expression"
)

// maxSecrets is the most signatures of one request.
const maxSecrets = 8

func readWebhook(t *table, w *Webhook) {
	w.URL, _ = t.text("url", checkURL)
	if !t.has("url") {
		t.fault("", "url is missing", "the address of the receiver")
	}
	if refs, ok := t.texts("secrets", maxSecrets, checkSecret); ok {
		w.Secrets = refs
	}
	t.mapOf("headers", MaxHeaders, func(name, at, v string) { readHeader(t.doc, w.Headers, name, at, v) })
	readBody(t, w)
	if codes, ok := t.numbers("permanent_status", 300, 599, true); ok {
		w.PermanentStatus = codes
	}
	w.Success409, _ = t.boolean("success_409")
	if ranges, ok := readAddresses(t, "allow_addresses"); ok {
		w.AllowAddresses = ranges
	}
	for i, code := range w.PermanentStatus {
		at := elemPath(t.at("permanent_status"), i+1)
		switch {
		case code == http.StatusGone, code == http.StatusTooManyRequests:
			t.doc.add(at, strconv.Itoa(code)+" has a meaning of its own", "any other status")
		case code == http.StatusConflict && w.Success409:
			t.doc.add(at, "success_409 says that 409 is success", "one of the two")
		}
	}
}

func checkURL(s string) (problem, allowed string) {
	allowed = "http:// or https://, host and path, at most " + strconv.Itoa(MaxURLBytes) + " bytes"
	if len(s) > MaxURLBytes {
		return "is too long", allowed
	}
	if validText(s, MaxURLBytes) != "" {
		return "holds a control character", allowed
	}
	if expression.IsTemplate(s) {
		return "holds ${", "the event cannot decide where a request goes; put what it says into headers or body"
	}
	u, err := url.Parse(s)
	if err != nil {
		return "not a URL", allowed
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return "not an http or https URL", allowed
	case u.User != nil:
		return "holds a user name or password", `give them as a header: headers = { Authorization = "env:NAME" }`
	case u.Hostname() == "":
		return "has no host", allowed
	case numericHost(u.Hostname()):
		return "the host is a number and no address", "an address as 192.0.2.1 or [2001:db8::1], or a name"
	case u.Fragment != "" || strings.Contains(s, "#"):
		return "has a fragment, which no receiver would see", allowed
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return "the port is not a number from 1 to 65535", allowed
		}
	}
	return "", ""
}

// reservedHeaders belong to HTTP itself, to the transport or to the delivery.
var reservedHeaders = []string{
	"Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Expect", "Host", "Http2-Settings",
	"Idempotency-Key", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Traceparent",
	"Tracestate", "Trailer", "Transfer-Encoding", "Upgrade", "X-Idempotency-Key",
}

// reservedPrefixes begin the names of headers that the delivery sets.
var reservedPrefixes = []string{"Ce-", "Fencepost-", "Webhook-"}

func readHeader(d *document, to map[string]string, name, at, v string) {
	if !headerName(name) {
		d.add(at, "not a header name", "letters, digits, - and _ only")
		return
	}
	name = textproto.CanonicalMIMEHeaderKey(name)
	reserved := slices.Contains(reservedHeaders, name)
	for _, p := range reservedPrefixes {
		reserved = reserved || strings.HasPrefix(name, p)
	}
	if reserved {
		d.add(at, "the header is set by the delivery or by HTTP itself", "any other name")
		return
	}
	if _, twice := to[name]; twice {
		d.add(at, "the header is given twice, in another spelling", "give each header once")
		return
	}
	if problem, allowed := checkHeaderValue(name, v); problem != "" {
		d.add(at, problem, allowed)
		return
	}
	to[name] = v
}

// checkHeaderValue accepts a text, or a reference where the text is secret.
func checkHeaderValue(name, v string) (problem, allowed string) {
	if looksLikeRef(v) || secretName(name) {
		return checkSecret(v)
	}
	if expression.IsTemplate(v) {
		return checkTemplate(v, expression.Header)
	}
	return validText(v, MaxTextBytes), "at most " + strconv.Itoa(MaxTextBytes) + " bytes without control characters"
}

func headerName(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	for _, c := range []byte(s) {
		if !alphanumeric(c) && c != '-' && c != '_' {
			return false
		}
	}
	return true
}
