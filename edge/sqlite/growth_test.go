package sqlite_test

import (
	"fmt"
	"os"
	"slices"
	"sort"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/sqlite"
)

// tableBounds says of each table what keeps it from growing without end. A new
// table has to say it too, here and in docs/bounds.md.
var tableBounds = map[string]string{
	"settings":     "a fixed set of names",
	"sequences":    "one row",
	"counters":     "a fixed set of names",
	"owners":       "the newest 1,000, and those that hold leases",
	"handlers":     "one row for each name that a configuration ever had",
	"rates":        "one row for each handler",
	"episodes":     "one row for each handler",
	"revisions":    "the newest 1,000, and those that are needed",
	"targets":      "go with their last delivery and consumption",
	"events":       "identities for dedupe_days, data with the last delivery",
	"deliveries":   "max_backlog_bytes, and days and bytes of each final class",
	"executions":   "23 of a delivery, and they go with it; of WithTarget by age and the newest 10,000",
	"leases":       "one for each worker",
	"consumptions": "go with their event's identity",
	"recoveries":   "go with their delivery",
	"requests":     "for dedupe_days",
	"marks":        "a ring of 4,096",
	"losses":       "one row for each time that a person has to look",
	"former_nodes": "one row for each time that the file was copied to another host",
}

// TestNothingGrowsWithoutEnd does the same work in turns, with upkeep between
// them, and finds each table as long after the tenth as after the third.
func TestNothingGrowsWithoutEnd(t *testing.T) {
	t.Parallel()
	path, clock := dbPath(t), edge.ManualClock(1_700_000_000_000)
	s := openAt(t, path, sqlite.Options{Clock: clock})
	db := raw(t, path)
	var tables []string
	rows, err := db.Query(`SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name`)
	require.NoError(t, err)
	for rows.Next() {
		var name string
		require.NoError(t, rows.Scan(&name))
		tables = append(tables, name)
	}
	require.NoError(t, rows.Err())
	require.NoError(t, rows.Close())
	var bounded []string
	for name := range tableBounds {
		bounded = append(bounded, name)
	}
	sort.Strings(bounded)
	require.Equal(t, bounded, tables, "each table says what bounds it")

	turn := func(n int) map[string]int64 {
		register(t, s, edge.Registration{Name: "hook", Revision: fmt.Sprint("r", n)})
		for i := range 12 {
			id := n*1000 + i
			require.NoError(t, take(t, s, id, fmt.Sprint("key", id), "hook").Err)
			_, err := s.Accept(t.Context(), []edge.Submission{submission(fmt.Sprint("nobody's", id), "k")})
			require.NoError(t, err)
			c := claimOne(t, s)
			for range i % 3 {
				_, err := s.Settle(t.Context(), settlement(c, edge.OutcomeRetry))
				require.NoError(t, err)
				clock.Advance(time.Minute)
				c = claimOne(t, s)
			}
			o := edge.OutcomeSucceeded
			if i%2 == 1 {
				o = edge.OutcomeFailed
			}
			_, err = s.Settle(t.Context(), settlement(c, o))
			require.NoError(t, err)
			l, err := s.Acquire(t.Context(), edge.Target{Handler: "hook", Key: "borrowed"})
			require.NoError(t, err)
			require.NoError(t, s.Relinquish(t.Context(), l.Execution, l.Token, edge.OutcomeSucceeded, "ok"))
		}
		clock.Advance(24 * time.Hour)
		now := clock.NowMS()
		p := edge.PrunePolicy{SucceededBeforeMS: now - 1, FailedBeforeMS: now - 1, DedupeBeforeMS: now - 1, Limit: 10}
		for more := true; more; {
			swept, err := s.Prune(t.Context(), p)
			require.NoError(t, err)
			more = swept.More
		}
		sizes := map[string]int64{}
		for _, name := range tables {
			if name != "revisions" && name != "marks" { // bounded by thousands
				sizes[name] = number(t, db, `SELECT count(*) FROM `+name)
			}
		}
		return sizes
	}
	var third map[string]int64
	for n := range 10 {
		sizes := turn(n)
		if n == 2 {
			third = sizes
		}
		if n == 9 {
			require.Equal(t, third, sizes)
		}
	}
	require.Zero(t, third["events"]+third["deliveries"]+third["executions"]+third["consumptions"]+third["targets"])
}

// TestP22_StallsLong measures what pruning many rows costs other writers: the
// worst time of an accept beside it, on a real disk. make bounds-long.
func TestP22_StallsLong(t *testing.T) {
	rows := 2_000
	long := os.Getenv("FENCEPOST_LONG") != ""
	if long {
		rows = 1_000_000
	}
	t.Parallel()
	path := skewed(t, rows*3)
	s, err := sqlite.Open(path, sqlite.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	db := raw(t, path)
	const left = `SELECT count(*) FROM deliveries WHERE state = 'succeeded'`
	was := number(t, db, left)
	done := make(chan struct{})
	var pruned, steps int
	var worker sync.WaitGroup
	worker.Go(func() {
		defer close(done)
		for pruned < rows {
			swept, err := s.Prune(t.Context(), edge.PrunePolicy{SucceededBeforeMS: 1 << 50, Limit: 50})
			if err != nil || !swept.More {
				return
			}
			pruned += swept.Done
			steps++
		}
	})
	var took []time.Duration
	for n := 0; ; n++ {
		began := time.Now()
		_, err := s.Accept(t.Context(), []edge.Submission{submission(fmt.Sprint("stall", n), "k")})
		require.NoError(t, err)
		took = append(took, time.Since(began))
		select {
		case <-done:
			worker.Wait()
			slices.Sort(took)
			worst := took[len(took)-1]
			t.Logf("pruned %d rows in %d steps; %d accepts beside it, the worst took %v, one in a hundred %v (promise: 250ms)",
				pruned, steps, len(took), worst, took[len(took)*99/100])
			require.Positive(t, pruned)
			require.Less(t, number(t, db, left), was)
			require.GreaterOrEqual(t, len(took), steps/2, "accepts have their turn between two steps")
			if long {
				require.Less(t, worst, 250*time.Millisecond)
			}
			return
		default:
		}
	}
}
