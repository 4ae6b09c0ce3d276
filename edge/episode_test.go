package edge_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
)

// syncBuffer is a log that many goroutines write.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) count(text string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(s.b.String(), text)
}

// TestAFailingHandlerIsLoggedOncePerEpisode tells the operator of a dead endpoint
// once, and once when it is back.
func TestAFailingHandlerIsLoggedOncePerEpisode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log syncBuffer
		tries := map[string]int{}
		var mu sync.Mutex
		o := only(handler("h", edge.Idempotent, func(_ context.Context, c *edge.Claim) edge.Result {
			mu.Lock()
			defer mu.Unlock()
			if tries[c.Event.ID]++; tries[c.Event.ID] < 3 {
				return edge.TryAgain("down", "")
			}
			return edge.Done()
		}))
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		b := newBench(t, o).start()
		for _, id := range []string{"1", "2", "3"} {
			b.await(b.enqueue(id, "k"), edge.Succeeded)
		}
		b.finish()
		require.Equal(t, 3, log.count("handler has begun to fail"))
		require.Equal(t, 3, log.count("handler works again"))
	})
}
