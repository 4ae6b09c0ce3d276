package edge_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/edgetest"
)

var simSeed = flag.Uint64("seed", 0, "run the simulation with this seed only")

// TestSimulation runs several engines on one store through stalls, panics,
// crashes, clock steps, storage faults and what operators do, in virtual time,
// and judges what was committed. A failure prints its seed; -seed replays it (the
// order of goroutines inside one instant is the scheduler's and may differ).
func TestSimulation(t *testing.T) {
	t.Parallel()
	if *simSeed != 0 {
		simulate(t, *simSeed)
		return
	}
	var all simFacts
	for seed := uint64(1); seed <= 4; seed++ {
		all.add(simulate(t, seed))
	}
	// A run in which nothing went wrong proves nothing.
	t.Logf("seeds 1 to 4: %+v", all)
	require.Positive(t, all.crashes, "crashes")
	require.Positive(t, all.steps, "clock steps")
	require.Positive(t, all.panics, "panics")
	require.Positive(t, all.busy, "contention for a target")
	require.Positive(t, all.losses, "lost leases")
	require.Positive(t, all.lostAfterStart, "once work lost after its start")
	require.Positive(t, all.recovered, "recovered leases")
	require.Positive(t, all.held, "held results")
	require.Positive(t, all.stale, "results refused because the lease was gone")
	require.Positive(t, all.followUps, "follow-up events")
	simulate(t, rand.Uint64())
}

// simFacts counts what happened.
type simFacts struct {
	crashes, steps, panics, busy, losses, lostAfterStart, recovered, held, stale, followUps, deliveries int64
}

func (f *simFacts) add(o simFacts) {
	f.crashes += o.crashes
	f.steps += o.steps
	f.panics += o.panics
	f.busy += o.busy
	f.losses += o.losses
	f.lostAfterStart += o.lostAfterStart
	f.recovered += o.recovered
	f.held += o.held
	f.stale += o.stale
	f.followUps += o.followUps
	f.deliveries += o.deliveries
}

// watched adds the changes of an opening to a history of all.
type watched struct {
	*edgetest.Model
	s *sim
}

func (w watched) Watch(fn func([]edge.Change)) {
	w.Model.Watch(func(cs []edge.Change) {
		w.s.record(cs)
		if fn != nil {
			fn(cs)
		}
	})
}

// node is one simulated process.
type node struct {
	m *edgetest.Model
	e *edge.Engine
}

type sim struct {
	t     *testing.T
	seed  uint64
	r     *rand.Rand
	host  *stepper
	root  *edgetest.Model
	h     *edgetest.History
	nodes []*node
	n     int // events so far

	mu    sync.Mutex
	calm  bool // nothing goes wrong any more
	begun map[edge.DeliveryID]bool
	wrong []string
	facts simFacts
}

func simulate(t *testing.T, seed uint64) simFacts {
	var facts simFacts
	t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
		t.Logf("replay: go test -run TestSimulation -seed %d", seed)
		synctest.Test(t, func(t *testing.T) {
			s := &sim{t: t, seed: seed, r: rand.New(rand.NewPCG(seed, 1)), host: newStepper(), h: edgetest.NewHistory(), begun: map[edge.DeliveryID]bool{}}
			s.root = edgetest.NewModel(edge.NewClock(s.host.now))
			for range 3 {
				s.nodes = append(s.nodes, s.boot())
			}
			for range 600 {
				s.act()
				time.Sleep(time.Duration(s.r.IntN(4000)) * time.Millisecond)
			}
			s.settleDown()
			time.Sleep(2 * time.Minute) // handlers of dead processes end
			s.judge()
			facts = s.facts
		})
	})
	return facts
}

// boot opens the store as a new process does.
func (s *sim) boot() *node {
	n := &node{m: s.root.Open(edge.NewClock(s.host.now))}
	spec := func(name string, effect edge.Effect, slots int) edge.HandlerSpec {
		return edge.HandlerSpec{
			Name: name, Effect: effect, Slots: slots, Concurrency: 4, Timeout: 20 * time.Second,
			Retry:   edge.RetryPolicy{Base: 500 * time.Millisecond, Max: 10 * time.Second, MaxAttempts: 6},
			Handler: edge.HandlerFunc(func(ctx context.Context, c *edge.Claim) edge.Result { return s.handle(ctx, c, effect) }),
		}
	}
	once := spec("once", edge.Once, 1)
	once.HaltOnFailure = true
	look := spec("look", edge.Once, 1)
	look.Handler = inspecting{look.Handler.Handle, s.inspect}
	e, err := edge.New(watched{n.m, s}, edge.Options{
		Handlers: []edge.HandlerSpec{once, look, spec("idem", edge.Idempotent, 1), spec("many", edge.Idempotent, 3), spec("chain", edge.Transactional, 1)},
		Router:   edge.RouterFunc(s.route), Lease: 10 * time.Second, Workers: 12, Shared: true,
		ShutdownGrace: 3 * time.Second, StubbornAfter: 2 * time.Second, MaxStubborn: 3,
		ClockSynced: func() bool { return true },
	})
	require.NoError(s.t, err)
	n.e = e
	if err := e.Start(s.t.Context()); err != nil {
		require.ErrorIs(s.t, err, edge.ErrUnavailable)
	}
	return n
}

