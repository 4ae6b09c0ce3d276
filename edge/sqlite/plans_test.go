package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/sqlite"
)

// Sizes of the skewed database. The long form takes some minutes: make plans-long.
const (
	plansRows     = 20_000
	plansRowsLong = 1_000_000
)

// TestPlans compares the query plans of every statement that the store runs with
// the golden file. The texts come from the store itself; the database is skewed:
// half of its deliveries wait behind one blocked head.
func TestPlans(t *testing.T) {
	t.Parallel()
	rows := plansRows
	if os.Getenv("FENCEPOST_LONG") != "" {
		rows = plansRowsLong
	}
	texts := statements(t)
	covered(t, texts)

	db := raw(t, skewed(t, rows))
	plans := planOf(t, db, texts)
	noScans(t, plans)
	rulesAreLinear(t, db)
	exe(t, db, `ANALYZE`)
	rulesAreLinear(t, db)
	analyzed := planOf(t, db, texts)
	noScans(t, analyzed)

	const golden = "testdata/plans.golden"
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(golden, []byte(render(texts, plans)), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err, "run: go test ./edge/sqlite -run TestPlans -update")
	require.Equal(t, string(want), render(texts, plans), "a plan has changed; look at it, then: go test ./edge/sqlite -run TestPlans -update")
	require.Equal(t, string(want), render(texts, analyzed), "ANALYZE must not change a plan")
}

// statements are the texts of all statements that the writer prepares and the
// readers run, taken by doing everything once.
func statements(t *testing.T) []string {
	t.Helper()
	var mu sync.Mutex
	seen := map[string]bool{}
	note := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		seen[text] = true
	}
	e := &everything{t: t, path: dbPath(t), clock: edge.ManualClock(1_700_000_000_000), note: note}
	e.do()
	var texts []string
	for text := range seen {
		if !strings.Contains(text, "SET state = 'held'") && !slices.Contains(manyOpenings, text) { // HoldForTest's and the test's own
			texts = append(texts, text)
		}
	}
	slices.Sort(texts)
	return texts
}

// everything does every operation of the store once, in all its forms.
type everything struct {
	t     *testing.T
	path  string
	clock *edge.Clock
	note  func(string)
	s     *sqlite.Store
	n     int
}

func (e *everything) do() {
	e.open()
	e.intake()
	e.ends()
	e.operators()
	e.borrowed()
	e.losses()
	e.unordered()
	e.reads()
	e.upkeep()
	e.recovery()
	e.bounds()
}

// bounds does in a store of its own what a bound makes happen.
func (e *everything) bounds() {
	t, ctx := e.t, e.t.Context()
	s, err := sqlite.Open(dbPath(t), sqlite.Options{Clock: e.clock, Limits: sqlite.Limits{MaxBacklogBytes: 4096, DropOldest: []string{"hook"}}})
	require.NoError(t, err)
	e.s = s
	e.register()
	e.clock.Doubt()
	e.settle(e.claim(e.accept("hook")), outcome(edge.OutcomeSucceeded)) // at a doubted reading
	for range 6 {
		e.accept("hook")
	}
	unrouted := submission("unrouted", "bob")
	unrouted.Event.Data = make([]byte, 16<<20) // its space is given back
	_, err = s.Accept(ctx, []edge.Submission{unrouted})
	require.NoError(t, err)
	e.clock.Confirm()
	require.NoError(t, s.RunForTest(ctx, func(int) []string { return manyOpenings }))
	for range 4 {
		_, err = s.Prune(ctx, edge.PrunePolicy{SucceededBytes: 1, FailedBytes: 1, DedupeBeforeMS: 1, Limit: 500})
		require.NoError(t, err)
	}
	e.leave()
}

// open opens the store, sharing so that it looks for others' commits.
func (e *everything) open(more ...edge.Registration) {
	t := e.t
	s, err := sqlite.Open(e.path, sqlite.Options{Clock: e.clock, Share: true, Durability: sqlite.DurabilityNormal})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.RecordReadsForTest(e.note))
	e.s = s
	e.register(more...)
}

func (e *everything) register(more ...edge.Registration) {
	rs := append([]edge.Registration{
		{Name: "hook", Revision: "1", Effect: edge.Idempotent, Slots: 1, Limit: 64},
		{Name: "see", Revision: "1", Effect: edge.Once, Slots: 1, Limit: 64, Inspect: true},
		{Name: "pay", Revision: "1", Effect: edge.Once, Slots: 1, Limit: 64, Halt: true},
		{Name: "pool", Revision: "1", Effect: edge.Idempotent, Slots: 3, Limit: 64, Rate: edge.Rate{Interval: time.Microsecond * 10, Burst: 1000}},
	}, more...)
	require.NoError(e.t, e.s.Register(e.t.Context(), rs, 512, 60_000))
}

