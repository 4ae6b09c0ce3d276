package sqlite_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/sqlite"
)

// specimen makes a sound file that has something of everything, closed.
func specimen(t *testing.T) string {
	t.Helper()
	path := dbPath(t)
	s, err := sqlite.Open(path, sqlite.Options{Clock: edge.ManualClock(1_700_000_000_000)})
	require.NoError(t, err)
	ctx := t.Context()
	require.NoError(t, s.Register(ctx, []edge.Registration{
		{Name: "hook", Effect: edge.Idempotent, Slots: 1, Limit: 64},
		{Name: "pool", Effect: edge.Idempotent, Slots: 3, Limit: 64},
		{Name: "pay", Effect: edge.Once, Slots: 1, Limit: 64},
	}, 64, 60_000))
	accept := func(id, key, handler string) {
		t.Helper()
		as, err := s.Accept(ctx, []edge.Submission{submission(id, key, handler)})
		require.NoError(t, err)
		require.NoError(t, as[0].Err)
	}
	settle := func(key string, o edge.Outcome) {
		t.Helper()
		for {
			cs, err := s.Claim(ctx, 1)
			require.NoError(t, err)
			require.Len(t, cs, 1)
			if cs[0].Target.Key == key {
				_, err = s.Settle(ctx, settlement(cs[0], o))
				require.NoError(t, err)
				return
			}
		}
	}
	accept("a", "bob", "hook")
	settle("bob", edge.OutcomeSucceeded)
	accept("d", "dave", "hook")
	settle("dave", edge.OutcomeFailed)
	accept("e", "eve", "pay")
	settle("eve", edge.OutcomeIndeterminate)
	accept("b", "bob", "hook")
	accept("x1", "x", "pool")
	accept("x2", "x", "pool")
	accept("x3", "x", "pool")
	for range 4 {
		claimOne(t, s)
	}
	accept("f", "bob", "hook")
	accept("c", "carol", "hook")
	accept("x4", "x", "pool")
	accept("y", "y", "pool")
	vs, err := s.Check(ctx, true)
	require.NoError(t, err)
	require.Empty(t, vs, "the specimen is sound")
	require.NoError(t, s.Close())
	return path
}

// Parts of the corruptions: which rows.
const (
	ofBob    = ` WHERE target = (SELECT id FROM targets WHERE key = 'bob')`
	ofDave   = ` WHERE target = (SELECT id FROM targets WHERE key = 'dave')`
	ofX      = ` WHERE target = (SELECT id FROM targets WHERE key = 'x')`
	anXLease = `(SELECT delivery FROM leases` + ofX + ` ORDER BY slot LIMIT 1)`
)