func (s *sim) route(e *edge.Event) []edge.Routed {
	to := []edge.Routed{{Route: "r", Handler: e.Type, Key: e.Subject}}
	if e.Type == "idem" {
		to = append(to, edge.Routed{Route: "copy", Handler: "many", Key: e.Subject, TTLMS: 40_000})
	}
	return to
}

func (s *sim) inspect(ctx context.Context, c *edge.Claim) edge.Inspection {
	r := rand.New(rand.NewPCG(s.seed, uint64(c.Fence)+1<<32))
	switch n := r.IntN(20); {
	case s.isCalm() || n < 14:
		return edge.Inspection{}
	case n < 16:
		return edge.Inspection{Outcome: edge.OutcomeDeferred, Code: "not_now"}
	case n < 17:
		panic("inspection")
	case n < 18:
		<-ctx.Done()
		return edge.Inspection{}
	default:
		return edge.Inspection{Outcome: edge.OutcomeRetry, Code: "not_yet"}
	}
}

// handle plays a handler by its fence. The begin of once work whose end is not
// known must never be followed by another.
func (s *sim) handle(ctx context.Context, c *edge.Claim, effect edge.Effect) edge.Result {
	s.h.Began(c)
	s.begin(c, effect)
	r := rand.New(rand.NewPCG(s.seed, uint64(c.Fence)))
	if s.isCalm() {
		return edge.Done()
	}
	obeys := r.IntN(8) > 0
	work := time.Duration(r.IntN(6000)) * time.Millisecond
	if r.IntN(6) == 0 {
		work = time.Duration(r.IntN(40)) * time.Second
	}
	done := ctx.Done()
	if !obeys {
		done = nil
	}
	select {
	case <-time.After(work):
	case <-done:
		if r.IntN(2) == 0 {
			return edge.Unknown("cut", "")
		}
	}
	switch n := r.IntN(20); {
	case n < 10:
		return s.done(c)
	case n < 13:
		s.ended(c)
		return edge.TryAgain("busy", "")
	case n < 15:
		s.ended(c)
		return edge.Defer("offline", time.Second)
	case n < 16:
		return edge.GiveUp("no", "")
	case n < 17:
		s.count(func(f *simFacts) { f.panics++ })
		panic("handler")
	case n < 18:
		return edge.Result{Outcome: "nonsense"}
	case n < 19:
		s.ended(c)
		return edge.Misconfigured("no_secret", "")
	default:
		return edge.Unknown("cut", "")
	}
}

func (s *sim) done(c *edge.Claim) edge.Result {
	if c.Target.Handler != "chain" || c.Event.Depth >= 3 {
		return edge.Done()
	}
	s.count(func(f *simFacts) { f.followUps++ })
	next := edgetest.NewEvent(fmt.Sprintf("%s+%s", c.Event.ID, c.Key), c.Event.Subject)
	next.Type = "chain"
	return edge.Done(next)
}

func (s *sim) begin(c *edge.Claim, effect edge.Effect) {
	if effect != edge.Once {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun[c.Delivery] {
		s.wrong = append(s.wrong, fmt.Sprintf("once delivery %d was begun again (fence %d) though its begun effect is unresolved", c.Delivery, c.Fence))
	}
	s.begun[c.Delivery] = true
}

// ended is the handler's word that the effect did not begin.
func (s *sim) ended(c *edge.Claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.begun, c.Delivery)
}

func (s *sim) isCalm() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calm
}

func (s *sim) count(f func(f *simFacts)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.facts)
}

