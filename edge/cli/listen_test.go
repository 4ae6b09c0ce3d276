package cli_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge/cli"
	"fencepost/handlers"
	"fencepost/handlers/webhook"
)

const listenSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// listening starts Listen and returns its address and the lines after the first.
func listening(t *testing.T, o cli.ListenOptions) (url string, next func() string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	in, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- cli.Listen(ctx, o, out)
		_ = out.Close()
	}()
	lines := make(chan string, 100)
	go func() {
		s := bufio.NewScanner(in)
		s.Buffer(nil, 1<<20)
		for s.Scan() {
			lines <- s.Text()
		}
		close(lines)
	}()
	next = func() string {
		select {
		case line, ok := <-lines:
			require.True(t, ok, "Listen has ended")
			return line
		case <-time.After(20 * time.Second):
			require.Fail(t, "no line was printed")
		}
		return ""
	}
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	first := next()
	if o.JSON {
		var v map[string]string
		require.NoError(t, json.Unmarshal([]byte(first), &v))
		return v["listening"], next
	}
	url, ok := strings.CutPrefix(first, "listening on ")
	require.True(t, ok, first)
	return url, next
}

type sent struct {
	id, fence, target, body string
	timestamp               int64
	sign                    bool
}

func post(t *testing.T, url string, s sent) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/in", strings.NewReader(s.body))
	require.NoError(t, err)
	if s.timestamp == 0 {
		s.timestamp = time.Now().Unix()
	}
	if s.sign {
		k, err := webhook.ParseKey(handlers.NewSecret(listenSecret))
		require.NoError(t, err)
		signature, err := webhook.Sign([]webhook.Key{k}, s.id, s.timestamp, []byte(s.body))
		require.NoError(t, err)
		b, err := json.Marshal(s.timestamp)
		require.NoError(t, err)
		req.Header.Set("Webhook-Timestamp", string(b))
		req.Header.Set("Webhook-Signature", signature)
	}
	for name, value := range map[string]string{
		"Webhook-Id": s.id, "Fencepost-Fence": s.fence, "Fencepost-Target": s.target,
		"Fencepost-Attempt": "1", "Fencepost-Delivery": "dlv-n-1", "Ce-Type": "t", "Ce-Subject": "sub",
	} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err == nil {
		t.Cleanup(func() { _ = resp.Body.Close() })
	}
	return resp, err
}

func requireStatus(t *testing.T, want int, url string, s sent) *http.Response {
	t.Helper()
	resp, err := post(t, url, s)
	require.NoError(t, err)
	require.Equal(t, want, resp.StatusCode)
	return resp
}

func TestListenVerifiesAndNotes(t *testing.T) {
	t.Parallel()
	url, next := listening(t, cli.ListenOptions{Secrets: []string{listenSecret}})
	require.True(t, strings.HasPrefix(url, "http://127.0.0.1:"), "loopback by default")

	requireStatus(t, 200, url, sent{id: "m1", fence: "8", target: "hook:a", body: "{\"a\":\x1b1}\n", sign: true})
	line := next()
	for _, part := range []string{"POST /in verified", "webhook-id=m1", "fence=8", "attempt=1", "delivery=dlv-n-1", "target=hook:a", "type=t", "subject=sub", "-> 200"} {
		require.Contains(t, line, part)
	}
	require.NotContains(t, line, "REPEAT")
	require.NotContains(t, line, "STALE")
	require.Equal(t, `    {"a":\x1b1}\n`, next())

	requireStatus(t, 200, url, sent{id: "m1", fence: "7", target: "hook:a", sign: true})
	line = next()
	require.Contains(t, line, "[REPEAT: seen 2 times]")
	require.Contains(t, line, "[STALE FENCE: 8 was seen]")

	requireStatus(t, 200, url, sent{id: "m2", fence: "7", target: "hook:b", sign: true})
	line = next()
	require.NotContains(t, line, "REPEAT")
	require.NotContains(t, line, "STALE", "another target")

	requireStatus(t, 401, url, sent{id: "m3", fence: "1"})
	require.Contains(t, next(), "/in unsigned")
	requireStatus(t, 401, url, sent{id: "m4", sign: true, timestamp: time.Now().Add(-time.Hour).Unix()})
	require.Contains(t, next(), "BAD (webhook timestamp")
}

func TestListenSaysBAD(t *testing.T) {
	t.Parallel()
	url, next := listening(t, cli.ListenOptions{Secrets: []string{"whsec_plJ3nmyCDGBKInavdOK15jsl"}, JSON: true})
	for range 2 {
		requireStatus(t, 401, url, sent{id: "m1", sign: true, body: "x"})
		var got map[string]any
		require.NoError(t, json.Unmarshal([]byte(next()), &got))
		require.Equal(t, "BAD", got["verified"])
		require.InDelta(t, 0, got["seen"], 0, "a forged request counts for nothing")
	}
}

