package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"fencepost/edge"
	"fencepost/edge/edgetest"
	"fencepost/edge/sqlite"
)

// TestModel makes the same random operations on the store and on the model and
// compares all that they answer and keep. It is short by default; for a long
// run: go test -run TestModel -rapid.checks=5000 -rapid.steps=200. A failure
// prints the flags that repeat it.
func TestModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		p := newPair(rt)
		defer p.end()
		rt.Repeat(map[string]func(*rapid.T){
			"accept":     p.accept,
			"claim":      p.claim,
			"claim ":     p.claim,
			"start":      p.start,
			"settle":     p.settle,
			"settle ":    p.settle,
			"release":    p.release,
			"renew":      p.renew,
			"pass":       p.pass,
			"restart":    p.restart,
			"register":   p.register,
			"gate":       p.gate,
			"cancel":     p.cancel,
			"retry now":  p.retryNow,
			"bulk":       p.bulk,
			"resolve":    p.resolve,
			"redrive":    p.redrive,
			"reroute":    p.reroute,
			"resume":     p.resume,
			"skip":       p.skip,
			"hold":       p.hold,
			"expire":     p.expire,
			"prune":      p.prune,
			"acquire":    p.acquire,
			"relinquish": p.relinquish,
			"":           p.compare,
		})
		p.compareExecutions()
	})
}

// pair is a store and a model that are led in step.
type pair struct {
	t     *rapid.T
	ctx   context.Context
	dir   string
	clock *edge.Clock
	s     *sqlite.Store
	m     *edgetest.Model
	regs  []edge.Registration

	held     []holding // executions that were claimed, ended ones too
	borrowed []holding
	events   int
}

// holding is one execution as both sides know it.
type holding struct {
	execution edge.ExecutionID
	s, m      edge.Token
}

const modelLeaseMS = 60_000

func newPair(t *rapid.T) *pair {
	dir, err := os.MkdirTemp("", "fencepost-model-")
	require.NoError(t, err)
	p := &pair{t: t, ctx: context.Background(), dir: dir, clock: edge.ManualClock(edgetest.StartMS)}
	p.m = edgetest.NewModel(p.clock)
	p.open()
	p.regs = []edge.Registration{
		{Name: "idem", Effect: edge.Idempotent, Slots: 1, Limit: 3, Halt: true, MaxLosses: 2},
		{Name: "loose", Effect: edge.Transactional, Slots: 2, Limit: 3, Rate: edge.Rate{Interval: 700 * time.Millisecond, Burst: 2}},
		{Name: "once", Effect: edge.Once, Slots: 1, Limit: 3, Inspect: true},
	}
	p.registerAll()
	return p
}

func (p *pair) open() {
	var err error
	p.s, err = sqlite.Open(filepath.Join(p.dir, "m.db"), sqlite.Options{Clock: p.clock, Durability: sqlite.DurabilityNormal})
	require.NoError(p.t, err)
}

func (p *pair) end() {
	vs, err := p.s.Check(p.ctx, true)
	closed := p.s.Close()
	removed := os.RemoveAll(p.dir)
	if p.t.Failed() {
		return
	}
	require.NoError(p.t, errors.Join(err, closed, removed))
	require.Empty(p.t, vs)
}

// same requires that both sides refused alike, and reports whether both did it.
func (p *pair) same(what string, s, m error) bool {
	p.t.Helper()
	require.Equal(p.t, class(m), class(s), "%s: the store says %v, the model %v", what, s, m)
	return s == nil
}

func class(err error) string {
	for _, known := range []error{edge.ErrLeaseLost, edge.ErrBusy, edge.ErrNotFound, edge.ErrInvalid, edge.ErrConflict} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return fmt.Sprint(err)
}

func (p *pair) registerAll() {
	s := p.s.Register(p.ctx, p.regs, 6, modelLeaseMS)
	m := p.m.Register(p.ctx, p.regs, 6, modelLeaseMS)
	require.True(p.t, p.same("register", s, m))
}

func (p *pair) register(t *rapid.T) {
	i := rapid.IntRange(0, len(p.regs)-1).Draw(t, "handler")
	switch rapid.IntRange(0, 3).Draw(t, "change") {
	case 0:
		p.regs[i].Revision += "x"
	case 1:
		if !p.regs[i].Halt {
			p.regs[i].Slots = 3 - p.regs[i].Slots
		}
	case 2: // one goes missing
		all := p.regs
		p.regs = slices.Delete(slices.Clone(all), i, i+1)
		p.registerAll()
		p.regs = all
		return
	}
	p.registerAll()
}

