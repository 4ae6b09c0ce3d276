package crash_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"fencepost/edge/api"

	"github.com/stretchr/testify/require"
)

// sent is an event of a producer, in the producer's ledger once it was
// acknowledged.
type sent struct {
	source, id, kind, subject string
	body                      string
	key                       string // Idempotency-Key, "" for none
	producer                  string
	place                     int // among the producer's events

	receipt  api.Receipt
	status   int    // of the acknowledgement: 202 new, 200 existing
	answer   string // its body
	replayed bool   // it was that of an earlier request with the key
	tries    int    // requests until then
}

// token reads the access token of the node.
func (n *node) token() string {
	n.t.Helper()
	text, err := os.ReadFile(filepath.Join(n.dir, "d.db.token"))
	require.NoError(n.t, err)
	return strings.TrimSpace(string(text))
}

// post makes one request for an event. The error is that of the connection.
func post(ctx context.Context, c *http.Client, addr, token string, e *sent) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/v1/events", strings.NewReader(e.body))
	if err != nil {
		return 0, err
	}
	req.GetBody = nil // what is sent again is sent again by us, and counted
	for name, value := range map[string]string{
		"Authorization": "Bearer " + token, "Content-Type": "application/json", "Ce-Specversion": "1.0",
		"Ce-Id": e.id, "Ce-Source": e.source, "Ce-Type": e.kind, "Ce-Subject": e.subject,
	} {
		req.Header.Set(name, value)
	}
	if e.key != "" {
		req.Header.Set("Idempotency-Key", `"`+e.key+`"`)
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err // cut in the middle: not acknowledged
	}
	if resp.StatusCode/100 == 2 {
		if err := json.Unmarshal(answer, &e.receipt); err != nil {
			return 0, err
		}
		e.status, e.answer, e.replayed = resp.StatusCode, string(answer), resp.Header.Get(api.HeaderReplayed) != ""
	}
	return resp.StatusCode, nil
}

// postUntil sends an event, always under the same id, until it is acknowledged
// or ctx is done. to tells where the node is now.
func postUntil(ctx context.Context, c *http.Client, to func() string, token string, e *sent) error {
	pause := time.NewTicker(5 * time.Millisecond)
	defer pause.Stop()
	for {
		e.tries++
		status, err := post(ctx, c, to(), token, e)
		switch {
		case err == nil && status/100 == 2:
			return nil
		case err == nil && status/100 == 4 && status != http.StatusUnauthorized:
			// Unauthorized: another node has got the port of one that was killed.
			return fmt.Errorf("event %s of %s was answered with %d", e.id, e.source, status)
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// send hands in one event over HTTP, which must be taken at once.
func (n *node) send(kind, subject, id string) sent {
	n.t.Helper()
	e := sent{source: "/test", id: id, kind: kind, subject: subject, body: `{"id":"` + id + `"}`}
	status, err := post(context.Background(), n.http, *n.addr.Load(), n.token(), &e)
	require.NoError(n.t, err)
	require.Equal(n.t, http.StatusAccepted, status)
	return e
}

// sendOne hands in an event that is owed to one target, and returns its delivery.
func (n *node) sendOne(kind, subject, id string) string {
	n.t.Helper()
	e := n.send(kind, subject, id)
	require.Len(n.t, e.receipt.Deliveries, 1)
	return e.receipt.Deliveries[0].ID
}

// lost sends every acknowledged event once more and returns what the node does
// not know, or knows as another one.
func (n *node) lost(acked []sent) []string {
	n.t.Helper()
	var faults []string
	const batch = 500
	for len(acked) > 0 {
		part := acked[:min(batch, len(acked))]
		acked = acked[len(part):]
		for i, item := range n.postBatch(part) {
			e := part[i]
			switch {
			case item.Receipt == nil:
				faults = append(faults, fmt.Sprintf("acknowledged event %s of %s is refused now: %d", e.id, e.source, item.Status))
			case !item.Existing:
				faults = append(faults, fmt.Sprintf("acknowledged event %s of %s is lost", e.id, e.source))
			case e.receipt.ID != "" && item.ID != e.receipt.ID:
				faults = append(faults, fmt.Sprintf("acknowledged event %s of %s was %s and is %s", e.id, e.source, e.receipt.ID, item.ID))
			}
		}
	}
	return faults
}

func (n *node) postBatch(events []sent) []api.BatchItem {
	n.t.Helper()
	items, err := postBatch(n.http, *n.addr.Load(), n.token(), events)
	require.NoError(n.t, err)
	return items
}

// postBatch hands in events together and returns the answers, one for each.
func postBatch(c *http.Client, addr, token string, events []sent) ([]api.BatchItem, error) {
	var array []map[string]any
	for _, e := range events {
		array = append(array, map[string]any{
			"specversion": "1.0", "id": e.id, "source": e.source, "type": e.kind, "subject": e.subject,
			"datacontenttype": "application/json", "data_base64": []byte(e.body),
		})
	}
	body, err := json.Marshal(array)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequest(http.MethodPost, "http://"+addr+"/v1/events", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/cloudevents-batch+json")
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	var items []api.BatchItem
	if resp.StatusCode/100 != 2 {
		return nil, fmt.Errorf("a batch was answered with %d: %s", resp.StatusCode, answer)
	}
	if err := json.Unmarshal(answer, &items); err != nil {
		return nil, fmt.Errorf("%s: %w", answer, err)
	}
	if len(items) != len(events) {
		return nil, fmt.Errorf("%d answers to %d events", len(items), len(events))
	}
	return items, nil
}