// act does one random thing.
func (s *sim) act() {
	n := s.nodes[s.r.IntN(len(s.nodes))]
	for _, n := range s.nodes {
		held := n.e.Status().Held
		s.count(func(f *simFacts) { f.held += int64(held) })
	}
	switch k := s.r.IntN(100); {
	case k < 50:
		s.enqueue(n)
	case k < 58:
		s.withTarget(n)
	case k < 66: // the process is silent for longer than a lease
		n.m.FailNext("Renew", 40+s.r.IntN(60))
	case k < 70:
		n.m.FailNext([]string{"Settle", "Release", "Start", "Expire", "Dispatch", "Claim"}[s.r.IntN(6)], 1+s.r.IntN(12))
	case k < 74:
		n.m.FailAfterNext([]string{"Settle", "Release", "Start", "Relinquish"}[s.r.IntN(4)], 1+s.r.IntN(3))
	case k < 78:
		s.crash()
	case k < 80:
		s.restart()
	case k < 82:
		s.step()
	case k < 95:
		s.operate(n)
	default:
		g, code := edge.GateOn, ""
		if s.r.IntN(3) == 0 {
			g, code = edge.GateOff, edge.CodePausedByOperator
		}
		s.allowed(second(n.e.SetGate(s.t.Context(), []string{"once", "idem", "many", "chain", "look"}[s.r.IntN(5)], g, code, 0)))
	}
}

func second[T any](_ T, err error) error { return err }

// allowed fails on errors that no one may see.
func (s *sim) allowed(err error) {
	for _, ok := range []error{nil, edge.ErrConflict, edge.ErrUnavailable, edge.ErrBusy, edge.ErrClosed, edge.ErrLeaseLost, edge.ErrNotFound} {
		if errors.Is(err, ok) {
			return
		}
	}
	require.NoError(s.t, err)
}

func (s *sim) enqueue(n *node) {
	var evs []edge.Event
	for range 1 + s.r.IntN(4) {
		s.n++
		ev := edgetest.NewEvent(fmt.Sprint("e", s.n), fmt.Sprint("k", s.r.IntN(3)))
		ev.Type = []string{"once", "look", "idem", "chain"}[s.r.IntN(4)]
		if ev.Type == "once" || ev.Type == "look" { // their lines stall often
			ev.Subject = fmt.Sprint("k", s.r.IntN(12))
		}
		if s.r.IntN(10) == 0 {
			ev.ID = fmt.Sprint("e", 1+s.r.IntN(s.n)) // again, perhaps with other content
		}
		evs = append(evs, ev)
	}
	s.allowed(second(n.e.EnqueueBatch(s.t.Context(), evs)))
}

func (s *sim) withTarget(n *node) {
	at := edge.Target{Handler: []string{"once", "idem"}[s.r.IntN(2)], Key: fmt.Sprint("k", s.r.IntN(3))}
	d := time.Duration(s.r.IntN(15)) * time.Second
	go func() {
		err := n.e.WithTarget(context.Background(), at, func(ctx context.Context, _ edge.ExecutionID) error {
			select {
			case <-ctx.Done():
			case <-time.After(d):
			}
			return nil
		})
		if errors.Is(err, edge.ErrBusy) {
			s.count(func(f *simFacts) { f.busy++ })
		}
	}()
}

// crash kills a process and boots another in its place.
func (s *sim) crash() {
	i := s.r.IntN(len(s.nodes))
	old := s.nodes[i]
	old.m.Kill()
	s.retire(old)
	s.count(func(f *simFacts) { f.crashes++ })
	s.nodes[i] = s.boot()
}

func (s *sim) restart() {
	i := s.r.IntN(len(s.nodes))
	_, err := s.nodes[i].e.Stop(context.Background())
	s.allowed(err)
	s.retire(s.nodes[i])
	s.nodes[i] = s.boot()
}

// retire ends what is left of a process and takes its counters.
func (s *sim) retire(n *node) {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := n.e.Stop(gone)
	s.allowed(err)
	n.m.Kill()
	c := n.e.Totals()
	s.count(func(f *simFacts) { f.recovered += c.Recovered; f.stale += c.Lost })
}

func (s *sim) step() {
	d := []time.Duration{time.Minute, -time.Minute, time.Hour, -2 * time.Hour, 5 * time.Hour, -20 * time.Second}[s.r.IntN(6)]
	s.host.by(d)
	s.count(func(f *simFacts) { f.steps++ })
	if s.r.IntN(2) == 0 {
		s.crash() // the new process never sees the step
	}
	time.Sleep(6 * time.Second) // the others look at the clock
}