// manyOpenings are more owners and revisions than are kept.
var manyOpenings = []string{
	`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1200)
	 INSERT INTO owners (id, name, pid, config, opened_ms) SELECT 1000 + i, 'opening-' || i, 1, '', 1 FROM n`,
	`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1200)
	 INSERT INTO revisions (id, handler, revision, effect) SELECT 1000 + i, 1, 'revision-' || i, 'once' FROM n`,
}

// leave notes the writer's statements, and closes the store as a process that has
// come to its end does.
func (e *everything) leave() {
	texts, err := e.s.StatementsForTest(e.t.Context())
	require.NoError(e.t, err)
	for _, text := range texts {
		e.note(text)
	}
	require.NoError(e.t, e.s.Close())
}

// accept takes one event for a fresh target of handler and returns its delivery.
func (e *everything) accept(handler string) edge.DeliveryID {
	e.t.Helper()
	e.n++
	return e.acceptOn(handler, fmt.Sprint("key", e.n))
}

func (e *everything) acceptOn(handler, key string) edge.DeliveryID {
	e.t.Helper()
	e.n++
	as, err := e.s.Accept(e.t.Context(), []edge.Submission{submission(fmt.Sprint("event", e.n), key, handler)})
	require.NoError(e.t, err)
	require.NoError(e.t, as[0].Err)
	return as[0].Deliveries[0].ID
}

// claim claims until this delivery comes up; the others are ended.
func (e *everything) claim(id edge.DeliveryID) edge.Claimed {
	e.t.Helper()
	for {
		c := claimOne(e.t, e.s)
		if c.Delivery == id {
			return c
		}
		e.settle(c, func(st *edge.Settlement) {
			if !c.Started {
				st.Outcome = edge.OutcomeInterrupted
			}
		})
	}
}

func (e *everything) settle(c edge.Claimed, change func(*edge.Settlement)) {
	e.t.Helper()
	st := settlement(c, edge.OutcomeSucceeded)
	change(&st)
	settle := e.s.Settle
	if !c.Started {
		settle = e.s.Release
	}
	_, err := settle(e.t.Context(), st)
	require.NoError(e.t, err)
}

func outcome(o edge.Outcome) func(*edge.Settlement) {
	return func(st *edge.Settlement) { st.Outcome = o }
}

func (e *everything) intake() {
	t, ctx := e.t, e.t.Context()
	known := submission("known", "bob", "hook", "see")
	for range 2 {
		_, err := e.s.Accept(ctx, []edge.Submission{known, submission("unrouted", "bob")})
		require.NoError(t, err)
	}
	known.Event.Type = "other"
	as, err := e.s.Accept(ctx, []edge.Submission{known})
	require.NoError(t, err)
	require.ErrorIs(t, as[0].Err, edge.ErrConflict)

	for range 2 {
		_, err = e.s.AcceptOnce(ctx, edge.RequestKey{}, []edge.Submission{known, submission("once", "bob", "hook")})
		require.NoError(t, err)
	}
	_, err = e.s.AcceptOnce(ctx, edge.RequestKey{Fingerprint: [32]byte{1}}, nil)
	require.ErrorIs(t, err, edge.ErrKeyReused)

	fault := submission("fault", "bob", "hook")
	fault.Routes[0].Fault = "no such field"
	fault2 := submission("fault2", "bob", "hook")
	fault2.Routes = append(fault2.Routes, edge.Routed{Route: "two", Handler: "hook", Fault: "no such field"})
	as, err = e.s.Accept(ctx, []edge.Submission{fault, fault2})
	require.NoError(t, err)
	_, err = e.s.Reroute(ctx, as[0].Deliveries[0].ID, edge.Routed{Handler: "hook", Key: "bob"})
	require.NoError(t, err)
	_, err = e.s.Reroute(ctx, as[1].Deliveries[1].ID, edge.Routed{Handler: "hook", Key: "bob"})
	require.NoError(t, err)
	e.s.SetLimit("hook", 64, 512)
	cs, err := e.s.Claim(ctx, 64)
	require.NoError(t, err)
	for _, c := range cs {
		e.settle(c, func(st *edge.Settlement) {
			if !c.Started {
				st.Outcome = edge.OutcomeBlocked
			}
		})
	}
	e.register() // what is blocked for its configuration is pending again
	cs, err = e.s.Claim(ctx, 64)
	require.NoError(t, err)
	for _, c := range cs {
		e.settle(c, func(st *edge.Settlement) {
			if !c.Started {
				st.Outcome, st.MaxAttempts = edge.OutcomeRetry, 1
			}
		})
	}
	for { // the rest of the line of bob
		cs, err = e.s.Claim(ctx, 64)
		require.NoError(t, err)
		if len(cs) == 0 {
			return
		}
		for _, c := range cs {
			e.settle(c, outcome(edge.OutcomeSucceeded))
		}
	}
}

