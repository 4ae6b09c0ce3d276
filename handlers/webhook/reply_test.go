package webhook_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/handlers/webhook"
)

// The success stands whatever the body does, with exactly one request, and the
// worker is free soon after.
func TestD2_HostileRepliesAreStillSuccess(t *testing.T) {
	t.Parallel()
	chunk := bytes.Repeat([]byte("x"), 64<<10)
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	for range 50 << 20 / len(chunk) {
		_, err := z.Write(chunk)
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	require.Less(t, bomb.Len(), 100<<10)

	wrote := make(chan int, 1)
	for name, c := range map[string]struct {
		serve     http.HandlerFunc
		truncated bool
		contains  string
	}{
		"50 MB": {func(w http.ResponseWriter, _ *http.Request) {
			n := 0
			for n < 50<<20 {
				m, err := w.Write(chunk)
				n += m
				if err != nil {
					break
				}
			}
			wrote <- n
		}, true, "xxxx"},
		"endless drip": {func(w http.ResponseWriter, r *http.Request) {
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for {
				_, _ = io.WriteString(w, "drip")
				_ = http.NewResponseController(w).Flush()
				select {
				case <-r.Context().Done():
					return
				case <-tick.C:
				}
			}
		}, true, "drip"},
		"gzip bomb": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb.Bytes())
		}, true, "not kept"},
		"NUL and invalid UTF-8": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "a\x00b\xffc\x1b[2J")
		}, false, `a\x00b\xffc\x1b[2J`},
		"cut": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "only this")
		}, true, "only this"},
		"malformed chunk": {func(w http.ResponseWriter, _ *http.Request) {
			c, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n")
				_ = c.Close()
			}
		}, true, "hello"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, c.serve)
			h := newHandler(t, webhook.Config{URL: s.URL, ReplyTimeout: 500 * time.Millisecond})
			begin := time.Now()
			r := h.Handle(within(t, hang), claim("x"))
			require.Less(t, time.Since(begin), hang/2, "the worker is free long before the deadline")
			require.Equal(t, edge.OutcomeSucceeded, r.Outcome, r.Detail)
			require.Equal(t, "http_200", r.Code)
			require.LessOrEqual(t, len(r.Detail), edge.MaxDetailBytes)
			require.True(t, utf8.ValidString(r.Detail))
			require.NotContains(t, r.Detail, "\x00")
			require.Contains(t, r.Detail, c.contains)
			require.Equal(t, c.truncated, strings.HasSuffix(r.Detail, "[truncated]"))
			require.Len(t, s.all(), 1)
		})
	}
	t.Cleanup(func() {
		// What was not read was not sent either, but for the buffers of the system.
		require.Less(t, <-wrote, 40<<20)
	})
}

func TestReplyDoesNotShowSecrets(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		// The second one stands across the cut of what is kept.
		filler := strings.Repeat("x", edge.MaxDetailBytes-2*len("Bearer canary")-3)
		_, _ = io.WriteString(w, r.Header.Get("Authorization")+filler+r.Header.Get("Authorization"))
	})
	h := newHandler(t, webhook.Config{URL: s.URL, Headers: map[string]string{"Authorization": secretFile(t, "Bearer canary")}})
	r := h.Handle(within(t, hang), claim("x"))
	require.Equal(t, "http_403", r.Code)
	require.Equal(t, "Bearer canary", s.all()[0].header.Get("Authorization"))
	require.NotContains(t, r.Detail, "Bearer")
	require.Contains(t, r.Detail, "[redacted]xxx")
}

// T9: what a hostile target sends costs the node at most about a megabyte, however
// much it is. Not parallel: it counts what the whole process allocates.
func TestT9_HostileRepliesCostLittleMemory(t *testing.T) {
	chunk := bytes.Repeat([]byte("x"), 64<<10)
	endless := func(head string) func(net.Conn) {
		return func(c net.Conn) {
			buffer := make([]byte, 32<<10)
			for !bytes.Contains(buffer, []byte("\r\n\r\n")) {
				if _, err := c.Read(buffer); err != nil {
					return
				}
			}
			if _, err := io.WriteString(c, head); err != nil {
				return
			}
			for range 1 << 30 / len(chunk) {
				if _, err := c.Write(chunk); err != nil {
					return
				}
			}
		}
	}
	for name, head := range map[string]string{
		"1 GiB header": "HTTP/1.1 200 OK\r\nX-Long: ",
		"1 GiB body":   "HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n",
		"1 GiB chunk":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40000000\r\n",
		"gzip":         "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff",
	} {
		h := newHandler(t, webhook.Config{URL: rawServer(t, endless(head)), ReplyTimeout: 500 * time.Millisecond})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r := h.Handle(within(t, hang), claim("x"))
		runtime.ReadMemStats(&after)
		require.NotEmpty(t, r.Code, name)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(2<<20), "%s: %s", name, r.Code)
		require.LessOrEqual(t, len(r.Detail), edge.MaxDetailBytes)
	}
}
