//go:build faults

package crash_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestR89_ScrapeReads counts what scrapes of /metrics read of the database, by
// system calls, in a process that has nothing of it in memory: no more with 20,000
// deliveries than with 100 (alphaonedev/ai-memory-mcp#2583). A full check, which does read
// all rows, shows that the calls are seen.
func TestR89_ScrapeReads(t *testing.T) {
	t.Parallel()
	n := newNode(t, "metrics_token_file = \"metrics.token\"\n[[handler]]\nname = \"note\"\nkind = \"log\"\n"+route("note", "*"))
	n.start()
	made := 0
	fill := func(to int) {
		for made < to {
			var events []sent
			for range min(500, to-made) {
				events = append(events, sent{source: "/test", id: fmt.Sprint("e", made), kind: "x", subject: fmt.Sprint("t", made%100), body: `"` + strings.Repeat("x", 1000) + `"`})
				made++
			}
			n.postBatch(events)
		}
		n.drain()
	}
	db, wal := n.database()
	measure := func() int {
		n.stop()
		n.start()
		a := n.attach(t, "pread64", []string{db, wal})
		defer a.detach()
		for range 20 {
			require.Contains(t, n.scrape(), fmt.Sprintf("fencepost_deliveries{state=\"succeeded\"} %d\n", made))
		}
		return a.count(t, "pread64(")
	}
	fill(100)
	few := measure()
	fill(20_000)
	many := measure()
	a := n.attach(t, "pread64", []string{db, wal})
	n.clean()
	all := a.count(t, "pread64(")
	a.detach()
	t.Logf("reads of 20 scrapes: %d with 100 deliveries, %d with %d; a full check: %d", few, many, made, all)
	require.Greater(t, all, 2000, "reads are not seen")
	require.Less(t, many, few+100, "20 scrapes read more when there is more")
}

// scrape asks for the metrics as Prometheus does.
func (n *node) scrape() string {
	n.t.Helper()
	token, err := os.ReadFile(filepath.Join(n.dir, "metrics.token"))
	require.NoError(n.t, err)
	req, err := http.NewRequest(http.MethodGet, "http://"+*n.addr.Load()+"/metrics", nil)
	require.NoError(n.t, err)
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	resp, err := n.http.Do(req)
	require.NoError(n.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(n.t, err)
	require.Equal(n.t, http.StatusOK, resp.StatusCode, "%s", body)
	return string(body)
}