func (e *everything) ends() {
	t, ctx := e.t, e.t.Context()
	for _, o := range []edge.Outcome{edge.OutcomeFailed, edge.OutcomeIndeterminate, edge.OutcomeBlocked, edge.OutcomeInterrupted} {
		e.settle(e.claim(e.accept("pay")), outcome(o))
	}
	e.settle(e.claim(e.accept("hook")), func(st *edge.Settlement) {
		st.FollowUps = []edge.Submission{submission("follow-up", "bob", "hook")}
	})
	e.settle(e.claim(e.accept("hook")), func(st *edge.Settlement) { st.PauseMS, st.GateCode = 1000, "busy" })
	e.clock.Advance(2 * time.Second)

	// Once started, twice settled: the second time it is known.
	c := e.claim(e.accept("see"))
	_, err := e.s.Renew(ctx, []edge.Token{c.Token})
	require.NoError(t, err)
	_, err = e.s.Start(ctx, c.Fence, c.Token)
	require.NoError(t, err)
	for range 2 {
		_, err = e.s.Settle(ctx, settlement(c, edge.OutcomeSucceeded))
		require.NoError(t, err)
	}
	// Its effect is done already.
	again, err := e.s.Redrive(ctx, edge.Redrive{Delivery: c.Delivery, Again: true})
	require.NoError(t, err)
	e.settle(e.claim(again.ID), outcome(edge.OutcomeInterrupted))
	_, err = e.s.Cancel(ctx, again.ID)
	require.NoError(t, err)
	// Many executions of one delivery: those in between are not kept.
	many := e.accept("hook")
	for range 26 {
		e.settle(e.claim(many), outcome(edge.OutcomeDeferred))
		e.clock.Advance(2 * time.Second)
	}
	e.settle(e.claim(many), outcome(edge.OutcomeSucceeded))
	// An effect that was consumed between claim and start.
	id := e.accept("see")
	c = e.claim(id)
	require.NoError(t, e.s.ConsumeForTest(ctx, id))
	state, err := e.s.Start(ctx, c.Fence, c.Token)
	require.NoError(t, err)
	require.Equal(t, edge.Succeeded, state)
}

func (e *everything) operators() {
	t, ctx := e.t, e.t.Context()
	resolve := func(as edge.ResolveAs) edge.Delivery {
		t.Helper()
		id := e.accept("pay")
		e.settle(e.claim(id), outcome(edge.OutcomeIndeterminate))
		d, err := e.s.Delivery(ctx, id)
		require.NoError(t, err)
		d, err = e.s.Resolve(ctx, edge.Resolution{Delivery: id, Version: d.Version, As: as, Reason: "seen", By: "me"})
		require.NoError(t, err)
		return d
	}
	resolve(edge.ResolveSucceeded)
	failed := resolve(edge.ResolveFailed)
	next := resolve(edge.ResolveRetry)
	_, err := e.s.Redrive(ctx, edge.Redrive{Delivery: failed.ID, NewKey: true})
	require.NoError(t, err)
	_, err = e.s.Cancel(ctx, next.ID)
	require.NoError(t, err)

	c := e.claim(e.accept("hook")) // started by its claim
	_, err = e.s.Cancel(ctx, c.Delivery)
	require.NoError(t, err)
	e.settle(c, outcome(edge.OutcomeRetry))

	id := e.accept("see")
	e.claim(id)
	_, err = e.s.Cancel(ctx, id)
	require.NoError(t, err)

	held := e.accept("hook")
	require.NoError(t, e.s.HoldForTest(ctx, held))
	h, err := e.s.Delivery(ctx, held)
	require.NoError(t, err)
	_, err = e.s.SkipTarget(ctx, h.Target, h.Version, "", "me")
	require.NoError(t, err)

	halting := e.accept("pay")
	e.settle(e.claim(halting), outcome(edge.OutcomeFailed))
	d, err := e.s.Delivery(ctx, halting)
	require.NoError(t, err)
	_, err = e.s.ResumeTarget(ctx, d.Target)
	require.NoError(t, err)

	require.NoError(e.t, e.s.SetEpisode(ctx, "hook", edge.Episode{BeganMS: 1, SinceMS: 1, Failures: 5, Code: "x"}))
	require.NoError(e.t, e.s.SetEpisode(ctx, "hook", edge.Episode{}))
	_, err = e.s.SetGate(ctx, "hook", edge.GateOff, "", 0)
	require.NoError(t, err)
	_, err = e.s.SetGate(ctx, "hook", edge.GateOn, "", 0)
	require.NoError(t, err)
}

