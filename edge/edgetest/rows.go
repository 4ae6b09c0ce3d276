package edgetest

import (
	"fmt"
	"slices"

	"fencepost/edge"
)

// state is what the openings of a model share. It is guarded by lock, a channel
// and not a mutex, so that waiting for it blocks durably in a synctest bubble.
type state struct {
	lock chan struct{}
	wake chan struct{} // closed and made anew by each commit

	node          string
	lastEvent     edge.EventID
	lastDelivery  edge.DeliveryID
	lastExecution edge.ExecutionID
	lastTarget    int64

	handlers   map[string]*handler
	targets    map[edge.Target]*target
	events     map[edge.EventID]*event
	identities map[identity]edge.EventID
	deliveries map[edge.DeliveryID]*delivery
	executions map[edge.ExecutionID]*execution
	leases     map[edge.Token]*edge.Lease
	consumed   map[consumption]bool
	counters   map[string]int64
	requests   map[[32]byte]request
	openings   map[string]*Model

	doubtFrom, doubtTo int64 // readings at which something finished while the clock was doubted; 0 = none
}

type identity struct{ source, id string }

type consumption struct {
	event  edge.EventID
	target edge.Target
}

type event struct {
	edge.Event
	digest [32]byte
}

type delivery struct {
	edge.Delivery
	unknown    bool // blocked because the outcome of Execution is unknown
	newer      edge.DeliveryID
	bytes      int64
	executions []edge.ExecutionID // those kept
}

type execution struct {
	edge.Execution
	token   edge.Token
	settled *edge.Settled // the answer of the settlement that ended it
	late    *edge.Settled // the answer of the settlement that came late
	detail  string        // of that late one
	code    string
}

type handler struct {
	edge.HandlerInfo
	kept  edge.HandlerInfo // the gate to return to when it is no longer missing
	slots int              // per target, as last registered

	fullUS int64 // when the bucket of the rate limit is full again
}

type target struct {
	edge.TargetInfo
	id       int64
	servedMS int64
	open     map[edge.DeliveryID]*delivery
	next     *delivery // what a claim would take, due or not; nil when nothing is claimable
}

func newState() *state {
	return &state{
		lock:       make(chan struct{}, 1),
		wake:       make(chan struct{}),
		node:       edge.NewName()[:8],
		handlers:   map[string]*handler{},
		targets:    map[edge.Target]*target{},
		events:     map[edge.EventID]*event{},
		identities: map[identity]edge.EventID{},
		deliveries: map[edge.DeliveryID]*delivery{},
		executions: map[edge.ExecutionID]*execution{},
		leases:     map[edge.Token]*edge.Lease{},
		consumed:   map[consumption]bool{},
		counters:   map[string]int64{},
		requests:   map[[32]byte]request{},
		openings:   map[string]*Model{},
	}
}

// rouse wakes all who wait for a commit.
func (s *state) rouse() {
	close(s.wake)
	s.wake = make(chan struct{})
}

func (s *state) find(id edge.DeliveryID) (*delivery, error) {
	d := s.deliveries[id]
	if d == nil {
		return nil, fmt.Errorf("%w: delivery %d", edge.ErrNotFound, id)
	}
	return d, nil
}

func illegal(d *delivery, on edge.Trigger, hint string) error {
	return &edge.TransitionError{Delivery: d.ID, Event: on, State: d.State, Version: d.Version, Hint: hint}
}

// handler returns the row of a handler, made as missing when there is none.
func (t *tx) handler(name string) *handler {
	h := t.handlers[name]
	if h == nil {
		h = &handler{}
		h.Name, h.Gate, h.GateCode, h.Version = name, edge.GateMissing, edge.CodeHandlerMissing, 1
		h.kept.Gate, h.slots = edge.GateOn, 1
		t.handlers[name] = h
	}
	return h
}

// target returns the row of a target, made when there is none.
func (t *tx) target(at edge.Target) *target {
	tg := t.targets[at]
	if tg != nil {
		return tg
	}
	slots := t.handler(at.Handler).slots
	if at.Key == edge.RouteErrorKey {
		slots = routeErrorSlots
	}
	t.lastTarget++
	tg = &target{
		TargetInfo: edge.TargetInfo{Target: at, Slots: slots, Version: 1},
		id:         t.lastTarget,
		open:       map[edge.DeliveryID]*delivery{},
	}
	t.targets[at] = tg
	return tg
}

// routeErrorSlots makes the reserved target unordered. Nothing on it is ever
// claimed.
const routeErrorSlots = 2

// insert adds a delivery that has no id yet.
func (t *tx) insert(d *delivery) {
	t.lastDelivery++
	d.ID = t.lastDelivery
	if d.Line == 0 {
		d.Line = d.ID
	}
	if d.KeyOf == 0 {
		d.KeyOf = d.ID
	}
	d.AcceptedMS, d.DueMS, d.Version = t.nowMS, t.nowMS, 1
	t.deliveries[d.ID] = d
	t.target(d.Target).open[d.ID] = d
	t.committed(d, 0, "")
}

// move gives a delivery its new state and code.
func (t *tx) move(d *delivery, to edge.State, code string) { t.end(d, to, code, nil) }

// end moves a delivery as the end of an execution.
func (t *tx) end(d *delivery, to edge.State, code string, e *execution) {
	d.State, d.Code = to, code
	d.Version++
	if to != edge.Blocked {
		d.unknown = false
	}
	if to.Final() {
		d.FinishedMS = t.nowMS
		t.noteDoubt()
		t.counters["final_"+string(to)]++
		delete(t.target(d.Target).open, d.ID)
	}
	if to == edge.Succeeded {
		t.consumed[consumption{d.Event, d.Target}] = true
	}
	if e != nil {
		t.committed(d, e.ID, e.Outcome)
		return
	}
	t.committed(d, 0, "")
}

// committed mends the target of a changed delivery and notes the change.
func (t *tx) committed(d *delivery, e edge.ExecutionID, o edge.Outcome) {
	t.refresh(t.target(d.Target))
	t.seq++
	c := edge.Change{
		Seq: t.seq, AtMS: t.nowMS, Delivery: d.ID, Event: d.Event, Target: d.Target,
		State: d.State, Code: d.Code, Execution: e, Outcome: o, Attempts: d.Attempts,
	}
	if d.State == edge.Pending {
		c.DueMS = d.DueMS
	}
	t.changes = append(t.changes, c)
}

// Executions kept per delivery: the first and the last ones.
const (
	keepFirst = 3
	keepLast  = 20
)

// remember adds an execution to a delivery and forgets one between the first
// and the last ones.
func (t *tx) remember(d *delivery, e edge.ExecutionID) {
	d.Executions++
	d.executions = append(d.executions, e)
	if len(d.executions) > keepFirst+keepLast {
		delete(t.executions, d.executions[keepFirst])
		d.executions = slices.Delete(d.executions, keepFirst, keepFirst+1)
	}
}

// free ends a lease and the execution under it.
func (t *tx) free(l *edge.Lease, o edge.Outcome, code, detail string) *execution {
	delete(t.leases, l.Token)
	tg := t.target(l.Target)
	tg.Busy--
	e := t.executions[l.Execution]
	e.EndedMS, e.Outcome, e.Code, e.Detail = t.nowMS, o, code, detail
	t.refresh(tg)
	return e
}