// operate decides, cancels, redrives or resumes something.
func (s *sim) operate(n *node) {
	ctx := s.t.Context()
	for _, t := range s.stalled(edge.StallHalted) {
		s.allowed(second(n.e.ResumeTarget(ctx, t.Target)))
	}
	state := []edge.State{edge.Blocked, edge.Blocked, edge.Blocked, edge.Failed, edge.Pending, edge.Running}[s.r.IntN(6)]
	ds, err := s.root.Deliveries(ctx, edge.DeliveryFilter{State: state, Limit: 20})
	require.NoError(s.t, err)
	if len(ds) == 0 {
		return
	}
	d := ds[s.r.IntN(len(ds))]
	switch state {
	case edge.Blocked:
		as := []edge.ResolveAs{edge.ResolveSucceeded, edge.ResolveFailed, edge.ResolveRetry}[s.r.IntN(3)]
		s.allowed(second(n.e.Resolve(ctx, edge.Resolution{Delivery: d.ID, Version: d.Version, As: as, Reason: "sim", By: "sim"})))
	case edge.Failed:
		s.allowed(second(n.e.Redrive(ctx, edge.Redrive{Delivery: d.ID})))
	default:
		s.allowed(second(n.e.Cancel(ctx, d.ID)))
	}
}

func (s *sim) stalled(why edge.Stall) []edge.TargetInfo {
	ts, err := s.root.Targets(s.t.Context(), edge.TargetFilter{OnlyStalled: true, Limit: 1000})
	require.NoError(s.t, err)
	return slices.DeleteFunc(ts, func(t edge.TargetInfo) bool { return t.Stall != why })
}

// settleDown ends all faults and lets one fresh process finish all work: nothing
// may be stranded.
func (s *sim) settleDown() {
	s.mu.Lock()
	s.calm = true
	s.mu.Unlock()
	for _, n := range s.nodes {
		s.retire(n)
	}
	n := s.boot()
	defer s.retire(n)
	ctx := s.t.Context()
	for _, h := range []string{"once", "look", "idem", "many", "chain"} {
		_, err := n.e.SetGate(ctx, h, edge.GateOn, "", 0)
		require.NoError(s.t, err)
	}
	n.e.ConfirmClock()
	for round := 0; ; round++ {
		open := 0
		for _, state := range []edge.State{edge.Pending, edge.Leased, edge.Running, edge.Blocked} {
			ds, err := s.root.Deliveries(ctx, edge.DeliveryFilter{State: state, Limit: 1000})
			require.NoError(s.t, err)
			open += len(ds)
			for _, d := range ds {
				if state == edge.Blocked {
					_, err := n.e.Resolve(ctx, edge.Resolution{Delivery: d.ID, Version: d.Version, As: edge.ResolveFailed, Reason: "end", By: "sim"})
					require.NoError(s.t, err)
				}
			}
		}
		for _, t := range s.stalled(edge.StallHalted) {
			s.allowed(second(n.e.ResumeTarget(ctx, t.Target)))
		}
		if open == 0 {
			return
		}
		if round == 500 {
			s.stranded()
		}
		time.Sleep(10 * time.Second)
	}
}

// stranded fails with the explanation of what is left.
func (s *sim) stranded() {
	ds, err := s.root.Deliveries(s.t.Context(), edge.DeliveryFilter{State: edge.Pending, Limit: 5})
	require.NoError(s.t, err)
	text := ""
	for _, d := range ds {
		f, err := s.root.Facts(s.t.Context(), d.ID)
		require.NoError(s.t, err)
		text += edge.Explain(f, s.root.Clock().NowMS())
	}
	require.Fail(s.t, "work is stranded", text)
}

// judge checks the invariants, and that everything has ended.
func (s *sim) judge() {
	edgetest.CheckInvariants(s.t, s.root)
	s.h.Check(s.t, s.root)
	require.Empty(s.t, s.wrong)
	for before := edge.DeliveryID(0); ; {
		ds, err := s.root.Deliveries(s.t.Context(), edge.DeliveryFilter{Before: before, Limit: 1000})
		require.NoError(s.t, err)
		for _, d := range ds {
			require.True(s.t, d.State.Final(), "delivery %d is %s", d.ID, d.State)
			s.facts.deliveries++
			s.facts.losses += int64(d.Losses)
		}
		if len(ds) < 1000 {
			return
		}
		before = ds[len(ds)-1].ID
	}
}

// record takes in what one commit changed.
func (s *sim) record(cs []edge.Change) {
	s.h.Record(cs)
	for _, c := range cs {
		if c.State == edge.Blocked && c.Code == edge.CodeLostAfterStart {
			s.count(func(f *simFacts) { f.lostAfterStart++ })
		}
	}
}
