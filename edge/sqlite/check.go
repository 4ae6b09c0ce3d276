package sqlite

import (
	"bytes"
	"context"
	"fmt"

	"fencepost/edge"

	"github.com/jmoiron/sqlx"
)

// rule is one invariant: a query that yields a line of text per violation.
type rule struct {
	name  string
	query string
}

// maxViolations bounds what one rule reports.
const maxViolations = 100

// rules are the invariants that hold at every commit. They are what `fencepost
// check` proves, and what every test on a database ends with.
var rules = [...]rule{
	{"succeeded_has_consumption", `
		SELECT 'delivery ' || d.id FROM deliveries d WHERE d.state = 'succeeded'
		AND NOT EXISTS (SELECT 1 FROM consumptions c WHERE c.event = d.event AND c.target = d.target)`},
	{"leases_within_slots", `
		SELECT 'target ' || t.id || ': ' || count(*) || ' leases' FROM leases l JOIN targets t ON t.id = l.target
		-- Slots may have been taken away from leases out of line; those in line never share.
		GROUP BY t.id HAVING count(*) > t.slots
		AND EXISTS (SELECT 1 FROM leases k JOIN deliveries d ON d.id = k.delivery WHERE k.target = t.id AND d.ordered = 1)`},
	{"one_lease_per_line", `
		SELECT 'target ' || l.target FROM leases l JOIN deliveries d ON d.id = l.delivery
		WHERE d.ordered = 1 GROUP BY l.target HAVING count(*) > 1`},
	{"active_has_lease", `
		SELECT 'delivery ' || d.id || ' is ' || d.state FROM deliveries d WHERE (d.state = 'leased' OR d.state = 'running')
		AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.delivery = d.id AND l.execution = d.execution AND l.target = d.target)`},
	{"lease_has_active", `
		SELECT 'lease of execution ' || l.execution FROM leases l WHERE l.delivery IS NOT NULL
		AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.id = l.delivery AND d.execution = l.execution AND (d.state = 'leased' OR d.state = 'running'))`},
	{"lease_has_open_execution", `
		SELECT 'lease of execution ' || l.execution FROM leases l
		WHERE NOT EXISTS (SELECT 1 FROM executions x WHERE x.id = l.execution AND x.token = l.token AND x.owner = l.owner AND x.ended_ms IS NULL)`},
	{"open_execution_has_lease", `
		SELECT 'execution ' || x.id FROM executions x WHERE x.ended_ms IS NULL
		AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.execution = x.id)`},
	{"running_has_started", `
		SELECT 'delivery ' || d.id FROM deliveries d JOIN executions x ON x.id = d.execution
		WHERE d.state = 'running' AND x.started_ms IS NULL OR d.state = 'leased' AND x.started_ms IS NOT NULL`},
	{"target_busy", `
		SELECT 'target ' || t.id || ': busy ' || t.busy || ', borrowed ' || t.borrowed FROM targets t
		LEFT JOIN (SELECT target, count(*) AS n, sum(delivery IS NULL) AS b FROM leases GROUP BY target) l ON l.target = t.id
		WHERE t.busy <> coalesce(l.n, 0) OR t.borrowed <> coalesce(l.b, 0)`},
	{"target_open", `
		SELECT 'target ' || t.id || ': open ' || t.open || ', ordered ' || t.open_ordered FROM targets t
		LEFT JOIN (SELECT target, count(*) AS n, sum(ordered) AS o FROM deliveries WHERE finished_ms IS NULL GROUP BY target) d ON d.target = t.id
		WHERE t.open <> coalesce(d.n, 0) OR t.open_ordered <> coalesce(d.o, 0)`},
	{"target_kept", `
		SELECT 'target ' || t.id || ': kept ' || t.kept FROM targets t
		LEFT JOIN (SELECT target, count(*) AS n FROM deliveries GROUP BY target) d ON d.target = t.id
		LEFT JOIN (SELECT target, count(*) AS n FROM consumptions GROUP BY target) c ON c.target = t.id
		WHERE t.kept <> coalesce(d.n, 0) + coalesce(c.n, 0)`},
	{"delivery_has_target", `
		SELECT 'delivery ' || d.id FROM deliveries d WHERE NOT EXISTS (SELECT 1 FROM targets t WHERE t.id = d.target)`},
	{"nothing_stranded_strict", `
		SELECT 'target ' || t.id || ': ready ' || coalesce(t.ready_ms, '-') || ', busy ' || t.busy || ', stall ' || coalesce(t.stall, '-')
		FROM targets t WHERE t.slots = 1 AND t.open = t.open_ordered AND t.open > 0 AND t.borrowed = 0
		AND (t.ready_ms IS NOT NULL) + (t.busy > 0) + (t.stall IS NOT NULL) <> 1`},
	{"nothing_stranded_unordered", `
		SELECT 'target ' || t.id || ': busy ' || t.busy FROM targets t
		WHERE t.slots > 1 AND t.open_ordered = 0 AND t.stall IS NULL AND t.ready_ms IS NULL AND t.busy < t.slots
		AND EXISTS (SELECT 1 FROM deliveries d WHERE d.target = t.id AND d.state = 'pending' AND d.ordered = 0)`},
	{"ready_is_claimable", `
		SELECT 'target ' || t.id FROM targets t WHERE t.ready_ms IS NOT NULL
		-- The list of states is that of the index, which would not be used without it.
		AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.target = t.id AND d.state = 'pending'
		                AND (d.state = 'held' OR d.state = 'pending' OR d.state = 'blocked'))`},
	{"stall_names_delivery", `
		SELECT 'target ' || t.id || ' ' || t.stall FROM targets t WHERE t.stall IS NOT NULL
		AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.id = t.stalled AND d.target = t.id
		                AND d.state = CASE t.stall WHEN 'halted' THEN 'failed' ELSE t.stall END)`},
	{"line_order", `
		SELECT 'delivery ' || a.id || ' before ' || b.id FROM deliveries a JOIN deliveries b
		ON b.target = a.target AND b.line < a.line
		WHERE (a.state = 'leased' OR a.state = 'running') AND a.ordered = 1 AND b.ordered = 1 AND (b.state = 'held' OR b.state = 'pending' OR b.state = 'blocked')`},
	{"unknown_outcome_has_recovery", `
		SELECT 'delivery ' || d.id FROM deliveries d WHERE d.state = 'blocked' AND d.block = 'outcome'
		AND NOT EXISTS (SELECT 1 FROM recoveries r WHERE r.execution = d.execution AND r.closed_ms IS NULL)`},
	{"open_recovery_is_blocked", `
		SELECT 'execution ' || r.execution FROM recoveries r JOIN deliveries d ON d.id = r.delivery
		WHERE r.closed_ms IS NULL AND NOT (d.state = 'blocked' AND d.block = 'outcome')`},
	{"sequences_ahead", `
		SELECT 'sequences' FROM sequences s WHERE s.event < (SELECT coalesce(max(id), 0) FROM events)
		OR s.delivery < (SELECT coalesce(max(id), 0) FROM deliveries)
		OR s.execution < (SELECT coalesce(max(id), 0) FROM executions)
		OR s.target < (SELECT coalesce(max(id), 0) FROM targets)`},
	{"counters_agree", `
		SELECT n.state || ': counted ' || coalesce(c.value, 0) || ', there are ' || n.n FROM
		(SELECT s.column1 AS state, (SELECT count(*) FROM deliveries WHERE state = s.column1) AS n
		 FROM (VALUES ('held'), ('pending'), ('leased'), ('running'), ('blocked'), ('succeeded'), ('failed'), ('cancelled'), ('expired')) s) n
		LEFT JOIN counters c ON c.name = 'state.' || n.state WHERE coalesce(c.value, 0) <> n.n`},
	{"bytes_agree", `
		SELECT n.class || ': counted ' || coalesce(c.value, 0) || ', there are ' || n.n FROM
		(SELECT 'bytes.open' AS class, coalesce(sum(bytes), 0) AS n FROM deliveries WHERE finished_ms IS NULL
		 UNION ALL SELECT 'bytes.succeeded', coalesce(sum(bytes), 0) FROM deliveries WHERE state = 'succeeded'
		 UNION ALL SELECT 'bytes.failed', coalesce(sum(bytes), 0) FROM deliveries WHERE state = 'failed' OR state = 'cancelled' OR state = 'expired'
		 UNION ALL SELECT 'bytes.unrouted', coalesce(sum(length(data)), 0) FROM events e
		 WHERE e.data IS NOT NULL AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.event = e.id)) n
		LEFT JOIN counters c ON c.name = n.class WHERE coalesce(c.value, 0) <> n.n`},
	{acceptedRule, `
		SELECT 'loss ' || l.id || ': ' || l.detail FROM losses l INDEXED BY losses_open WHERE l.hold = 1 AND l.lost = 1 AND l.accepted_ms IS NULL`},
	{"open_event_has_body", `
		SELECT 'event ' || e.id FROM events e WHERE e.data IS NULL
		AND EXISTS (SELECT 1 FROM deliveries d WHERE d.event = e.id AND d.finished_ms IS NULL)`},
}