func (p *pair) restart(*rapid.T) {
	require.NoError(p.t, p.s.Close())
	p.m.Kill()
	p.open()
	p.m = p.m.Open(nil)
	p.registerAll()
	so, serr := p.s.DeadOwners(p.ctx)
	mo, merr := p.m.DeadOwners(p.ctx)
	require.True(p.t, p.same("dead owners", serr, merr))
	require.Len(p.t, so, len(mo))
	var sv, mv []edge.Voided
	for i := range so {
		v, serr := p.s.VoidOwner(p.ctx, so[i])
		w, merr := p.m.VoidOwner(p.ctx, mo[i])
		require.True(p.t, p.same("void owner", serr, merr))
		sv, mv = append(sv, v...), append(mv, w...)
	}
	require.Equal(p.t, plainVoided(mv), plainVoided(sv))
}

// plainVoided is what both sides must agree on, in the order of executions.
func plainVoided(vs []edge.Voided) []string {
	var out []string
	for _, v := range vs {
		if v.Delivery == 0 {
			v.Started = false
		}
		out = append(out, fmt.Sprintf("%06d delivery %d of %s started %v: %s %s", v.Execution, v.Delivery, v.Target, v.Started, v.State, v.Code))
	}
	slices.Sort(out)
	return out
}

func (p *pair) accept(t *rapid.T) {
	n := rapid.IntRange(1, 3).Draw(t, "events")
	subs := make([]edge.Submission, n)
	for i := range subs {
		subs[i] = p.submission(t)
	}
	s, serr := p.s.Accept(p.ctx, subs)
	m, merr := p.m.Accept(p.ctx, subs)
	if p.same("accept", serr, merr) {
		p.sameAccepted(m, s)
	}
}

func (p *pair) submission(t *rapid.T) edge.Submission {
	n := rapid.IntRange(0, p.events/2).Draw(t, "old event")
	if rapid.IntRange(0, 3).Draw(t, "new") > 0 {
		p.events++
		n = p.events
	}
	sub := edge.Submission{Event: edgetest.NewEvent(fmt.Sprint("e", n), "")}
	if rapid.IntRange(0, 9).Draw(t, "other content") == 0 {
		sub.Event.Data = []byte("other")
	}
	for range rapid.IntRange(0, 3).Draw(t, "routes") {
		sub.Routes = append(sub.Routes, p.routed(t))
	}
	return sub
}

func (p *pair) routed(t *rapid.T) edge.Routed {
	r := edge.Routed{
		Route:   "r",
		Handler: rapid.SampledFrom([]string{"idem", "loose", "once"}).Draw(t, "handler"),
		Key:     rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key"),
	}
	switch rapid.IntRange(0, 9).Draw(t, "special") {
	case 0:
		r.Fault = "the key failed"
	case 1, 2:
		r.TTLMS = rapid.Int64Range(1, 100_000).Draw(t, "ttl")
	}
	return r
}

func (p *pair) sameAccepted(m, s []edge.Accepted) {
	p.t.Helper()
	require.Len(p.t, s, len(m))
	for i := range m {
		require.Equal(p.t, class(m[i].Err), class(s[i].Err))
		require.Equal(p.t, m[i].Existing, s[i].Existing)
		require.ElementsMatch(p.t, m[i].Deliveries, s[i].Deliveries)
		if m[i].Err == nil {
			require.Equal(p.t, m[i].Event, s[i].Event)
		}
	}
}

// claim lets the store choose and requires that the model could have chosen so,
// and that the store left nothing that it could have taken.
func (p *pair) claim(t *rapid.T) {
	n := rapid.IntRange(1, 4).Draw(t, "claims")
	claims, err := p.s.Claim(p.ctx, n)
	require.NoError(p.t, err)
	p.follow()
	for _, c := range claims {
		mc, err := p.m.ClaimDelivery(p.ctx, c.Delivery)
		require.NoError(p.t, err, "the store claimed delivery %d", c.Delivery)
		require.NotZero(p.t, mc.Token, "the store claimed delivery %d, which had to end", c.Delivery)
		p.held = append(p.held, holding{c.Fence, c.Token, mc.Token})
		require.Equal(p.t, plainClaim(p.m, mc), plainClaim(p.s, c))
		p.follow() // what ended between this claim and the next
	}
	if len(claims) < n {
		more, err := p.m.Claim(p.ctx, 1)
		require.NoError(p.t, err)
		require.Empty(p.t, more, "the store left something that is claimable")
	}
}

