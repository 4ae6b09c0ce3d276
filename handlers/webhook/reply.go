package webhook

import (
	"context"
	"io"
	"net/http"
	"strings"
	"time"

	"fencepost/edge"
)

// readReply reads the part of a reply's body that is kept, within bytes and
// within time: a body that is cut, endless or slow changes nothing but the
// detail. Nothing is decompressed; a body that is encoded all the same is
// dropped. slack is read in addition, for the secrets at the cut.
func (h *Handler) readReply(resp *http.Response, cancel context.CancelFunc, slack int) (text []byte, truncated bool) {
	// Closing a body that was not read to its end closes the connection.
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return nil, false // not a body but a connection
	}
	timer := time.AfterFunc(h.config.ReplyTimeout, cancel)
	defer timer.Stop()
	limit := edge.MaxDetailBytes + slack
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(limit)+1))
	truncated = err != nil
	if len(body) > limit {
		body, truncated = body[:limit], true
	}
	if enc := resp.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") && len(body) > 0 {
		return []byte("the body is encoded although that was not asked for; it is not kept"), true
	}
	return body, truncated
}