// Check reports broken invariants; see [edge.Reader]. It reads the whole file
// once, so on a large one it takes its time; writers are not held up.
func (s *Store) Check(ctx context.Context, full bool) ([]edge.Violation, error) {
	var vs []edge.Violation
	if s.closed.Load() {
		return nil, edge.ErrClosed
	}
	err := s.readWhole(ctx, func(ctx context.Context, q queryer) error {
		found, err := examine(ctx, q, true, full)
		vs = append(s.unattended(), found...)
		return err
	})
	return vs, err
}

// examine checks a whole file: invariants (of the present schema), what SQLite can
// tell of its own structure, and when full also each body.
func examine(ctx context.Context, q queryer, invariants, full bool) ([]edge.Violation, error) {
	var vs []edge.Violation
	for _, r := range rules {
		if !invariants {
			break
		}
		var lines []string
		if err := q.SelectContext(ctx, &lines, r.query+fmt.Sprintf(" LIMIT %d", maxViolations)); err != nil {
			return vs, fmt.Errorf("%s: %w", r.name, err)
		}
		for _, l := range lines {
			vs = append(vs, edge.Violation{Rule: r.name, Detail: l})
		}
	}
	pragma := "PRAGMA quick_check"
	if full {
		pragma = "PRAGMA integrity_check"
	}
	var lines []string
	if err := q.SelectContext(ctx, &lines, pragma); err != nil {
		return vs, err
	}
	for _, l := range lines {
		if l != "ok" {
			vs = append(vs, edge.Violation{Rule: "sqlite", Detail: l})
		}
	}
	if !full {
		return vs, nil
	}
	bad, err := checkBodies(ctx, q)
	return append(vs, bad...), err
}