func (e *everything) borrowed() {
	t, ctx := e.t, e.t.Context()
	l, err := e.s.Acquire(ctx, edge.Target{Handler: "hook", Key: "borrowed"})
	require.NoError(t, err)
	require.NoError(t, e.s.Relinquish(ctx, l.Execution, l.Token, edge.OutcomeSucceeded, "ok"))
}

func (e *everything) losses() {
	t, ctx := e.t, e.t.Context()
	d := edge.Decided{By: "me", Reason: "seen"}
	_, err := e.s.AcceptLoss(ctx, d)
	require.ErrorIs(t, err, edge.ErrConflict)
	_, err = e.s.Resume(ctx, d)
	require.ErrorIs(t, err, edge.ErrConflict)
	ls, err := e.s.Losses(ctx, 10)
	require.NoError(t, err)
	require.Empty(t, ls)
}

func (e *everything) unordered() {
	var ids []edge.DeliveryID
	for range 3 {
		ids = append(ids, e.acceptOn("pool", "p"))
	}
	cs, err := e.s.Claim(e.t.Context(), 64)
	require.NoError(e.t, err)
	require.GreaterOrEqual(e.t, len(cs), len(ids))
	for _, c := range cs {
		e.settle(c, func(st *edge.Settlement) {
			if !c.Started {
				st.Outcome = edge.OutcomeInterrupted
			}
		})
	}
	// Slots taken away and given back, with a blocked row from before.
	e.settle(e.claim(e.acceptOn("pool", "q")), outcome(edge.OutcomeBlocked))
	last := e.acceptOn("pool", "p")
	require.NoError(e.t, e.s.Register(e.t.Context(), []edge.Registration{{Name: "pool", Effect: edge.Idempotent, Slots: 1, Limit: 64}}, 512, 60_000))
	e.register()
	e.settle(e.claim(last), outcome(edge.OutcomeSucceeded))
}