func plainClaim(s edge.Store, c edge.Claimed) edge.Claimed {
	c.DeliveryID = strings.ReplaceAll(c.DeliveryID, s.Node(), "node")
	c.EventID = strings.ReplaceAll(c.EventID, s.Node(), "node")
	c.Key = strings.ReplaceAll(c.Key, s.Node(), "node")
	c.Owner, c.Token = "", 0
	return c
}

// follow repeats on the model what the store's claim ended without a claim.
func (p *pair) follow() {
	for again := true; again; {
		again = false
		theirs := map[edge.DeliveryID]edge.Delivery{}
		for _, d := range p.deliveries(p.s) {
			theirs[d.ID] = d
		}
		for _, d := range p.deliveries(p.m) {
			if o := theirs[d.ID]; d.State != edge.Pending || o.Code != edge.CodeAlreadyConsumed && o.Code != edge.CodeExpired {
				continue
			}
			if _, err := p.m.ClaimDelivery(p.ctx, d.ID); err == nil {
				again = true
			}
		}
	}
}

func (p *pair) pick(t *rapid.T, from []holding) (holding, bool) {
	if len(from) == 0 {
		return holding{}, false
	}
	// The latest ones are those that matter most.
	i := len(from) - 1 - rapid.IntRange(0, min(len(from)-1, 7)).Draw(t, "execution")
	h := from[i]
	if rapid.IntRange(0, 19).Draw(t, "mixed up") == 0 {
		other := from[rapid.IntRange(0, len(from)-1).Draw(t, "other")]
		h.s, h.m = other.s, other.m
	}
	return h, true
}

func (p *pair) start(t *rapid.T) {
	h, ok := p.pick(t, p.held)
	if !ok {
		return
	}
	s, serr := p.s.Start(p.ctx, h.execution, h.s)
	m, merr := p.m.Start(p.ctx, h.execution, h.m)
	if p.same("start", serr, merr) {
		require.Equal(p.t, m, s)
	}
}

func (p *pair) settlement(t *rapid.T, outcomes []edge.Outcome) edge.Settlement {
	s := edge.Settlement{
		Outcome:     rapid.SampledFrom(outcomes).Draw(t, "outcome"),
		Code:        rapid.SampledFrom([]string{"x", "y"}).Draw(t, "code"),
		DelayMS:     rapid.Int64Range(0, 5_000).Draw(t, "delay"),
		MaxAttempts: rapid.IntRange(0, 3).Draw(t, "max attempts"),
	}
	switch rapid.IntRange(0, 14).Draw(t, "extra") {
	case 0:
		s.GiveUpAfterMS = rapid.Int64Range(1, 100_000).Draw(t, "give up after")
	case 1:
		s.PauseMS, s.GateCode = rapid.Int64Range(1, 10_000).Draw(t, "pause"), "slow_down"
	case 2:
		s.GateOff, s.GateCode = true, edge.CodeEndpointGone
	}
	return s
}

func (p *pair) settle(t *rapid.T) {
	h, ok := p.pick(t, p.held)
	if !ok {
		return
	}
	st := p.settlement(t, []edge.Outcome{
		edge.OutcomeSucceeded, edge.OutcomeSucceeded, edge.OutcomeFailed, edge.OutcomeRetry, edge.OutcomeRetry,
		edge.OutcomeDeferred, edge.OutcomeIndeterminate, edge.OutcomeBlocked, edge.OutcomeInterrupted,
	})
	p.finish(h, st, p.s.Settle, p.m.Settle)
}

func (p *pair) release(t *rapid.T) {
	h, ok := p.pick(t, p.held)
	if !ok {
		return
	}
	st := p.settlement(t, []edge.Outcome{edge.OutcomeRetry, edge.OutcomeDeferred, edge.OutcomeInterrupted, edge.OutcomeBlocked})
	p.finish(h, st, p.s.Release, p.m.Release)
}

type ending func(context.Context, edge.Settlement) (edge.Settled, error)

func (p *pair) finish(h holding, st edge.Settlement, store, model ending) {
	p.t.Helper()
	st.Execution, st.Token = h.execution, h.s
	s, serr := store(p.ctx, st)
	st.Token = h.m
	m, merr := model(p.ctx, st)
	if gone(serr) && gone(merr) {
		return // which of the two says so first is not part of the contract
	}
	if !p.same("end of execution", serr, merr) {
		return
	}
	require.Equal(p.t, m.Repeated, s.Repeated)
	require.Equal(p.t, m.Delivery, s.Delivery)
	if !m.Repeated {
		m.FollowUps, s.FollowUps = nil, nil
		require.Equal(p.t, m, s)
	}
}

