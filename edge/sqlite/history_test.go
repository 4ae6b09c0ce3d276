package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/edgetest"
	"fencepost/edge/sqlite"
)

// verb is what a worker asks of the store in a history.
type verb string

const (
	verbClaim      verb = "claim"
	verbAcquire    verb = "acquire"
	verbStart      verb = "start"
	verbSettle     verb = "settle"
	verbRetry      verb = "settle as retry"
	verbRelease    verb = "release"
	verbRelinquish verb = "relinquish"
	verbSweep      verb = "sweep"
)

// asked is the input of one operation of a history.
type asked struct {
	verb      verb
	execution edge.ExecutionID // that it names, 0 for claim, acquire and sweep
}

// answered is its output.
type answered struct {
	refusal   error            // edge.ErrLeaseLost, edge.ErrConflict, edge.ErrBusy; nil = done
	execution edge.ExecutionID // that was begun; 0 = nothing to claim
	delivery  edge.DeliveryID
	repeated  bool
	voided    string // executions that a sweep took the lease of
}

func (a answered) String() string {
	return fmt.Sprintf("%v, began %d of %d, repeated %v, voided %q", a.refusal, a.execution, a.delivery, a.repeated, a.voided)
}

// lineState is what a strict target with a line of deliveries is, to the model.
type lineState struct {
	done      int              // deliveries of the line that succeeded
	holder    edge.ExecutionID // who has the lease; 0 = nobody
	started   bool
	newest    edge.ExecutionID // fences only grow
	succeeded string           // executions
	otherwise string           // executions that ended otherwise, and were not voided
}

// line is the model of one strict target: one lease, fences that grow, the head
// of the line first, and nothing changes by who does not hold the lease. When a
// lease may be voided it leaves open, for the clock is none of its business.
type line []edge.DeliveryID

func (l line) step(state, input, output any) (bool, any) {
	s, in, out := state.(lineState), input.(asked), output.(answered)
	mine := in.execution != 0 && s.holder == in.execution
	switch in.verb {
	case verbClaim, verbAcquire:
		return l.begin(s, in, out)
	case verbSweep:
		if out.voided == "" {
			return true, s
		}
		ok := s.holder != 0 && out.voided == fmt.Sprint(s.holder) // one slot: never two
		return ok, s.free()
	case verbStart:
		switch {
		case out.refusal == nil:
			ok := mine && !s.started
			s.started = true
			return ok, s
		case errors.Is(out.refusal, edge.ErrConflict): // expired, and not voided yet
			return mine, s
		}
		return !mine, s
	case verbSettle:
		ended, otherwise := among(s.succeeded, in.execution), among(s.otherwise, in.execution)
		switch {
		case errors.Is(out.refusal, edge.ErrConflict): // not begun, or another end is stored
			return mine && !s.started || otherwise, s
		case out.refusal != nil:
			return !mine && !ended && !otherwise, s
		case out.repeated:
			return ended, s
		}
		ok := mine && s.started
		s.done++
		s.succeeded += fmt.Sprint(in.execution, " ")
		return ok, s.free()
	}
	// A settle as retry, a release, a relinquish.
	if out.refusal != nil {
		return !mine && errors.Is(out.refusal, edge.ErrLeaseLost), s
	}
	ok := mine && s.started == (in.verb != verbRelease)
	s.otherwise += fmt.Sprint(in.execution, " ")
	return ok, s.free()
}

// begin is a claim or an Acquire.
func (l line) begin(s lineState, in asked, out answered) (bool, any) {
	switch {
	case errors.Is(out.refusal, edge.ErrBusy):
		return s.holder != 0, s
	case out.execution == 0: // nothing was due
		return true, s
	}
	ok := s.holder == 0 && out.execution > s.newest
	if in.verb == verbClaim {
		ok = ok && s.done < len(l) && l[s.done] == out.delivery
	}
	s.holder, s.newest, s.started = out.execution, out.execution, in.verb == verbAcquire
	return ok, s
}