func (e *everything) reads() {
	t, ctx := e.t, e.t.Context()
	waiting, behind := e.acceptOn("hook", "line"), e.acceptOn("hook", "line")
	c := e.claim(waiting)
	for _, id := range []edge.DeliveryID{waiting, behind} {
		_, err := e.s.Facts(ctx, id)
		require.NoError(t, err)
	}
	e.settle(c, func(st *edge.Settlement) { st.Outcome, st.DelayMS = edge.OutcomeRetry, 60_000 })
	_, err := e.s.Facts(ctx, behind)
	require.NoError(t, err)
	_, err = e.s.Executions(ctx, waiting)
	require.NoError(t, err)
	_, err = e.s.Event(ctx, 1)
	require.NoError(t, err)
	for _, f := range []edge.DeliveryFilter{
		{}, {Before: 10}, {State: edge.Blocked}, {State: edge.Blocked, Before: 10}, {State: edge.Pending}, {Event: 1},
		{Handler: "hook"}, {Target: &edge.Target{Handler: "hook", Key: "line"}}, {Code: "test"}, {State: edge.Failed}, {State: edge.Cancelled, Handler: "hook"},
		{State: edge.Expired}, {State: edge.Running}, {State: edge.Leased}, {State: edge.Succeeded}, {State: edge.Held}, {SinceMS: 1}, {UntilMS: 1}, {Newest: true},
		{State: edge.Failed, Newest: true, Handler: "hook", Code: "test"}, {Type: "t"}, {Source: "s"}, {Subject: "s"},
		{State: edge.Pending, Target: &edge.Target{Handler: "hook", Key: "line"}}, {State: edge.Blocked, Target: &edge.Target{Handler: "hook", Key: "line"}},
		{State: edge.Pending, Target: &edge.Target{Handler: "hook", Key: "line"}, Code: "test", SinceMS: 1},
	} {
		_, err := e.s.Deliveries(ctx, f)
		require.NoError(t, err)
	}
	e.s.BoundListsForTest(2, 2, 100)
	_, err = e.s.ListDeliveries(ctx, edge.DeliveryFilter{SinceMS: 1, Code: "none"})
	require.NoError(t, err)
	_, err = e.s.ListEvents(ctx, edge.EventFilter{SinceMS: 1, Type: "none"})
	require.NoError(t, err)
	for _, f := range []edge.EventFilter{
		{}, {Type: "t"}, {Source: "s"}, {Subject: "s"}, {ID: "i"}, {Source: "s", ID: "i"}, {SinceMS: 1}, {UntilMS: 1},
	} {
		_, err := e.s.ListEvents(ctx, f)
		require.NoError(t, err)
	}
	_, err = e.s.Backlog(ctx, 10)
	require.NoError(t, err)
	_, err = e.s.Absent(ctx)
	require.NoError(t, err)
	for _, f := range []edge.TargetFilter{
		{}, {Handler: "hook"}, {OnlyStalled: true}, {OnlyOpen: true}, {Stall: edge.StallBlocked}, {Handler: "hook", OnlyStalled: true},
		{After: edge.Target{Handler: "hook", Key: "a"}}, {Handler: "hook", After: edge.Target{Handler: "hook", Key: "a"}},
	} {
		_, err := e.s.Targets(ctx, f)
		require.NoError(t, err)
	}
	// What is left of a line that is no longer asked for, at work and waiting.
	slots := func(n int) []edge.Registration {
		return []edge.Registration{{Name: "pool", Effect: edge.Idempotent, Slots: n, Limit: 64}}
	}
	require.NoError(t, e.s.Register(ctx, slots(1), 512, 60_000))
	old := e.acceptOn("pool", "old")
	require.NoError(t, e.s.Register(ctx, slots(3), 512, 60_000))
	late := e.acceptOn("pool", "old")
	_, err = e.s.Facts(ctx, late)
	require.NoError(t, err)
	c = e.claim(old)
	_, err = e.s.Facts(ctx, late)
	require.NoError(t, err)
	e.settle(c, outcome(edge.OutcomeSucceeded))
	e.settle(e.claim(late), outcome(edge.OutcomeSucceeded))
	e.register()
	_, err = e.s.Handlers(ctx)
	require.NoError(t, err)
	_, err = e.s.Counters(ctx)
	require.NoError(t, err)
}

func (e *everything) upkeep() {
	t, ctx := e.t, e.t.Context()
	sub := submission("short-lived", "bob", "hook")
	sub.Routes[0].TTLMS = 10
	_, err := e.s.Accept(ctx, []edge.Submission{sub})
	require.NoError(t, err)
	e.clock.Advance(time.Minute)
	swept, err := e.s.Expire(ctx, 10)
	require.NoError(t, err)
	require.Equal(t, 1, swept.Done)
	now := e.clock.NowMS()
	_, err = e.s.ClockStepped(ctx, -3_600_000, 1, 0, 100)
	require.NoError(t, err)
	e.clock.Step(time.Hour)
	_, err = e.s.ClockStepped(ctx, 3_600_000, 0, now-1000_000, 100)
	require.NoError(t, err)
	e.clock.Advance(2 * time.Hour)
	now = e.clock.NowMS()
	_, err = e.s.Prune(ctx, edge.PrunePolicy{SucceededBeforeMS: now, FailedBeforeMS: now, Limit: 500})
	require.NoError(t, err)
	_, err = e.s.Prune(ctx, edge.PrunePolicy{SucceededBeforeMS: now, FailedBeforeMS: now, DedupeBeforeMS: now, Limit: 500})
	require.NoError(t, err)
}