func gone(err error) bool {
	return errors.Is(err, edge.ErrLeaseLost) || errors.Is(err, edge.ErrConflict) || errors.Is(err, edge.ErrNotFound)
}

func (p *pair) renew(t *rapid.T) {
	var st, mt []edge.Token
	for _, h := range append(slices.Clone(p.held), p.borrowed...) {
		if rapid.Bool().Draw(t, "named") {
			st, mt = append(st, h.s), append(mt, h.m)
		}
	}
	s, serr := p.s.Renew(p.ctx, st)
	m, merr := p.m.Renew(p.ctx, mt)
	if !p.same("renew", serr, merr) {
		return
	}
	require.Equal(p.t, p.fences(m.Lost, modelToken), p.fences(s.Lost, storeToken), "lost")
	require.Equal(p.t, p.fences(m.Cancel, modelToken), p.fences(s.Cancel, storeToken), "to be cancelled")
	require.Equal(p.t, plainVoided(m.Voided), plainVoided(s.Voided))
}

func storeToken(h holding) edge.Token { return h.s }
func modelToken(h holding) edge.Token { return h.m }

// fences names executions instead of tokens, which differ.
func (p *pair) fences(tokens []edge.Token, of func(holding) edge.Token) []edge.ExecutionID {
	var out []edge.ExecutionID
	for _, h := range append(slices.Clone(p.held), p.borrowed...) {
		if slices.Contains(tokens, of(h)) {
			out = append(out, h.execution)
		}
	}
	slices.Sort(out)
	return out
}

func (p *pair) pass(t *rapid.T) {
	p.clock.Advance(time.Duration(rapid.SampledFrom([]int64{1, 999, 1000, 5000, 59_000, 61_000}).Draw(t, "ms")) * time.Millisecond)
}

func (p *pair) gate(t *rapid.T) {
	h := rapid.SampledFrom([]string{"idem", "loose", "once"}).Draw(t, "handler")
	g := rapid.SampledFrom([]edge.Gate{edge.GateOn, edge.GateOn, edge.GateOff, edge.GatePaused}).Draw(t, "gate")
	resume := p.clock.NowMS() + rapid.Int64Range(0, 10_000).Draw(t, "pause")
	_, serr := p.s.SetGate(p.ctx, h, g, "operator", resume)
	_, merr := p.m.SetGate(p.ctx, h, g, "operator", resume)
	p.same("gate", serr, merr)
}

// delivery picks one of a state, or any.
func (p *pair) delivery(t *rapid.T, states ...edge.State) (edge.Delivery, bool) {
	all := p.deliveries(p.m)
	fitting := slices.DeleteFunc(slices.Clone(all), func(d edge.Delivery) bool { return !slices.Contains(states, d.State) })
	if len(fitting) > 0 && rapid.IntRange(0, 4).Draw(t, "fitting") > 0 {
		all = fitting
	}
	if len(all) == 0 {
		return edge.Delivery{}, false
	}
	return all[rapid.IntRange(0, len(all)-1).Draw(t, "delivery")], true
}

// sameDelivery compares the answers of an operator's verb.
func (p *pair) sameDelivery(what string, m, s edge.Delivery, merr, serr error) {
	p.t.Helper()
	if p.same(what, serr, merr) {
		require.Equal(p.t, m, s, what)
	}
}

func (p *pair) cancel(t *rapid.T) {
	if d, ok := p.delivery(t, edge.Pending, edge.Leased, edge.Running); ok {
		s, serr := p.s.Cancel(p.ctx, d.ID)
		m, merr := p.m.Cancel(p.ctx, d.ID)
		p.sameDelivery("cancel", m, s, merr, serr)
	}
}

func (p *pair) retryNow(t *rapid.T) {
	if d, ok := p.delivery(t, edge.Pending); ok {
		s, serr := p.s.RetryNow(p.ctx, d.ID)
		m, merr := p.m.RetryNow(p.ctx, d.ID)
		p.sameDelivery("retry now", m, s, merr, serr)
	}
}

