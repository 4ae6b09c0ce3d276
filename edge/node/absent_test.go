package node_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/node"
)

// scrape asks for the metrics over the socket.
func (r *running) scrape(t *testing.T, socket string) string {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/metrics", nil)
	require.NoError(t, err)
	resp, err := c.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode, string(b))
	return string(b)
}

// An alert on a closed gate ends: a handler that was taken out of the
// configuration is in the metrics as long as something waits for it, and no longer.
func TestMetrics_OfAHandlerThatIsNoMore(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := s.startFile(t, logHandler("a")+routeTo("all", "*", "a"), node.Options{})
	r.await(t, r.send(t, "x", "1"), edge.Succeeded)
	_, err := r.client.PauseHandler(t.Context(), "a", 0)
	require.NoError(t, err)
	waits := r.send(t, "x", "1")
	require.Contains(t, r.scrape(t, s.path("s")), `fencepost_handler_open{handler="a"} 0`+"\n")

	s.write(t, logHandler("b")+routeTo("all", "*", "b"))
	_, err = r.client.Reload(t.Context())
	require.NoError(t, err)
	text := r.scrape(t, s.path("s"))
	require.Contains(t, text, `fencepost_handler_open{handler="a"} 0`+"\n", "work waits for it")
	require.Contains(t, text, `fencepost_handler_open{handler="b"} 1`+"\n")

	_, err = r.client.Cancel(t.Context(), waits)
	require.NoError(t, err)
	require.NotContains(t, r.scrape(t, s.path("s")), `handler_open{handler="a"}`)
	hs, err := r.client.Handlers(t.Context())
	require.NoError(t, err)
	require.Len(t, hs, 2, "it is listed all the same")
	r.end(t)
}