func (e *everything) recovery() {
	t, ctx := e.t, e.t.Context()
	e.accept("hook")
	for {
		cs, err := e.s.Claim(ctx, 64)
		require.NoError(t, err)
		if len(cs) == 0 {
			break
		}
	}
	dead := e.s.Owner()
	_, err := e.s.VoidStale(ctx)
	require.NoError(t, err)
	e.leave()

	e.open()
	require.NoError(t, e.s.Reconfigure(ctx, ""))
	owners, err := e.s.DeadOwners(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{dead}, owners)
	_, err = e.s.VoidOwner(ctx, dead)
	require.NoError(t, err)
	// A late result, and a result too late.
	c := e.claim(e.accept("pay"))
	e.clock.Advance(2 * time.Minute)
	_, err = e.s.Renew(ctx, nil)
	require.NoError(t, err)
	_, err = e.s.Settle(ctx, settlement(c, edge.OutcomeIndeterminate))
	require.ErrorIs(t, err, edge.ErrLeaseLost)
	for range 2 {
		_, err = e.s.Settle(ctx, settlement(c, edge.OutcomeSucceeded))
		require.NoError(t, err)
	}
	vs, err := e.s.Check(context.Background(), true)
	require.NoError(t, err)
	require.Empty(t, vs)
	e.leave()
}

// covered requires that every SQL text in the source of the package is among the
// statements that were taken: none is left unlooked at.
func covered(t *testing.T, texts []string) {
	t.Helper()
	all := strings.Join(texts, "\x00")
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	looked := 0
	for _, file := range files {
		// These run once at opening, or read the whole file on purpose.
		if strings.HasSuffix(file, "_test.go") || slices.Contains([]string{"check.go", "migrate.go", "open.go", "store.go", "loss.go", "attend.go", "state.go", "readonly.go", "upgrade.go", "copying.go", "backup.go", "glance.go"}, file) {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(lit.Value)
			require.NoError(t, err)
			if isSQL.MatchString(text) && !slices.Contains(unprepared, text) {
				looked++
				require.Contains(t, all, text, "%s: this statement is not exercised by TestPlans: %s", file, text)
			}
			return true
		})
	}
	require.Greater(t, looked, 50)
}

// unprepared are the statements of the rare sync past a reader, which are run as
// they are; see TestDurabilityNormalSyncsPastReaders.
var unprepared = []string{
	`PRAGMA synchronous = FULL`,
	`PRAGMA synchronous = NORMAL`,
	`UPDATE sequences SET syncs = syncs + 1 WHERE id = 1`,
}

var isSQL = regexp.MustCompile(`^\s*(SELECT|INSERT|UPDATE|DELETE|PRAGMA|WITH) `)

var (
	numbered   = regexp.MustCompile(`\?(\d+)`)
	whitespace = regexp.MustCompile(`\s+`)
)

// planOf explains each statement, without values, as a prepared one is planned.
func planOf(t *testing.T, db *sql.DB, texts []string) map[string]string {
	t.Helper()
	plans := map[string]string{}
	for _, text := range texts {
		if strings.HasPrefix(text, "PRAGMA") {
			continue
		}
		n := strings.Count(text, "?")
		for _, m := range numbered.FindAllStringSubmatch(text, -1) {
			i, err := strconv.Atoi(m[1])
			require.NoError(t, err)
			n = max(n, i)
		}
		rows, err := db.Query("EXPLAIN QUERY PLAN "+text, make([]any, n)...)
		require.NoError(t, err, text)
		var b strings.Builder
		depth := map[int]int{}
		for rows.Next() {
			var id, parent, unused int
			var detail string
			require.NoError(t, rows.Scan(&id, &parent, &unused, &detail))
			depth[id] = depth[parent] + 1
			b.WriteString(strings.Repeat("    ", depth[id]) + detail + "\n")
		}
		require.NoError(t, rows.Err())
		require.NoError(t, rows.Close())
		plans[text] = b.String()
	}
	return plans
}

func render(texts []string, plans map[string]string) string {
	var b strings.Builder
	for _, text := range texts {
		if plan := plans[text]; plan != "" {
			b.WriteString(strings.TrimSpace(whitespace.ReplaceAllString(text, " ")) + "\n" + plan + "\n")
		}
	}
	return b.String()
}

// Tables that grow with use, and the aliases by which the statements call them.
var growing = regexp.MustCompile(`(?m)^\s*SCAN (deliveries|events|executions|targets|consumptions|d|e|x|t|c)\b.*$`)