func TestListenAnswersAsToldWhateverTheSignature(t *testing.T) {
	t.Parallel()
	url, _ := listening(t, cli.ListenOptions{Secrets: []string{listenSecret}, Status: 202})
	requireStatus(t, 202, url, sent{id: "m1"})
	url, _ = listening(t, cli.ListenOptions{Secrets: []string{listenSecret}, Fail: 1})
	requireStatus(t, 500, url, sent{id: "m1"})
	requireStatus(t, 401, url, sent{id: "m1"})
}

func TestListenJSON(t *testing.T) {
	t.Parallel()
	url, next := listening(t, cli.ListenOptions{JSON: true})
	requireStatus(t, 200, url, sent{id: "m1", fence: "8", target: "hook:a", body: "<ü>", sign: true})
	var got map[string]any
	require.NoError(t, json.Unmarshal([]byte(next()), &got))
	require.NotEmpty(t, got["time"])
	delete(got, "time")
	require.Equal(t, map[string]any{
		"method": "POST", "path": "/in", "webhook_id": "m1", "delivery": "dlv-n-1", "target": "hook:a", "fence": "8", "attempt": "1",
		"type": "t", "subject": "sub", "verified": "unchecked", "seen": 1.0, "stale": false, "highest_fence": 8.0,
		"status": 200.0, "closed": false, "bytes": 4.0, "body": "<ü>", "body_truncated": false,
		"sha256": "1c5e71984e46026170991faa28ceef66caf4d1b70e4eb5bda16bcb685772d6e5",
	}, got)

	requireStatus(t, 200, url, sent{id: "m2", body: strings.Repeat("x", 100_000)})
	require.NoError(t, json.Unmarshal([]byte(next()), &got))
	require.Equal(t, true, got["body_truncated"])
	require.Len(t, got["body"], 64<<10)
	require.InDelta(t, 100_000, got["bytes"], 0)
}

func TestListenFailsOnDemand(t *testing.T) {
	t.Parallel()
	url, _ := listening(t, cli.ListenOptions{Fail: 2, RetryAfter: "7"})
	for _, want := range []int{500, 500, 200} {
		resp := requireStatus(t, want, url, sent{id: "m"})
		require.Equal(t, want != 200, resp.Header.Get("Retry-After") == "7")
	}
	url, _ = listening(t, cli.ListenOptions{Fail: 1, Status: 410})
	requireStatus(t, 410, url, sent{id: "m"})
	requireStatus(t, 200, url, sent{id: "m"})
	url, _ = listening(t, cli.ListenOptions{Status: 202})
	requireStatus(t, 202, url, sent{id: "m"})

	url, next := listening(t, cli.ListenOptions{Close: true, Fail: 1})
	_, err := post(t, url, sent{id: "m"})
	require.ErrorIs(t, err, io.EOF)
	require.Contains(t, next(), "closed without a reply")
	requireStatus(t, 200, url, sent{id: "m"})
}

func TestListenDelays(t *testing.T) {
	t.Parallel()
	url, next := listening(t, cli.ListenOptions{Delay: 50 * time.Millisecond})
	begin := time.Now()
	requireStatus(t, 200, url, sent{id: "m"})
	require.GreaterOrEqual(t, time.Since(begin), 50*time.Millisecond)
	next()

	// A delay does not hold the end up.
	url, next = listening(t, cli.ListenOptions{Delay: time.Hour})
	gone := make(chan error, 1)
	go func() {
		req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodPost, url, nil)
		if err == nil {
			var resp *http.Response
			if resp, err = http.DefaultClient.Do(req); err == nil {
				err = resp.Body.Close()
			}
		}
		gone <- err
	}()
	require.Contains(t, next(), "POST")
	t.Cleanup(func() { <-gone })
}

func TestListenRefuses(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]cli.ListenOptions{
		"address":     {Addr: "nowhere"},
		"secret":      {Secrets: []string{"whsec_canary"}},
		"missing":     {Secrets: []string{"env:FENCEPOST_TEST_ABSENT_SECRET"}},
		"status":      {Status: 99},
		"fail":        {Fail: -1},
		"retry after": {RetryAfter: "1\r\nX: y"},
	} {
		err := cli.Listen(t.Context(), o, io.Discard)
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), "canary", name)
	}
}

type brokenWriter struct{ lines int }

func (w *brokenWriter) Write(b []byte) (int, error) {
	if w.lines == 0 {
		return 0, errors.New("the terminal is gone")
	}
	w.lines--
	return len(b), nil
}

func TestListenEndsWhenItCannotPrint(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, cli.Listen(t.Context(), cli.ListenOptions{}, &brokenWriter{}), "the terminal is gone")
}