func (s lineState) free() lineState {
	s.holder, s.started = 0, false
	return s
}

// among reports whether a list of executions has one.
func among(list string, id edge.ExecutionID) bool {
	return slices.Contains(strings.Fields(list), fmt.Sprint(id))
}

func (l line) model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return lineState{} },
		Step: l.step,
		DescribeOperation: func(in, out any) string {
			return fmt.Sprintf("%+v -> %+v", in, out)
		},
	}
}

// tale is one history in the making: workers on two openings of one file.
type tale struct {
	ctx    context.Context
	clock  *edge.Clock
	stores [2]*sqlite.Store
	target edge.Target
	line   line
	blind  bool // settle under the newest lease of the delivery, whoever's it is

	tick atomic.Int64
	mu   sync.Mutex
	ops  []porcupine.Operation
	held map[edge.DeliveryID]edge.Claimed // newest claims
	seen map[string]int
}

const (
	taleWorkers = 4
	taleLine    = 5
	taleSteps   = 16
	taleLeaseMS = 100
)

func newTale(t *testing.T, path string) *tale {
	t.Helper()
	x := &tale{
		ctx: context.Background(), clock: edge.ManualClock(edgetest.StartMS), target: edge.Target{Handler: "hook", Key: "k"},
		held: map[edge.DeliveryID]edge.Claimed{}, seen: map[string]int{},
	}
	regs := []edge.Registration{{Name: "hook", Effect: edge.Idempotent, Slots: 1, Limit: 100, Inspect: true, MaxLosses: 1000}}
	for i := range x.stores {
		s, err := sqlite.Open(path, sqlite.Options{Share: true, Clock: x.clock, Durability: sqlite.DurabilityNormal})
		require.NoError(t, err)
		x.stores[i] = s
		require.NoError(t, s.Register(x.ctx, regs, 100, taleLeaseMS))
	}
	for i := range taleLine {
		as, err := x.stores[0].Accept(x.ctx, []edge.Submission{edgetest.Owe(fmt.Sprint("e", i), "hook", "k")})
		require.NoError(t, err)
		x.line = append(x.line, as[0].Deliveries[0].ID)
	}
	return x
}

func (x *tale) close(t *testing.T) {
	t.Helper()
	vs, err := x.stores[0].Check(x.ctx, true)
	require.NoError(t, err)
	if !x.blind {
		require.Empty(t, vs)
	}
	for _, s := range x.stores {
		require.NoError(t, s.Close())
	}
}