// scans are the statements that may look at a whole table.
var scans = []*regexp.Regexp{
	// Something to drop at the bound of the backlog, a few at a time.
	regexp.MustCompile(`^SELECT id, target, state FROM deliveries WHERE id > \? ORDER BY id LIMIT \?$`),
	// What is pruned of the node's own rows is few, and comes by number.
	regexp.MustCompile(`^SELECT id, name FROM owners WHERE id < .* ORDER BY id LIMIT \?$`),
	regexp.MustCompile(`^SELECT r\.id FROM revisions r WHERE r\.id < .* ORDER BY r\.id LIMIT \?$`),
	regexp.MustCompile(`^SELECT h\.name, t\.key, .* ORDER BY h\.name, t\.key LIMIT \?$`),
	// The stalled ones alone, up to a limit.
	regexp.MustCompile(`^SELECT id FROM targets INDEXED BY targets_stalled WHERE stall IS NOT NULL LIMIT \?$`),
	// The blocked ones alone, the oldest, up to a limit.
	regexp.MustCompile(`^SELECT target FROM deliveries INDEXED BY deliveries_blocked WHERE state = 'blocked' ORDER BY id LIMIT \?$`),
	// After a step of the wall clock, and then only.
	regexp.MustCompile(`^SELECT target FROM deliveries INDEXED BY deliveries_line WHERE state = 'pending' AND due_ms > \? LIMIT \?$`),
	regexp.MustCompile(`^UPDATE deliveries SET due_ms = \?1 WHERE id IN \(SELECT id FROM deliveries INDEXED BY deliveries_line WHERE state = 'pending' AND due_ms > \?1 LIMIT \?2\)$`),
	regexp.MustCompile(`^SELECT id FROM targets WHERE served_ms > \? LIMIT \?$`),
	regexp.MustCompile(`^SELECT d\.id, d\.target FROM deliveries d INDEXED BY deliveries_line WHERE \(d\.state = 'held' OR d\.state = 'pending' OR d\.state = 'blocked'\) AND \(d\.accepted_ms >= .* ORDER BY d\.id LIMIT \?3$`),
}

// noScans requires that no statement looks at a whole table that grows.
func noScans(t *testing.T, plans map[string]string) {
	t.Helper()
	for text, plan := range plans {
		line := growing.FindString(plan)
		if line == "" {
			continue
		}
		short := strings.TrimSpace(whitespace.ReplaceAllString(text, " "))
		allowed := slices.ContainsFunc(scans, func(r *regexp.Regexp) bool { return r.MatchString(short) })
		require.True(t, allowed, "%s: %s", line, short)
	}
}

// rulesAreLinear requires of the queries of Check, which read whole tables on
// purpose, that none reads a whole table for each row of another.
func rulesAreLinear(t *testing.T, db *sql.DB) {
	t.Helper()
	scan := regexp.MustCompile(`SCAN (deliveries|events|executions|targets|consumptions|recoveries|[abcdexrt])\b`)
	for name, query := range sqlite.RuleQueriesForTest() {
		if name == "counters_agree" {
			continue // once for each of the nine states
		}
		plan := planOf(t, db, []string{query})[query]
		correlated, before := 0, map[int]bool{} // depth of a subquery run for each row; depths at which a table is read already
		for _, line := range strings.Split(strings.TrimRight(plan, "\n"), "\n") {
			depth := (len(line) - len(strings.TrimLeft(line, " "))) / 4
			if depth <= correlated {
				correlated = 0
			}
			for d := range before {
				if d > depth {
					delete(before, d)
				}
			}
			if scan.MatchString(line) {
				require.Zero(t, correlated, "%s:\n%s", name, plan)
				require.False(t, before[depth], "%s:\n%s", name, plan)
			}
			if strings.Contains(line, "CORRELATED") && correlated == 0 {
				correlated = depth
			}
			if strings.Contains(line, "SCAN ") || strings.Contains(line, "SEARCH ") {
				before[depth] = true
			}
		}
	}
}