// corruptions break each rule of Check, and no other one.
var corruptions = map[string][]string{
	"succeeded_has_consumption": {
		`DELETE FROM consumptions` + ofBob,
		`UPDATE targets SET kept = kept - 1 WHERE key = 'bob'`,
	},
	"leases_within_slots": { // a lease of WithTarget beside that of the line
		`UPDATE sequences SET execution = execution + 1`,
		`INSERT INTO executions (id, attempt, owner, token, claimed_ms) SELECT execution, 1, 1, 1, 1 FROM sequences`,
		`INSERT INTO leases SELECT t.id, 1, 1, NULL, s.execution, 1, 1 FROM targets t, sequences s WHERE t.key = 'bob'`,
		`UPDATE targets SET busy = 2, borrowed = 1 WHERE key = 'bob'`,
	},
	"one_lease_per_line": {
		`UPDATE deliveries SET ordered = 1` + ofX + ` AND state = 'running'`,
		`UPDATE targets SET open_ordered = 3 WHERE key = 'x'`,
	},
	"active_has_lease": {
		`UPDATE executions SET ended_ms = 1, outcome = 'lost' WHERE delivery = ` + anXLease,
		`DELETE FROM leases WHERE delivery = ` + anXLease,
		`UPDATE targets SET busy = busy - 1, ready_ms = 1 WHERE key = 'x'`,
	},
	"lease_has_active": {
		`UPDATE deliveries SET state = 'pending' WHERE id = ` + anXLease,
		`UPDATE counters SET value = value - 1 WHERE name = 'state.running'`,
		`UPDATE counters SET value = value + 1 WHERE name = 'state.pending'`,
	},
	"lease_has_open_execution": {`UPDATE executions SET token = token + 1 WHERE delivery = ` + anXLease},
	"open_execution_has_lease": {
		`UPDATE sequences SET execution = execution + 1`,
		`INSERT INTO executions (id, attempt, owner, token, claimed_ms) SELECT execution, 1, 1, 1, 1 FROM sequences`,
	},
	"running_has_started":        {`UPDATE executions SET started_ms = NULL WHERE delivery = ` + anXLease},
	"target_busy":                {`UPDATE targets SET borrowed = 1 WHERE key = 'x'`},
	"target_open":                {`UPDATE targets SET open = open - 1 WHERE key = 'x'`},
	"bytes_agree":                {`UPDATE deliveries SET bytes = bytes + 1` + ofBob},
	"target_kept":                {`UPDATE targets SET kept = kept + 1 WHERE key = 'x'`},
	"delivery_has_target":        {`DELETE FROM targets WHERE key = 'dave'`},
	"nothing_stranded_strict":    {`UPDATE targets SET ready_ms = NULL WHERE key = 'carol'`},
	"nothing_stranded_unordered": {`UPDATE targets SET ready_ms = NULL WHERE key = 'y'`},
	"ready_is_claimable":         {`UPDATE targets SET ready_ms = 1 WHERE key = 'dave'`},
	"stall_names_delivery":       {`UPDATE targets SET stalled = 1 WHERE key = 'eve'`},
	"line_order":                 {`UPDATE deliveries SET line = 0` + ofBob + ` AND state = 'pending'`},
	"unknown_outcome_has_recovery": {
		`DELETE FROM recoveries`,
	},
	"open_recovery_is_blocked": {`INSERT INTO recoveries (execution, delivery, opened_ms) SELECT execution, id, 1 FROM deliveries` + ofDave},
	"sequences_ahead":          {`UPDATE sequences SET event = 1`},
	"counters_agree":           {`UPDATE counters SET value = value + 1 WHERE name = 'state.pending'`},
	"loss_is_accepted":         {`INSERT INTO losses (found_ms, kind, expected_no, expected_chain, found_no, found_chain, detail, lost, hold) VALUES (1, 'behind', 2, 1, 1, 1, 'gone', 1, 1)`},
	"open_event_has_body":      {`UPDATE events SET data = NULL WHERE event_id = 'c'`},
}

// rulesBroken opens the file, and returns the names of the rules that Check
// reports, each once.
func rulesBroken(t *testing.T, path string, full bool) []string {
	t.Helper()
	s, err := sqlite.Open(path, sqlite.Options{Clock: edge.ManualClock(1_700_000_000_000)})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	vs, err := s.Check(t.Context(), full)
	require.NoError(t, err)
	var names []string
	for _, v := range vs {
		require.NotEmpty(t, v.Detail)
		names = append(names, v.Rule)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func corrupt(t *testing.T, path string, statements ...string) {
	t.Helper()
	db := raw(t, path)
	for _, text := range statements {
		r, err := db.Exec(text)
		require.NoError(t, err, text)
		n, err := r.RowsAffected()
		require.NoError(t, err)
		require.Positive(t, n, text)
	}
	require.NoError(t, db.Close())
}

// TestCheckFindsEachFault breaks every rule by its own: Check reports exactly it.
func TestCheckFindsEachFault(t *testing.T) {
	t.Parallel()
	rules := sqlite.RuleNamesForTest()
	require.Len(t, corruptions, len(rules), "a corruption for each rule, a rule for each corruption")
	for _, rule := range rules {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, corruptions, rule)
			path := specimen(t)
			corrupt(t, path, corruptions[rule]...)
			require.Equal(t, []string{rule}, rulesBroken(t, path, false))
		})
	}
}

// TestP7_FullCheckFindsAFlippedBit flips one bit of one body, which SQLite's own
// check cannot see; so do changes of what is digested with it.
func TestP7_FullCheckFindsAFlippedBit(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`UPDATE events SET data = CAST('eata of a' AS BLOB) WHERE event_id = 'a'`, // 'd' is 0x64, 'e' is 0x65
		`UPDATE events SET data = zeroblob(0) WHERE event_id = 'a'`,
		`UPDATE events SET type = 'test.madf' WHERE event_id = 'a'`,
		`UPDATE events SET subject = NULL WHERE event_id = 'a'`,
		`UPDATE events SET content_type = 'text/plain' WHERE event_id = 'a'`,
		`UPDATE events SET sha256 = zeroblob(32) WHERE event_id = 'a'`,
	} {
		path := specimen(t)
		corrupt(t, path, text)
		require.Empty(t, rulesBroken(t, path, false), "the short check does not read bodies")
		require.Equal(t, []string{"body_sha256"}, rulesBroken(t, path, true), text)
	}
}

