package sqlite_test

import (
	"bytes"
	"compress/gzip"
	"database/sql"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/sqlite"
)

// A fixture is a database as a node of one schema left it at a kill: every
// operation was done once, and rows wait in every state. One is kept for each
// schema from 1 on; `make fixture` writes that of the present schema.

// fixtureMS is the time at which the fixtures were left.
const fixtureMS = 1_700_003_600_000

func fixturePath(schema int) string {
	return filepath.Join("testdata", "schemas", fmt.Sprintf("%04d.db.gz", schema))
}

// TestSchemaFixtures opens a database of each schema with the present code. R27:
// what waited for its next try before the upgrade is tried after it.
func TestSchemaFixtures(t *testing.T) {
	t.Parallel()
	if *update {
		writeFixture(t, fixturePath(sqlite.SchemaVersion()))
	}
	kept, err := filepath.Glob(filepath.Join("testdata", "schemas", "*.db.gz"))
	require.NoError(t, err)
	require.NotEmpty(t, kept)
	for _, file := range kept {
		schema, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(file), ".db.gz"))
		require.NoError(t, err)
		require.LessOrEqual(t, schema, sqlite.SchemaVersion())
		t.Run(fmt.Sprint(schema), func(t *testing.T) {
			t.Parallel()
			path := unpack(t, schema)
			old := raw(t, path)
			retries := ids(t, old, `SELECT id FROM deliveries WHERE state = 'pending' AND attempts > 0 AND due_ms <= ?`, fixtureMS)
			states := number(t, old, `SELECT count(DISTINCT state) FROM deliveries`)
			before := rowCounts(t, old)
			require.NoError(t, old.Close())
			require.NotEmpty(t, retries, "a fixture has due retries")
			require.EqualValues(t, 9, states, "a fixture has a delivery in every state")

			s := openAt(t, path, sqlite.Options{Clock: edge.ManualClock(fixtureMS + 1000)})
			require.Equal(t, before, rowCounts(t, raw(t, path)), "an upgrade neither drops nor makes rows")
			if s.Hold() != nil { // it came without its side file
				_, err := s.AcceptLoss(t.Context(), edge.Decided{By: "test", Reason: "a fixture"})
				require.NoError(t, err)
				_, err = s.Resume(t.Context(), edge.Decided{By: "test", Reason: "a fixture"})
				require.NoError(t, err)
			}
			found, err := s.Check(t.Context(), true)
			require.NoError(t, err)
			require.Empty(t, found)
			worked := runAll(t, s)
			for _, id := range retries {
				require.Contains(t, worked, edge.DeliveryID(id), "a due retry is tried after the upgrade")
				d, err := s.Delivery(t.Context(), edge.DeliveryID(id))
				require.NoError(t, err)
				require.Equal(t, edge.Succeeded, d.State)
			}
		})
	}
}

// runAll voids what dead owners held and carries out what is claimable.
func runAll(t *testing.T, s *sqlite.Store) map[edge.DeliveryID]bool {
	t.Helper()
	require.NoError(t, s.Register(t.Context(), fixtureHandlers, 512, 60_000))
	dead, err := s.DeadOwners(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, dead, "a fixture has leases of a dead owner")
	for _, owner := range dead {
		_, err := s.VoidOwner(t.Context(), owner)
		require.NoError(t, err)
	}
	worked := map[edge.DeliveryID]bool{}
	for {
		cs, err := s.Claim(t.Context(), 64)
		require.NoError(t, err)
		if len(cs) == 0 {
			return worked
		}
		for _, c := range cs {
			worked[c.Delivery] = true
			if !c.Started {
				_, err := s.Start(t.Context(), c.Fence, c.Token)
				require.NoError(t, err)
			}
			_, err := s.Settle(t.Context(), settlement(c, edge.OutcomeSucceeded))
			require.NoError(t, err)
		}
	}
}

var fixtureHandlers = []edge.Registration{
	{Name: "hook", Revision: "1", Effect: edge.Idempotent, Slots: 1, Limit: 64},
	{Name: "see", Revision: "1", Effect: edge.Once, Slots: 1, Limit: 64, Inspect: true},
	{Name: "pay", Revision: "1", Effect: edge.Once, Slots: 1, Limit: 64, Halt: true},
	{Name: "pool", Revision: "1", Effect: edge.Idempotent, Slots: 3, Limit: 64},
}