func (p *pair) bulk(t *rapid.T) {
	b := edge.Bulk{Verb: rapid.SampledFrom([]edge.BulkVerb{edge.BulkCancel, edge.BulkRedrive, edge.BulkRetryNow}).Draw(t, "verb")}
	off := rapid.SampledFrom([]int64{0, 0, 0, 1}).Draw(t, "version off by")
	for _, d := range p.deliveries(p.m)[:min(6, len(p.deliveries(p.m)))] {
		b.Items = append(b.Items, edge.BulkItem{Delivery: d.ID, Version: d.Version + off})
	}
	ss, serr := p.s.Bulk(p.ctx, b)
	ms, merr := p.m.Bulk(p.ctx, b)
	require.True(p.t, p.same("bulk", serr, merr))
	for i := range ms {
		p.sameDelivery("bulk "+string(b.Verb), ms[i].Delivery, ss[i].Delivery, ms[i].Err, ss[i].Err)
	}
}

func (p *pair) resolve(t *rapid.T) {
	d, ok := p.delivery(t, edge.Blocked)
	if !ok {
		return
	}
	r := edge.Resolution{
		Delivery: d.ID, Version: d.Version, Reason: "because", By: "me",
		As: rapid.SampledFrom([]edge.ResolveAs{edge.ResolveSucceeded, edge.ResolveFailed, edge.ResolveRetry}).Draw(t, "as"),
	}
	if rapid.IntRange(0, 9).Draw(t, "other version") == 0 {
		r.Version--
	}
	s, serr := p.s.Resolve(p.ctx, r)
	m, merr := p.m.Resolve(p.ctx, r)
	p.sameDelivery("resolve", m, s, merr, serr)
}

func (p *pair) redrive(t *rapid.T) {
	d, ok := p.delivery(t, edge.Failed, edge.Cancelled, edge.Expired, edge.Succeeded)
	if !ok {
		return
	}
	r := edge.Redrive{Delivery: d.ID, Again: rapid.Bool().Draw(t, "again"), NewKey: rapid.Bool().Draw(t, "new key")}
	s, serr := p.s.Redrive(p.ctx, r)
	m, merr := p.m.Redrive(p.ctx, r)
	p.sameDelivery("redrive", m, s, merr, serr)
}

