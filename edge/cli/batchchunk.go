package cli

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"fencepost/edge"
	"fencepost/edge/api"
)

// batchChunk is what goes in one request, within the limits of a batch.
type batchChunk struct {
	lines []chunkLine
	bytes int // of the events' bodies
}

type chunkLine struct {
	number int
	event  edge.Event
	body   []byte // in the JSON format
}

// full reports whether one more event has no room. A chunk always takes one.
func (c *batchChunk) full(body int) bool {
	const comma = 1
	return len(c.lines) > 0 && (len(c.lines) == edge.MaxBatchEvents || c.bytes+len(c.lines)*comma+body+2 > edge.MaxBatchBytes)
}

func (c *batchChunk) add(number int, ev edge.Event, body []byte) {
	c.lines = append(c.lines, chunkLine{number, ev, body})
	c.bytes += len(body)
}

// firstLine is the line of the first event, 0 when there is none.
func (c *batchChunk) firstLine() int {
	if len(c.lines) == 0 {
		return 0
	}
	return c.lines[0].number
}

// send hands the events in. One that is too large for a batch goes alone, in a
// form that has its data as it is.
func (c *batchChunk) send(ctx context.Context, client *api.Client) ([]api.BatchItem, error) {
	if len(c.lines) == 1 && c.bytes+2 > edge.MaxBatchBytes {
		return sendAlone(ctx, client, c.lines[0].event)
	}
	body := make([]byte, 0, c.bytes+len(c.lines)+2)
	for i := range c.lines {
		sep := byte(',')
		if i == 0 {
			sep = '['
		}
		body = append(append(body, sep), c.lines[i].body...)
	}
	return client.SendBatch(ctx, append(body, ']'), ownTrace())
}

func sendAlone(ctx context.Context, client *api.Client, ev edge.Event) ([]api.BatchItem, error) {
	ev.Trace = ownTrace()
	rc, err := client.Send(ctx, ev)
	var p *api.Problem
	switch {
	case err == nil && rc.Existing:
		return []api.BatchItem{{Status: http.StatusOK, Receipt: &rc}}, nil
	case err == nil:
		return []api.BatchItem{{Status: http.StatusAccepted, Receipt: &rc}}, nil
	case errors.As(err, &p) && errors.Is(err, edge.ErrConflict):
		return []api.BatchItem{{Status: p.Status, Problem: p}}, nil
	}
	return nil, err
}

// chunkPlace is the place of an event in a batch that a JSON Pointer names.
func chunkPlace(pointer string) (int, bool) {
	first, _, _ := strings.Cut(strings.TrimPrefix(pointer, "/"), "/")
	n, err := strconv.Atoi(first)
	return n, err == nil && n >= 0
}
