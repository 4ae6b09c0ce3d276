package catalogue_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fencepost/edge"
	"fencepost/edge/metrics"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
)

const page = "docs/observability.md"

// table reads the table of a section: the cells of each row by the first one.
func table(t *testing.T, section string) map[string][]string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, page))
	require.NoError(t, err)
	_, text, ok := strings.Cut(string(b), "\n## "+section+"\n")
	require.True(t, ok, "%s has no section %s", page, section)
	text, _, _ = strings.Cut(text, "\n## ")
	rows := map[string][]string{}
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "|") || len(cells) < 4 || strings.HasPrefix(cells[0], "---") {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		require.NotEmpty(t, cells[3], "%s: %s has no meaning", page, cells[0])
		require.NotContains(t, rows, cells[0], "%s: twice", page)
		rows[cells[0]] = cells[1:]
	}
	delete(rows, "message")
	delete(rows, "metric")
	return rows
}

// words are the words of a cell, without the marks of code, in order.
func words(cell string) []string {
	all := strings.Fields(strings.ReplaceAll(cell, "`", ""))
	slices.Sort(all)
	return all
}

// Every message of the source stands in the catalogue with its level and keys,
// and the other way round.
func TestLogMessagesAreCatalogued(t *testing.T) {
	t.Parallel()
	found, rows := messages(t), table(t, "Log messages")
	for _, message := range slices.Sorted(maps.Keys(found)) {
		e := found[message]
		row, ok := rows[message]
		if !ok {
			t.Errorf("%s: %s lacks the row\n| %s | %s | `%s` | MEANING |", e.at[0], page, message, strings.Join(e.levels, ", "), strings.Join(e.keys, "` `"))
			continue
		}
		require.Equal(t, e.levels, words(strings.ReplaceAll(row[0], ",", " ")), "level of %q (%s)", message, e.at)
		require.Equal(t, words(strings.Join(e.keys, " ")), words(row[1]), "keys of %q (%s)", message, e.at)
	}
	for message := range rows {
		if found[message] == nil {
			t.Errorf("%s has a message that the program does not log: %s", page, message)
		}
	}
}

// Every metric stands in the catalogue with its type and labels, and the other way
// round.
func TestMetricsAreCatalogued(t *testing.T) {
	t.Parallel()
	m := metrics.New(busy{}, metrics.Build{Version: "v"})
	m.ExecutionEnded("h", edge.OutcomeSucceeded, time.Second)
	m.Request(metrics.Intake, 202, time.Millisecond)
	families, err := m.Gatherer().Gather()
	require.NoError(t, err)
	rows := table(t, "Metrics")
	seen := map[string]bool{}
	for _, f := range families {
		name := f.GetName()
		if strings.HasPrefix(name, "process_") {
			continue
		}
		require.True(t, strings.HasPrefix(name, "fencepost_"), name)
		row, ok := rows["`"+name+"`"]
		require.True(t, ok, "%s lacks %s (%s)", page, name, f.GetHelp())
		seen["`"+name+"`"] = true
		require.Equal(t, strings.ToLower(f.GetType().String()), row[0], name)
		require.Equal(t, labelsOf(f), words(row[1]), name)
		require.Equal(t, f.GetHelp(), row[2], name)
		counts := f.GetType() == dto.MetricType_COUNTER
		require.Equal(t, counts, strings.HasSuffix(name, "_total"), "%s: counters end in _total", name)
	}
	for name := range rows {
		require.True(t, seen[name], "%s has %s, which is not exposed", page, name)
	}
}

func labelsOf(f *dto.MetricFamily) []string {
	names := []string{}
	for _, m := range f.GetMetric() {
		for _, l := range m.GetLabel() {
			names = append(names, l.GetName())
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// busy is a node that has something to show of everything.
type busy struct{}

func (busy) Counters(context.Context) (map[string]int64, error) {
	return map[string]int64{"accepted": 1}, nil
}

func (busy) Handlers(context.Context) ([]edge.HandlerInfo, error) {
	return []edge.HandlerInfo{{Name: "h", Gate: edge.GateOn}}, nil
}

func (busy) Waiting(context.Context) (int64, map[string]int, error) {
	return 1, map[string]int{"h": 1}, nil
}
func (busy) Storage() edge.Storage       { return edge.Storage{State: edge.StorageHealthy, DaysLeft: 1} }
func (busy) Commits() (n, ops int64)     { return 1, 2 }
func (busy) Engine() edge.Status         { return edge.Status{Live: 1} }
func (busy) Totals() edge.Counters       { return edge.Counters{Lost: 1} }
func (busy) Uplinks() []edge.UplinkState { return []edge.UplinkState{{Name: "wan"}} }
func (busy) Ready() bool                 { return true }
func (busy) NowMS() int64                { return 2 }