func (p *pair) reroute(t *rapid.T) {
	d, ok := p.delivery(t, edge.Blocked)
	if !ok {
		return
	}
	to := edge.Routed{Route: "mended", Handler: d.Target.Handler, Key: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key")}
	s, serr := p.s.Reroute(p.ctx, d.ID, to)
	m, merr := p.m.Reroute(p.ctx, d.ID, to)
	p.sameDelivery("reroute", m, s, merr, serr)
}

func (p *pair) target(t *rapid.T) (edge.TargetInfo, bool) {
	all := p.targets(p.m)
	if len(all) == 0 {
		return edge.TargetInfo{}, false
	}
	stalled := slices.DeleteFunc(slices.Clone(all), func(tg edge.TargetInfo) bool { return tg.Stall == edge.NoStall })
	if len(stalled) > 0 {
		all = stalled
	}
	return all[rapid.IntRange(0, len(all)-1).Draw(t, "target")], true
}

func (p *pair) resume(t *rapid.T) {
	if tg, ok := p.target(t); ok {
		_, serr := p.s.ResumeTarget(p.ctx, tg.Target)
		_, merr := p.m.ResumeTarget(p.ctx, tg.Target)
		p.same("resume", serr, merr)
	}
}

func (p *pair) skip(t *rapid.T) {
	tg, ok := p.target(t)
	if !ok {
		return
	}
	var version int64
	if d, err := p.m.Delivery(p.ctx, tg.Stalled); err == nil {
		version = d.Version
	}
	_, serr := p.s.SkipTarget(p.ctx, tg.Target, version, "because", "me")
	_, merr := p.m.SkipTarget(p.ctx, tg.Target, version, "because", "me")
	p.same("skip", serr, merr)
}

func (p *pair) hold(t *rapid.T) {
	if d, ok := p.delivery(t, edge.Pending); ok && d.State == edge.Pending {
		require.NoError(p.t, p.s.HoldForTest(p.ctx, d.ID))
		require.NoError(p.t, p.m.Hold(d.ID))
	}
}

func (p *pair) expire(*rapid.T) {
	s, serr := p.s.Expire(p.ctx, 1000)
	m, merr := p.m.Expire(p.ctx, 1000)
	if p.same("expire", serr, merr) {
		require.Equal(p.t, m, s)
	}
}

func (p *pair) prune(t *rapid.T) {
	now := p.clock.NowMS()
	age := rapid.Int64Range(0, 200_000).Draw(t, "age")
	policy := edge.PrunePolicy{SucceededBeforeMS: now - age, FailedBeforeMS: now - age, DedupeBeforeMS: now - 2*age, Limit: 10_000}
	_, serr := p.s.Prune(p.ctx, policy)
	_, merr := p.m.Prune(p.ctx, policy)
	p.same("prune", serr, merr)
}

func (p *pair) acquire(t *rapid.T) {
	r := p.routed(t)
	at := edge.Target{Handler: r.Handler, Key: r.Key}
	s, serr := p.s.Acquire(p.ctx, at)
	m, merr := p.m.Acquire(p.ctx, at)
	if p.same("acquire", serr, merr) {
		require.Equal(p.t, m.Execution, s.Execution)
		require.Equal(p.t, m.ExpiresMS, s.ExpiresMS)
		p.borrowed = append(p.borrowed, holding{s.Execution, s.Token, m.Token})
	}
}

func (p *pair) relinquish(t *rapid.T) {
	h, ok := p.pick(t, p.borrowed)
	if !ok {
		return
	}
	serr := p.s.Relinquish(p.ctx, h.execution, h.s, edge.OutcomeSucceeded, "ok")
	merr := p.m.Relinquish(p.ctx, h.execution, h.m, edge.OutcomeSucceeded, "ok")
	p.same("relinquish", serr, merr)
}

func (p *pair) deliveries(s edge.Reader) []edge.Delivery {
	ds, err := s.Deliveries(p.ctx, edge.DeliveryFilter{Limit: 1000})
	require.NoError(p.t, err)
	return ds
}

// targets lists the targets without their versions: how often a target was
// written is not part of the contract.
func (p *pair) targets(s edge.Reader) []edge.TargetInfo {
	ts, err := s.Targets(p.ctx, edge.TargetFilter{Limit: 1000})
	require.NoError(p.t, err)
	for i := range ts {
		ts[i].Version = 0
		if ts[i].Target.Key == edge.RouteErrorKey {
			ts[i].Slots = 0
		}
	}
	return ts
}

func (p *pair) compare(*rapid.T) {
	p.t.Helper()
	m, s := p.deliveries(p.m), p.deliveries(p.s)
	require.Len(p.t, s, len(m))
	for i := range m {
		require.Equal(p.t, m[i], s[i])
	}
	require.Equal(p.t, p.targets(p.m), p.targets(p.s))
	require.Equal(p.t, p.gates(p.m), p.gates(p.s))
	require.Equal(p.t, p.counters(p.m), p.counters(p.s))
	vs, err := p.m.Check(p.ctx, true)
	require.NoError(p.t, err)
	require.Empty(p.t, vs, "the model")
	vs, err = p.s.Check(p.ctx, false)
	require.NoError(p.t, err)
	require.Empty(p.t, vs, "the store")
}

func (p *pair) gates(s edge.Reader) []edge.HandlerInfo {
	hs, err := s.Handlers(p.ctx)
	require.NoError(p.t, err)
	for i := range hs {
		hs[i] = edge.HandlerInfo{Name: hs[i].Name, Gate: hs[i].Gate, Revision: hs[i].Revision}
	}
	return hs
}

// counters are those that both sides keep: the deliveries by state, and the
// final ones of all time.
func (p *pair) counters(s edge.Reader) map[string]int64 {
	cs, err := s.Counters(p.ctx)
	require.NoError(p.t, err)
	maps.DeleteFunc(cs, func(name string, n int64) bool {
		return n == 0 || name != "accepted" && !strings.HasPrefix(name, "final_") && !strings.HasPrefix(name, "state.")
	})
	return cs
}

func (p *pair) compareExecutions() {
	p.t.Helper()
	for _, d := range p.deliveries(p.m) {
		m, err := p.m.Executions(p.ctx, d.ID)
		require.NoError(p.t, err)
		s, err := p.s.Executions(p.ctx, d.ID)
		require.NoError(p.t, err)
		require.Len(p.t, s, len(m))
		for i := range m {
			m[i].Owner, s[i].Owner = "", ""
			require.Equal(p.t, m[i], s[i])
		}
		me, err := p.m.Event(p.ctx, d.Event)
		require.NoError(p.t, err)
		se, err := p.s.Event(p.ctx, d.Event)
		require.NoError(p.t, err)
		require.Equal(p.t, me, se)
	}
}