// acceptedRule is not of the data: it holds when a person has decided.
const acceptedRule = "loss_is_accepted"

// readWhole runs fn on one snapshot and a connection of its own: it may take long,
// which would leave the pool a reader short, and on a connection that was opened
// read-only SQLite's own check leaves the CHECK constraints out.
func (s *Store) readWhole(ctx context.Context, fn func(ctx context.Context, q queryer) error) error {
	ctx, leave, err := s.readers.enter(ctx)
	if err != nil {
		return readError(err)
	}
	defer leave()
	return cutError(ctx, s.readAlone(ctx, fn))
}

func (s *Store) readAlone(ctx context.Context, fn func(ctx context.Context, q queryer) error) error {
	db, err := sqlx.Open(driverName, dsn(s.path, s.o, true, "mode", "rw"))
	if err != nil {
		return readError(err)
	}
	defer func() { _ = db.Close() }()
	tx, err := db.BeginTxx(ctx, nil)
	if err != nil {
		return readError(err)
	}
	defer func() { _ = tx.Rollback() }()
	return readError(fn(ctx, tx))
}

// checkBodies compares each stored body with its SHA-256 and each identity with
// its hash, which finds the flipped bits that SQLite's own check cannot see.
func checkBodies(ctx context.Context, q queryer) ([]edge.Violation, error) {
	// The columns are those of the first schema: copies of older files are
	// checked too.
	const query = `SELECT id, hash, source, event_id, type, coalesce(subject, ''), coalesce(content_type, ''), data, data IS NULL, sha256
	               FROM events ORDER BY id`
	rows, err := q.QueryxContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var vs []edge.Violation
	for rows.Next() && len(vs) < maxViolations {
		var e edge.Event
		var hash int64
		var pruned bool
		var digest []byte
		if err := rows.Scan(&e.N, &hash, &e.Source, &e.ID, &e.Type, &e.Subject, &e.ContentType, &e.Data, &pruned, &digest); err != nil {
			return vs, err
		}
		if keyHash(e.Source, e.ID) != hash {
			vs = append(vs, edge.Violation{Rule: "event_identity", Detail: fmt.Sprintf("event %d", e.N)})
		}
		if sum := e.Digest(); !pruned && !bytes.Equal(sum[:], digest) {
			vs = append(vs, edge.Violation{Rule: "body_sha256", Detail: fmt.Sprintf("event %d", e.N)})
		}
	}
	return vs, rows.Err()
}

// withExtra scans one more column behind those of a scan function.
type withExtra struct {
	rowScanner
	extra any
}

func (w withExtra) Scan(dest ...any) error { return w.rowScanner.Scan(append(dest, w.extra)...) }

// unattended is what database and side file disagree about, when the store was
// opened only to look.
func (s *Store) unattended() []edge.Violation {
	if s.o.OnLoss != LossLook || s.found == nil || !s.found.Hold {
		return nil
	}
	return []edge.Violation{{Rule: "side_file", Detail: s.found.Detail}}
}