// TestP7_EveryFlippedBitOfABodyIsFound sweeps over bits of bodies in the file
// itself, short ones within their page and long ones in pages of their own.
// FENCEPOST_MUTATIONS makes it longer.
func TestP7_EveryFlippedBitOfABodyIsFound(t *testing.T) {
	t.Parallel()
	flips, err := strconv.Atoi(getenv("FENCEPOST_MUTATIONS", "100"))
	require.NoError(t, err)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	path := dbPath(t)
	s, err := sqlite.Open(path, sqlite.Options{})
	require.NoError(t, err)
	var bodies [][]byte
	for n := range 12 {
		body := make([]byte, 600+n*1500)
		for i := range body {
			body[i] = byte(rng.Uint32())
		}
		bodies = append(bodies, body[:200]) // this much is on the first page of any
		sub := submission(fmt.Sprint(n), "x")
		sub.Event.Data = body
		_, err := s.Accept(t.Context(), []edge.Submission{sub})
		require.NoError(t, err)
		for at := 200; at+512 < len(body); at += 4096 {
			bodies = append(bodies, body[at:at+256])
		}
	}
	require.NoError(t, s.Close())
	db := raw(t, path)
	exe(t, db, `VACUUM`) // no page holds a body that is no longer there
	require.NoError(t, db.Close())
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	hit, sqlites := 0, 0
	for hit < flips {
		piece := bodies[rng.IntN(len(bodies))]
		at := bytes.Index(whole, piece[:64])
		if at < 0 || bytes.Count(whole, piece[:64]) > 1 {
			continue // cut by the end of a page, or there is a dead copy in the gap of one
		}
		damaged := bytes.Clone(whole)
		damaged[at+rng.IntN(64)] ^= 1 << rng.IntN(8)
		require.NoError(t, os.WriteFile(path, damaged, 0o600))
		require.Equal(t, []string{"body_sha256"}, rulesBroken(t, path, true))
		var ok string
		db := raw(t, path)
		require.NoError(t, db.QueryRow(`PRAGMA integrity_check`).Scan(&ok))
		require.NoError(t, db.Close())
		if ok != "ok" {
			sqlites++
		}
		hit++
	}
	t.Logf("%d of %d flipped bits found; integrity_check alone found %d", hit, flips, sqlites)
	require.Less(t, sqlites, flips, "SQLite's own check does not do")
}

// TestFullCheckFindsAnIdentityThatChanged: source and id have a hash that an
// index is made of.
func TestFullCheckFindsAnIdentityThatChanged(t *testing.T) {
	t.Parallel()
	path := specimen(t)
	corrupt(t, path, `UPDATE events SET event_id = 'q' WHERE event_id = 'a'`)
	require.Empty(t, rulesBroken(t, path, false))
	require.Equal(t, []string{"event_identity"}, rulesBroken(t, path, true))
}

// TestCheckPassesOnSQLitesOwn: damage below the rows is reported under its own name.
func TestCheckPassesOnSQLitesOwn(t *testing.T) {
	t.Parallel()
	for _, full := range []bool{false, true} {
		path := specimen(t)
		corrupt(t, path, `UPDATE handlers SET slots = 0 WHERE name = 'hook'`) // past its CHECK
		require.Equal(t, []string{"sqlite"}, rulesBroken(t, path, full))
	}
}

// TestCheckIsBounded: a file in which everything is wrong gives a report of
// bounded length.
func TestCheckIsBounded(t *testing.T) {
	t.Parallel()
	path := specimen(t)
	corrupt(t, path, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
	    INSERT INTO executions (id, attempt, owner, token, claimed_ms) SELECT 100000 + i, 1, 1, 1, 1 FROM n`,
		`UPDATE sequences SET execution = 200000`)
	s, err := sqlite.Open(path, sqlite.Options{})
	require.NoError(t, err)
	vs, err := s.Check(t.Context(), false)
	require.NoError(t, err)
	require.Len(t, vs, 100)
	require.NoError(t, s.Close())
	_, err = s.Check(t.Context(), false)
	require.ErrorIs(t, err, edge.ErrClosed)
}