// skewed makes a database of n deliveries: half of them in one line behind a
// blocked head, a third finished, the others spread over many targets. All its
// numbers agree, so that Check passes.
func skewed(t *testing.T, n int) string {
	t.Helper()
	path := dbPath(t)
	s, err := sqlite.Open(path, sqlite.Options{Clock: edge.ManualClock(1_700_000_000_000)})
	require.NoError(t, err)
	rs := []edge.Registration{
		{Name: "hook", Effect: edge.Idempotent, Slots: 1, Limit: 64},
		{Name: "pool", Effect: edge.Idempotent, Slots: 4, Limit: 64},
	}
	many := submission("first", "first")
	for i := range 40 { // as many handlers, leases and owners as a busy node has
		rs = append(rs, edge.Registration{Name: fmt.Sprint("h", i), Effect: edge.Once, Slots: 1, Limit: 64})
		many.Routes = append(many.Routes, edge.Routed{Route: "r", Handler: rs[i+2].Name, Key: "first"})
	}
	require.NoError(t, s.Register(t.Context(), rs, 64, 60_000))
	_, err = s.Accept(t.Context(), []edge.Submission{many})
	require.NoError(t, err)
	cs, err := s.Claim(t.Context(), 40)
	require.NoError(t, err)
	require.Len(t, cs, 40)
	require.NoError(t, s.Close())

	// Deliveries 100+1 .. 100+n. Where each belongs:
	//	i <= n/2                 target 101, the big line
	//	then n/20                target 102, unordered
	//	then n/10                targets 1000+i, one each
	//	the rest, finished       targets 5000000+i/100
	big, pool, small := n/2, n/20, n/10
	db := raw(t, path)
	for _, text := range []string{
		`PRAGMA synchronous=OFF`, `PRAGMA cache_size=-65536`, `BEGIN IMMEDIATE`,
		fmt.Sprintf(`CREATE TEMP TABLE rows AS
			WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
			SELECT 100 + i AS id, 1700000000000 - %d + i AS at,
			       CASE WHEN i = 1 THEN 'blocked' WHEN i <= %d THEN 'pending' ELSE 'succeeded' END AS state,
			       CASE WHEN i <= %d THEN 101 WHEN i <= %d THEN 102 WHEN i <= %d THEN 1000 + i ELSE 5000000 + i / 100 END AS target
			FROM n`, n, n, big+pool+small, big, big+pool, big+pool+small),
		`INSERT INTO events (id, hash, source, event_id, type, depth, accepted_ms, sha256, data)
			SELECT id, id * 2654435761, '/skewed', 'event-' || id, 'skewed.made', 0, at, zeroblob(32), zeroblob(200) FROM rows`,
		`INSERT INTO deliveries (id, event, target, generation, again, route, ordered, line, state, block, due_ms, accepted_ms,
			                     first_start_ms, attempts, losses, executions, execution, code, finished_ms, expires_ms, version)
			SELECT id, id, target, 1, 0, 'r', target <> 102, id, state, iif(state = 'blocked', 'config', NULL), at, at,
			       iif(state = 'succeeded', at, NULL), 0, 0, state = 'succeeded', iif(state = 'succeeded', id, NULL), 'ok',
			       iif(state = 'succeeded', at, NULL), iif(id % 10 = 0 AND state = 'pending', at + 86400000, NULL), 1 FROM rows`,
		`INSERT INTO executions (id, delivery, attempt, owner, token, revision, claimed_ms, started_ms, ended_ms, outcome, code)
			SELECT id, id, 1, 1, id, 1, at, at, at, 'succeeded', 'ok' FROM rows WHERE state = 'succeeded'`,
		`INSERT INTO consumptions SELECT id, target FROM rows WHERE state = 'succeeded'`,
		`INSERT INTO targets (id, handler, key, slots, busy, borrowed, open, open_ordered, kept, ready_ms, class, stall, stalled, served_ms, version)
			SELECT target, (SELECT id FROM handlers WHERE name = iif(target = 102, 'pool', 'hook')), 'key-' || target, iif(target = 102, 4, 1), 0, 0,
			       sum(state <> 'succeeded'), iif(target = 102, 0, sum(state <> 'succeeded')), count(*) + sum(state = 'succeeded'),
			       iif(target = 101 OR max(state) = 'succeeded', NULL, min(at)), 0,
			       iif(target = 101, 'blocked', NULL), iif(target = 101, 101, NULL), 0, 1 FROM rows GROUP BY target`,
		`INSERT INTO owners (name, pid, config, opened_ms) SELECT 'owner-' || id, 1, '', 1 FROM rows LIMIT 40`,
		`INSERT INTO counters SELECT 'state.' || state, count(*) FROM rows GROUP BY state
			ON CONFLICT (name) DO UPDATE SET value = value + excluded.value`,
		`INSERT INTO counters SELECT iif(state = 'succeeded', 'bytes.succeeded', 'bytes.open'), 1024 * count(*) FROM rows GROUP BY 1
			ON CONFLICT (name) DO UPDATE SET value = value + excluded.value`,
		fmt.Sprintf(`UPDATE sequences SET event = 100 + %[1]d, delivery = 100 + %[1]d, execution = 100 + %[1]d, target = 9000000`, n),
		`DROP TABLE rows`, `COMMIT`, `PRAGMA wal_checkpoint(TRUNCATE)`,
	} {
		exe(t, db, text)
	}
	require.NoError(t, db.Close())
	require.Empty(t, rulesBroken(t, path, false), "the skewed database is sound")
	return path
}
