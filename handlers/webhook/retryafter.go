package webhook

import (
	"net/http"
	"time"
)

// ParseRetryAfter reads a Retry-After header (RFC 9110 section 10.2.3): whole
// seconds in digits, or one of the three forms of an HTTP date. A date counts
// from the reply's own Date header, so that a wrong local clock does no harm,
// and from now when that is missing or malformed; one that has passed is 0. The
// answer is at most limit. ok is false for anything else: the header is then as
// if it were not there.
func ParseRetryAfter(value, date string, now time.Time, limit time.Duration) (d time.Duration, ok bool) {
	if value == "" {
		return 0, false
	}
	if seconds, ok := parseDigits(value, int64(limit/time.Second)+1); ok {
		return min(time.Duration(seconds)*time.Second, limit), true
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	if from, err := http.ParseTime(date); err == nil {
		now = from
	}
	return min(max(at.Sub(now), 0), limit), true
}

// parseDigits reads digits and nothing else, and stops counting at limit.
func parseDigits(s string, limit int64) (int64, bool) {
	var n int64
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = min(n*10+int64(c-'0'), limit)
	}
	return n, true
}
