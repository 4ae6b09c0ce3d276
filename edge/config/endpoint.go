package config

import (
	"fmt"
	"math"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"fencepost/edge"
)

// MaxUplinks is the most [[uplink]] sections of a file.
const MaxUplinks = 32

// Uplink is one [[uplink]].
type Uplink struct {
	Name     string
	Probe    string        // probe: host:port, or an https URL
	Interval time.Duration // interval_s: between two probes while it is down
	Timeout  time.Duration // timeout_s: of one probe
	Line     int           // of the uplink in the file
}

func readUplink(t *table) Uplink {
	u := Uplink{Interval: 15 * time.Second, Timeout: 5 * time.Second, Line: t.doc.line(t.path)}
	u.Name = readName(t)
	u.Probe, _ = t.text("probe", checkProbe)
	if !t.has("probe") {
		t.fault("", "probe is missing", probeForm)
	}
	if d, ok := t.duration("interval_s", time.Second, 5, 3600); ok {
		u.Interval = d
	}
	if d, ok := t.duration("timeout_s", time.Second, 1, 20); ok {
		u.Timeout = d
	}
	t.unknown()
	return u
}

const probeForm = `host:port such as "a.example:443", or an https URL`

// checkProbe accepts what the probe of an uplink does.
func checkProbe(s string) (problem, allowed string) {
	if len(s) > MaxURLBytes || validText(s, MaxURLBytes) != "" {
		return "too long, or with control characters", probeForm
	}
	if strings.Contains(s, "://") {
		u, err := url.Parse(s)
		if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || strings.Contains(s, "#") {
			return "not an https URL", probeForm
		}
		return "", ""
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil || net.ParseIP(host) == nil && !hostName(host) {
		return "neither host and port nor an https URL", probeForm
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "the port is not a number from 1 to 65535", probeForm
	}
	return "", ""
}

// readEndpoint reads how a handler treats its other side.
func readEndpoint(t *table, h *Handler) {
	perSecond, _ := t.fraction("rate_per_s", 0, 10000)
	burst := max(int(math.Ceil(perSecond)), 1)
	if n, ok := t.number("rate_burst", 1, edge.MaxRateBurst); ok {
		burst = n
	}
	switch {
	case perSecond >= minRate:
		h.Rate = edge.PerSecond(perSecond, burst)
	case perSecond > 0:
		t.fault("rate_per_s", "less than one a day", fmt.Sprintf("0 for no limit, or at least %g", minRate))
	}
	if n, ok := t.number("breaker_failures", 0, 1000); ok {
		h.Breaker.Failures = n
	}
	if d, ok := t.duration("gate_off_after_h", time.Hour, 0, 365*24); ok {
		h.Breaker.GateOffAfter = d
		if d > 0 && h.Breaker.Failures == 0 {
			t.fault("gate_off_after_h", "without breaker_failures nothing tells that it fails", "breaker_failures of 1 or more, or gate_off_after_h = 0")
		}
	}
	if h.Breaker.Failures == 0 {
		h.Breaker.GateOffAfter = 0
	}
	if s, ok := t.text("uplink", optional(checkUplinkName)); ok {
		h.Uplink = s
	}
}

// minRate is the least rate: about one a day.
const minRate = 0.0000116

func checkUplinkName(s string) (problem, allowed string) {
	if !validName(s) {
		return "not the name of an uplink", `the name of an [[uplink]], or "" for none`
	}
	return "", ""
}

// fraction reads a number that may have a fraction.
func (t *table) fraction(key string, low, high float64) (float64, bool) {
	raw, given := t.get(key)
	if !given {
		return 0, false
	}
	var v float64
	switch n := raw.(type) {
	case int64:
		v = float64(n)
	case float64:
		v = n
	default:
		t.fault(key, "is "+typeName(raw), "must be a number")
		return 0, false
	}
	if !(v >= low && v <= high) { // not a number is in no range
		t.fault(key, fmt.Sprintf("%g is out of range", v), fmt.Sprintf("%g to %g", low, high))
		return 0, false
	}
	return v, true
}

// checkUplinks notes uplinks given twice and handlers that name one which does not
// exist.
func checkUplinks(d *document, c *Config) {
	var names []string
	lines := map[string]int{}
	for i, u := range c.Uplinks {
		noteName(d, lines, u.Name, elemPath("uplink", i+1))
		names = append(names, u.Name)
	}
	for i, h := range c.Handlers {
		if h.Uplink == "" || slices.Contains(names, h.Uplink) {
			continue
		}
		allowed := "the name of an [[uplink]] of this file"
		if near := nearest(h.Uplink, names); near != "" {
			allowed = "did you mean " + near + "?"
		}
		d.add(childPath(elemPath("handler", i+1), "uplink"), "no uplink is named "+printable(h.Uplink), allowed)
	}
}
