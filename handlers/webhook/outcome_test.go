package webhook_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/handlers/webhook"
)

// Every row of the decision table for replies, against a real server.
func TestOutcomeTable(t *testing.T) {
	t.Parallel()
	plain := webhook.Config{}
	with := func(after string) http.Header { return http.Header{"Retry-After": {after}} }
	type row struct {
		status int
		config webhook.Config
		header http.Header
		want   edge.Result
	}
	rows := []row{
		{410, plain, nil, edge.Result{Outcome: edge.OutcomeDeferred, Code: "endpoint_gone", GateOff: true}},
		{409, plain, nil, edge.Result{Outcome: edge.OutcomeRetry}},
		{409, webhook.Config{ConflictSucceeds: true}, nil, edge.Result{Outcome: edge.OutcomeSucceeded}},
		{404, webhook.Config{PermanentCodes: []int{404, 501}}, nil, edge.Result{Outcome: edge.OutcomeFailed}},
		{501, webhook.Config{PermanentCodes: []int{404, 501}}, nil, edge.Result{Outcome: edge.OutcomeFailed}},
		{429, plain, nil, edge.Result{Outcome: edge.OutcomeRetry, Pause: 5 * time.Second}},
		{429, plain, with("soon"), edge.Result{Outcome: edge.OutcomeRetry, Pause: 5 * time.Second}},
		{429, plain, with("0"), edge.Result{Outcome: edge.OutcomeRetry}},
		{429, plain, with("90"), edge.Result{Outcome: edge.OutcomeRetry, Pause: 90 * time.Second, Delay: 90 * time.Second}},
		{429, plain, with("99999999999999999999"), edge.Result{Outcome: edge.OutcomeRetry, Pause: 24 * time.Hour, Delay: 24 * time.Hour}},
		{429, webhook.Config{MaxPause: time.Hour}, with("7200"), edge.Result{Outcome: edge.OutcomeRetry, Pause: time.Hour, Delay: time.Hour}},
		{503, plain, nil, edge.Result{Outcome: edge.OutcomeRetry}},
		{503, plain, with("30"), edge.Result{Outcome: edge.OutcomeRetry, Pause: 30 * time.Second, Delay: 30 * time.Second}},
		{
			503, plain,
			http.Header{"Retry-After": {"Sun, 06 Nov 1994 08:49:37 GMT"}, "Date": {"Sun, 06 Nov 1994 08:49:07 GMT"}},
			edge.Result{Outcome: edge.OutcomeRetry, Pause: 30 * time.Second, Delay: 30 * time.Second},
		},
		{502, plain, nil, edge.Result{Outcome: edge.OutcomeRetry, Pause: time.Second}},
		{504, plain, with("20"), edge.Result{Outcome: edge.OutcomeRetry, Pause: 20 * time.Second, Delay: 20 * time.Second}},
		{500, plain, with("20"), edge.Result{Outcome: edge.OutcomeRetry, Delay: 20 * time.Second}},
	}
	for _, code := range []int{200, 201, 202, 204, 206, 299} {
		rows = append(rows, row{code, plain, nil, edge.Result{Outcome: edge.OutcomeSucceeded}})
	}
	for _, code := range []int{300, 304, 400, 401, 403, 404, 405, 422, 408, 425, 500, 501, 505, 599, 999} {
		rows = append(rows, row{code, plain, nil, edge.Result{Outcome: edge.OutcomeRetry}})
	}
	for _, code := range []int{413, 415, 431} {
		rows = append(rows, row{code, plain, with("9"), edge.Result{Outcome: edge.OutcomeFailed}})
	}
	for _, r := range rows {
		t.Run(fmt.Sprintf("%d_%v", r.status, r.header.Get("Retry-After")), func(t *testing.T) {
			t.Parallel()
			s := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
				for name, values := range r.header {
					w.Header()[name] = values
				}
				w.WriteHeader(r.status)
			})
			r.config.URL = s.URL
			got := newHandler(t, r.config).Handle(within(t, hang), claim("x"))
			require.Contains(t, got.Detail, fmt.Sprintf("HTTP %d", r.status))
			got.Detail = ""
			if r.want.Code == "" {
				r.want.Code = fmt.Sprintf("http_%d", r.status)
			}
			if r.status == http.StatusTooManyRequests {
				r.want.Blame = edge.BlameNone // it works, and asks for patience
			}
			require.Equal(t, r.want, got)
			require.True(t, edge.ValidCode(got.Code))
			require.Len(t, s.all(), 1)
		})
	}
}

func TestD1_RedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	for _, code := range []int{301, 302, 303, 307, 308} {
		second := newServer(t, status(http.StatusOK))
		first := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, second.URL+"/login?a=1", code)
		})
		h := newHandler(t, webhook.Config{URL: first.URL, Secrets: []string{secretFile(t, secret1)}})
		r := h.Handle(within(t, hang), claim("x"))
		require.Equal(t, edge.OutcomeRetry, r.Outcome)
		require.Equal(t, fmt.Sprintf("http_%d", code), r.Code)
		require.Contains(t, r.Detail, second.URL+"/login", "the detail names where it pointed to")
		require.Len(t, first.all(), 1)
		require.Empty(t, second.all(), "the signature never leaves the first host")
	}
}

func TestSwitchingProtocolsIsNoSuccess(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "x")
		w.WriteHeader(http.StatusSwitchingProtocols)
	}))
	t.Cleanup(s.Close)
	r := newHandler(t, webhook.Config{URL: s.URL}).Handle(within(t, hang), claim("x"))
	require.Equal(t, edge.OutcomeRetry, r.Outcome)
	require.Equal(t, "http_101", r.Code)
}