// writeFixture makes the fixture of the present schema.
func writeFixture(t *testing.T, path string) {
	t.Helper()
	e := &everything{t: t, path: dbPath(t), clock: edge.ManualClock(fixtureMS - 7*24*3_600_000), note: func(string) {}}
	e.do()
	e.clock.Advance(time.Duration(fixtureMS-10_000-e.clock.NowMS()) * time.Millisecond)
	e.open()
	for n := range 3 {
		sub := submission(fmt.Sprint("body", n), fmt.Sprint("b", n), "hook")
		sub.Event.ContentType, sub.Event.Data = "application/json", []byte(fmt.Sprintf(`{"n":%d,"text":"ÄÖÜ \u0000"}`, n))
		sub.Event.Extensions = map[string]string{"partitionkey": "k"}
		_, err := e.s.Accept(t.Context(), []edge.Submission{sub})
		require.NoError(t, err)
	}
	retry := func(handler string, delay int64) {
		c := e.claim(e.accept(handler))
		if !c.Started {
			_, err := e.s.Start(t.Context(), c.Fence, c.Token)
			require.NoError(t, err)
		}
		st := settlement(c, edge.OutcomeRetry)
		st.DelayMS = delay
		_, err := e.s.Settle(t.Context(), st)
		require.NoError(t, err)
	}
	e.settle(e.claim(e.accept("pay")), outcome(edge.OutcomeIndeterminate)) // waits for a person
	e.settle(e.claim(e.accept("pay")), outcome(edge.OutcomeFailed))        // a halt
	soon := e.accept("hook")
	ttl := submission("too-late", "late", "hook")
	ttl.Routes[0].TTLMS = 10
	_, err := e.s.Accept(t.Context(), []edge.Submission{ttl})
	require.NoError(t, err)
	e.clock.Advance(time.Second)
	_, err = e.s.Expire(t.Context(), 100)
	require.NoError(t, err)
	_, err = e.s.Cancel(t.Context(), soon)
	require.NoError(t, err)
	require.NoError(t, e.s.HoldForTest(t.Context(), e.accept("hook")))
	for range 5 {
		retry("hook", 1000)
	}
	retry("see", 1000)
	retry("hook", 24*3_600_000)
	e.claim(e.accept("see"))  // leased by an owner that is gone
	e.claim(e.accept("pay"))  // once work that runs
	e.claim(e.accept("hook")) // idempotent work that runs
	db := raw(t, e.path)
	copied := filepath.Join(t.TempDir(), "fixture.db")
	exe(t, db, `VACUUM INTO ?`, copied)
	data, err := os.ReadFile(copied)
	require.NoError(t, err)
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	require.NoError(t, err)
	_, err = w.Write(data)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, b.Bytes(), 0o644))
}

// unpack puts the fixture of a schema into a directory of its own.
func unpack(t *testing.T, schema int) string {
	t.Helper()
	f, err := os.Open(fixturePath(schema))
	require.NoError(t, err, "no fixture of schema %d: run make fixture, and keep what it writes", schema)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	data, err := io.ReadAll(z)
	require.NoError(t, err)
	path := dbPath(t)
	require.NoError(t, os.WriteFile(path, data, 0o600))
	db := raw(t, path)
	exe(t, db, `PRAGMA journal_mode = WAL`)
	require.NoError(t, db.Close())
	return path
}

// rowCounts are the rows of the tables that hold people's data.
func rowCounts(t *testing.T, db *sql.DB) map[string]int64 {
	t.Helper()
	counts := map[string]int64{}
	for _, table := range []string{"events", "deliveries", "executions", "leases", "consumptions", "recoveries", "targets", "handlers", "owners"} {
		var n int64
		require.NoError(t, db.QueryRow(`SELECT count(*) FROM `+table).Scan(&n), table)
		counts[table] = n
	}
	return counts
}

func ids(t *testing.T, db *sql.DB, query string, args ...any) []int64 {
	t.Helper()
	rows, err := db.Query(query, args...)
	require.NoError(t, err)
	defer rows.Close()
	var all []int64
	for rows.Next() {
		var id int64
		require.NoError(t, rows.Scan(&id))
		all = append(all, id)
	}
	require.NoError(t, rows.Err())
	return all
}
