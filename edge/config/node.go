package config

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

func readNode(t *table) Node {
	n := Default().Node
	if s, ok := t.text("data", checkPath); ok {
		n.Data = s
	}
	if s, ok := t.oneOf("durability", string(Full), string(Normal)); ok {
		n.Durability = Durability(s)
	}
	if s, ok := t.oneOf("on_loss", string(LossHold), string(LossRefuse)); ok {
		n.OnLoss = OnLoss(s)
	}
	if v, ok := t.number("workers", 1, 1024); ok {
		n.Workers = v
	}
	if d, ok := t.duration("lease_s", time.Second, 5, 600); ok {
		n.Lease = d
	}
	if d, ok := t.duration("shutdown_grace_s", time.Second, 0, 3600); ok {
		n.ShutdownGrace = d
	}
	if s, ok := t.oneOf("log_level", "debug", "info", "warn", "error"); ok {
		_ = n.LogLevel.UnmarshalText([]byte(s)) // each of the four is a level
	}
	if s, ok := t.oneOf("log_format", string(LogText), string(LogJSON)); ok {
		n.LogFormat = LogFormat(s)
	}
	if v, ok := t.boolean("allow_private"); ok {
		n.AllowPrivate = v
	}
	if ranges, ok := readAddresses(t, "allow_addresses"); ok {
		n.AllowAddresses = ranges
	}
	if v, ok := t.boolean("allow_root_commands"); ok {
		n.AllowRootCommands = v
	}
	return n
}

// readHTTP reads [http] over the defaults in h.
func readHTTP(t *table, h *HTTP) {
	if s, ok := t.text("listen", checkListen); ok {
		h.Listen = s
	}
	if hosts, ok := t.texts("allowed_hosts", MaxListItems, checkHost); ok {
		h.AllowedHosts = hosts
		for i, s := range hosts {
			h.AllowedHosts[i] = strings.ToLower(s)
		}
	}
	if s, ok := t.text("token_file", checkPath); ok {
		h.TokenFile = s
	}
	if s, ok := t.text("metrics_token_file", optional(checkPath)); ok {
		h.MetricsTokenFile = s
	}
	if v, ok := t.number("max_body_bytes", 1024, MaxBodyBytes); ok {
		h.MaxBodyBytes = v
	}
	if s, ok := t.text("socket", optional(checkPath)); ok {
		h.Socket = s
	}
	if s, ok := t.text("socket_group", optional(checkGroup)); ok {
		h.SocketGroup = s
	}
}

// checkGroup accepts what can be the name or number of a group. Whether there is
// such a group is asked when the socket is made.
func checkGroup(s string) (problem, allowed string) {
	allowed = `the name of a group, such as "fencepost-admin"; "" for none`
	if len(s) > maxGroupBytes || s[0] == '-' {
		return "not the name of a group", allowed
	}
	for _, c := range []byte(s) {
		if !alphanumeric(c) && c != '-' && c != '_' && c != '.' && c != '$' {
			return "not the name of a group", allowed
		}
	}
	return "", ""
}

// maxGroupBytes is the limit of useradd(8).
const maxGroupBytes = 32

// checkFiles notes paths that would put one file of a node in place of another: a
// token is told to be removed when it is not one.
func checkFiles(d *document, c *Config) {
	const allowed = "another path"
	data := filepath.Clean(c.Node.Data)
	own := []string{data, data + "-wal", data + "-shm", data + "-journal", data + ".lock", data + ".mark", data + "-reserve"}
	token, socket := filepath.Clean(c.HTTP.TokenFile), filepath.Clean(c.HTTP.Socket)
	if slices.Contains(own, token) {
		d.add("http.token_file", "belongs to the database", allowed)
	}
	if m := c.HTTP.MetricsTokenFile; m != "" {
		switch m = filepath.Clean(m); {
		case slices.Contains(own, m):
			d.add("http.metrics_token_file", "belongs to the database", allowed)
		case m == token:
			d.add("http.metrics_token_file", "is http.token_file too", "another path: that token may do more than read the metrics")
		}
	}
	if c.HTTP.Socket == "" && c.HTTP.SocketGroup != "" {
		d.add("http.socket_group", "has no socket that it could use", "a path in http.socket, or no group")
	}
	switch {
	case c.HTTP.Socket == "":
	case slices.Contains(own, socket):
		d.add("http.socket", "belongs to the database", allowed)
	case socket == token:
		d.add("http.socket", "is http.token_file too", allowed)
	case c.HTTP.MetricsTokenFile != "" && socket == filepath.Clean(c.HTTP.MetricsTokenFile):
		d.add("http.socket", "is http.metrics_token_file too", allowed)
	}
}

// optional accepts "" and what check accepts.
func optional(check func(string) (string, string)) func(string) (string, string) {
	return func(s string) (string, string) {
		if s == "" {
			return "", ""
		}
		return check(s)
	}
}

func checkPath(s string) (problem, allowed string) {
	if s == "" {
		return "is empty", "the path of a file"
	}
	return validText(s, MaxTextBytes), "a path of at most " + strconv.Itoa(MaxTextBytes) + " bytes without control characters"
}

func checkListen(s string) (problem, allowed string) {
	allowed = `host:port, such as "127.0.0.1:8080"; "" for none`
	if s == "" {
		return "", ""
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return "not host and port", allowed
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		return "the port is not a number from 0 to 65535", allowed
	}
	if host != "" && net.ParseIP(host) == nil && !hostName(host) {
		return "the host is neither an address nor a name", allowed
	}
	return "", ""
}

func checkHost(s string) (problem, allowed string) {
	if net.ParseIP(s) == nil && !hostName(s) {
		return "not a host name", `a name or address without scheme and port, such as "pi.example"`
	}
	return "", ""
}

// hostName reports whether s has the form of a host name.
func hostName(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	for _, label := range strings.Split(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, c := range []byte(label) {
			if !alphanumeric(c) && c != '-' && c != '_' {
				return false
			}
		}
	}
	return true
}

func alphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// validText says what is wrong with a text, "" when nothing is.
func validText(s string, limit int) string {
	if len(s) > limit {
		return fmt.Sprintf("has %d bytes", len(s))
	}
	for _, r := range s {
		if r < ' ' || r >= 0x7f && r <= 0x9f || r == utf8.RuneError {
			return fmt.Sprintf("holds the control character %U", r)
		}
	}
	return ""
}
