package webhook

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"fencepost/edge"
	"fencepost/handlers"
)

// Pauses of the whole endpoint when it asks everyone to slow down and does not
// say for how long.
const (
	pauseTooMany = 5 * time.Second // 429
	pauseGateway = time.Second     // 502, 504
)

const maxLocationBytes = 2 << 10

// judge is the decision table for a reply:
//
//	2xx                 succeeded, whatever its body does
//	409                 succeeded if the configuration says so
//	410                 deferred (endpoint_gone), and the handler's gate closes
//	413, 415, 431       failed: the same bytes cannot do better
//	configured codes    failed
//	429, 503            retry; Retry-After holds for all of the endpoint
//	502, 504            retry, and the endpoint gets a short pause
//	all else, 3xx too   retry, as endpoints get mended; no redirect is followed
//
// The code is http_ and the status.
func (h *Handler) judge(resp *http.Response, text []byte, truncated bool, secrets []handlers.Secret) edge.Result {
	status := resp.StatusCode
	r := edge.Result{
		Outcome: edge.OutcomeRetry,
		Code:    "http_" + strconv.Itoa(status),
		Detail:  handlers.Detail(replyHead(resp), text, truncated, secrets),
	}
	asked, has := ParseRetryAfter(resp.Header.Get("Retry-After"), resp.Header.Get("Date"), h.config.Now(), h.config.MaxPause)
	switch {
	case status >= 200 && status <= 299, status == http.StatusConflict && h.config.ConflictSucceeds:
		r.Outcome = edge.OutcomeSucceeded
	case status == http.StatusGone:
		r.Outcome, r.Code, r.GateOff = edge.OutcomeDeferred, edge.CodeEndpointGone, true
	case h.permanent(status):
		r.Outcome = edge.OutcomeFailed
	case status == http.StatusTooManyRequests:
		r.Pause, r.Blame = pauseTooMany, edge.BlameNone // it works, and is busy
		if has {
			r.Pause, r.Delay = asked, asked
		}
	case status == http.StatusServiceUnavailable:
		r.Pause, r.Delay = asked, asked
	case status == http.StatusBadGateway, status == http.StatusGatewayTimeout:
		r.Pause, r.Delay = max(pauseGateway, asked), asked
	default:
		r.Delay = asked
	}
	return r
}

func (h *Handler) permanent(status int) bool {
	switch status {
	case http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusRequestHeaderFieldsTooLarge:
		return true
	}
	return slices.Contains(h.config.PermanentCodes, status)
}

// replyHead is the first line of a detail, with what explains the verdict.
func replyHead(resp *http.Response) string {
	head := "HTTP " + strconv.Itoa(resp.StatusCode)
	if text := http.StatusText(resp.StatusCode); text != "" {
		head += " " + text
	}
	if location := resp.Header.Get("Location"); location != "" && resp.StatusCode/100 == 3 {
		head += "\nLocation (not followed): " + handlers.Line(location, maxLocationBytes)
	}
	if after := resp.Header.Get("Retry-After"); after != "" {
		head += "\nRetry-After: " + handlers.Line(after, 64)
	}
	return head
}