// do makes one operation and writes it down.
func (x *tale) do(worker int, in asked, f func() (answered, error)) (answered, error) {
	call := x.tick.Add(1)
	out, err := f()
	back := x.tick.Add(1)
	for _, refusal := range []error{edge.ErrLeaseLost, edge.ErrConflict, edge.ErrBusy} {
		if errors.Is(err, refusal) {
			out.refusal, err = refusal, nil
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ops = append(x.ops, porcupine.Operation{ClientId: worker, Input: in, Call: call, Output: out, Return: back})
	x.seen[fmt.Sprint(in.verb, ": ", out.refusal)]++
	if in.verb == verbSweep && out.voided != "" {
		x.seen["voided"]++
	}
	if out.repeated {
		x.seen["repeated"]++
	}
	if back-call > 1 {
		x.seen["overlapped"]++
	}
	return out, err
}

// work is one worker: it claims, starts and settles, and now and then it forgets
// what it holds for a while and comes back to it as a zombie.
func (x *tale) work(worker int, rng *rand.Rand) error {
	s := x.stores[worker%2]
	var now, late []edge.Claimed
	for range taleSteps {
		x.clock.Advance(time.Duration(rng.IntN(taleLeaseMS/3)) * time.Millisecond)
		var err error
		switch k := rng.IntN(100); {
		case len(late) > 0 && k < 25:
			err = x.settle(worker, s, late[rng.IntN(len(late))], verbSettle)
		case k < 40:
			err = x.sweep(worker, s, k%2 == 0)
		case len(now) == 0 && k < 55:
			err = x.borrow(worker, s)
		case len(now) == 0:
			now, err = x.claim(worker, s)
		case k < 55:
			late, now = append(late, now[0]), nil
		case !now[0].Started:
			now, err = x.begin(worker, s, now[0], k < 65)
		case k < 70:
			err, now = x.settle(worker, s, now[0], verbRetry), nil
		default:
			late = append(late, now[0]) // settled once more, perhaps
			err, now = x.settle(worker, s, now[0], verbSettle), nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (x *tale) claim(worker int, s *sqlite.Store) (cs []edge.Claimed, err error) {
	_, err = x.do(worker, asked{verb: verbClaim}, func() (answered, error) {
		if cs, err = s.Claim(x.ctx, 1); err != nil || len(cs) == 0 {
			return answered{}, err
		}
		return answered{execution: cs[0].Fence, delivery: cs[0].Delivery}, nil
	})
	if len(cs) > 0 {
		x.mu.Lock()
		if x.held[cs[0].Delivery].Fence < cs[0].Fence {
			x.held[cs[0].Delivery] = cs[0]
		}
		x.seen[fmt.Sprint("store ", worker%2)]++
		x.mu.Unlock()
	}
	return cs, err
}

// begin starts what is leased, or gives it back.
func (x *tale) begin(worker int, s *sqlite.Store, c edge.Claimed, giveBack bool) ([]edge.Claimed, error) {
	if giveBack {
		_, err := x.do(worker, asked{verbRelease, c.Fence}, func() (answered, error) {
			_, err := s.Release(x.ctx, edge.Settlement{Execution: c.Fence, Token: c.Token, Outcome: edge.OutcomeRetry, Code: "again", DelayMS: 1})
			return answered{}, err
		})
		return nil, err
	}
	out, err := x.do(worker, asked{verbStart, c.Fence}, func() (answered, error) {
		_, err := s.Start(x.ctx, c.Fence, c.Token)
		return answered{}, err
	})
	c.Started = out.refusal == nil
	if errors.Is(out.refusal, edge.ErrLeaseLost) {
		return nil, err
	}
	return []edge.Claimed{c}, err
}

func (x *tale) settle(worker int, s *sqlite.Store, c edge.Claimed, v verb) error {
	e := edge.Settlement{Execution: c.Fence, Token: c.Token, Outcome: edge.OutcomeSucceeded, Code: "ok"}
	if v == verbRetry {
		e.Outcome, e.Code, e.DelayMS = edge.OutcomeRetry, "again", 1
	}
	if x.blind {
		x.mu.Lock()
		e.Execution, e.Token = x.held[c.Delivery].Fence, x.held[c.Delivery].Token
		x.mu.Unlock()
	}
	_, err := x.do(worker, asked{v, c.Fence}, func() (answered, error) {
		a, err := s.Settle(x.ctx, e)
		return answered{repeated: a.Repeated}, err
	})
	return err
}

// borrow takes the target for something else, and gives it back.
func (x *tale) borrow(worker int, s *sqlite.Store) error {
	var l edge.Lease
	out, err := x.do(worker, asked{verb: verbAcquire}, func() (a answered, err error) {
		l, err = s.Acquire(x.ctx, x.target)
		return answered{execution: l.Execution}, err
	})
	if err != nil || out.refusal != nil {
		return err
	}
	_, err = x.do(worker, asked{verbRelinquish, l.Execution}, func() (answered, error) {
		return answered{}, s.Relinquish(x.ctx, l.Execution, l.Token, edge.OutcomeSucceeded, "ok")
	})
	return err
}

// sweep voids what has expired: of this opening, or of the other one.
func (x *tale) sweep(worker int, s *sqlite.Store, own bool) error {
	_, err := x.do(worker, asked{verb: verbSweep}, func() (answered, error) {
		var vs []edge.Voided
		var err error
		if own {
			var r edge.Renewed
			r, err = s.Renew(x.ctx, nil)
			vs = r.Voided
		} else {
			vs, err = s.VoidStale(x.ctx)
		}
		text := ""
		for _, v := range vs {
			text += fmt.Sprint(v.Execution)
		}
		return answered{voided: text}, err
	})
	return err
}

// run lets all workers work at once.
func (x *tale) run(t *testing.T, seed uint64) {
	t.Helper()
	errs := make([]error, taleWorkers)
	var all sync.WaitGroup
	for w := range taleWorkers {
		rng := rand.New(rand.NewPCG(seed, uint64(w)))
		all.Go(func() { errs[w] = x.work(w, rng) })
	}
	all.Wait()
	require.NoError(t, errors.Join(errs...))
}

// tales is how many histories are made; FENCEPOST_HISTORIES says otherwise.
func tales(t *testing.T) (n int, seed uint64) {
	t.Helper()
	n, seed = 40, uint64(rand.Uint32())
	for name, set := range map[string]func(v int){
		"FENCEPOST_HISTORIES": func(v int) { n = v },
		"FENCEPOST_SEED":      func(v int) { seed = uint64(v) },
	} {
		if s := os.Getenv(name); s != "" {
			v, err := strconv.Atoi(s)
			require.NoError(t, err, "%s", name)
			set(v)
		}
	}
	t.Logf("FENCEPOST_SEED=%d", seed)
	return n, seed
}

// TestP34_HistoriesOfLeases lets workers on two openings of one file claim,
// start, settle, give back, borrow and sweep at the same time, and sleep past
// their leases. Each history must be one that a single lease could have had, one
// step after another.
func TestP34_HistoriesOfLeases(t *testing.T) {
	t.Parallel()
	n, seed := tales(t)
	seen, ops, dir := map[string]int{}, 0, t.TempDir()
	for k := range n {
		x := newTale(t, filepath.Join(dir, fmt.Sprint(k, ".db")))
		x.run(t, seed+uint64(k))
		x.close(t)
		x.accepted(t, true)
		ops += len(x.ops)
		for what, times := range x.seen {
			seen[what] += times
		}
	}
	t.Logf("%d histories of %d operations accepted; %v", n, ops, seen)
	for _, must := range []string{
		"overlapped", "voided", "repeated", "store 0", "store 1", "claim: <nil>", "start: <nil>", "settle: <nil>",
		"settle: " + edge.ErrLeaseLost.Error(), "acquire: " + edge.ErrBusy.Error(), "relinquish: <nil>", "release: <nil>",
	} {
		require.Positive(t, seen[must], "%q never came to pass among %v", must, seen)
	}
}

// accepted asks whether the model can explain the history.
func (x *tale) accepted(t *testing.T, want bool) bool {
	t.Helper()
	result := porcupine.CheckOperationsTimeout(x.line.model(), x.ops, time.Minute)
	require.NotEqual(t, porcupine.Unknown, result, "a history could not be decided")
	if want {
		slices.SortFunc(x.ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
		text := ""
		for _, o := range x.ops {
			text += fmt.Sprintf("%3d-%3d worker %d: %v -> %s\n", o.Call, o.Return, o.ClientId, o.Input, o.Output)
		}
		require.Equal(t, porcupine.Ok, result, "no order of one lease explains this:\n%s", text)
	}
	return result == porcupine.Ok
}

// TestControl_ASettleWithoutTheTokenIsRejected shows that the model finds a store
// that lets anybody settle: here the newest lease of the delivery is used,
// whoever asks.
func TestControl_ASettleWithoutTheTokenIsRejected(t *testing.T) {
	t.Parallel()
	_, seed := tales(t)
	const n = 20
	rejected, dir := 0, t.TempDir()
	for k := range n {
		x := newTale(t, filepath.Join(dir, fmt.Sprint(k, ".db")))
		x.blind = true
		x.run(t, seed+uint64(k))
		x.close(t)
		if !x.accepted(t, false) {
			rejected++
		}
	}
	t.Logf("%d of %d histories of a store that settles without the token rejected", rejected, n)
	require.Positive(t, rejected, "the model explains everything: it proves nothing")
}
