package edgetest

import (
	"context"
	"fmt"
	"sort"
	"sync"
	"time"

	"fencepost/edge"
)

// Model is an [edge.Store] in memory. Several openings, each an owner of its
// own, may share one state: see [Model.Open]. All methods may be called from
// many goroutines.
type Model struct {
	*state
	owner string
	clock *edge.Clock
	fault *faults
	// giving is held from a claim of Dispatch until it was delivered. It is
	// taken before state.lock.
	giving sync.Mutex

	// Guarded by state.lock.
	regs        map[string]edge.Registration
	total       int
	leaseMS     int64
	retryLast   map[string]bool // handlers with a limit of one: the last claim was a retry
	stale       map[edge.Token]sighting
	watch       func([]edge.Change)
	seq         uint64
	closed      bool
	dispatching bool
	failed      chan struct{}
	done        chan struct{}
}

var _ edge.Store = (*Model)(nil)

// sighting is when an observer first saw a foreign lease with this expiry.
type sighting struct {
	expiresMS int64
	at        time.Duration
}

// NewModel returns the first opening of an empty state. clock nil means the
// process's clock.
func NewModel(clock *edge.Clock) *Model {
	return newOpening(newState(), clock)
}

// Open returns another opening of the same state with an owner id of its own,
// as another process that shares the file. clock nil means the clock of m.
func (m *Model) Open(clock *edge.Clock) *Model {
	if clock == nil {
		clock = m.clock
	}
	return newOpening(m.state, clock)
}

func newOpening(s *state, clock *edge.Clock) *Model {
	if clock == nil {
		clock = edge.NewClock(nil)
	}
	m := &Model{
		state:     s,
		owner:     edge.NewName(),
		clock:     clock,
		fault:     newFaults(),
		regs:      map[string]edge.Registration{},
		leaseMS:   edge.DefaultLease.Milliseconds(),
		retryLast: map[string]bool{},
		stale:     map[edge.Token]sighting{},
		failed:    make(chan struct{}),
		done:      make(chan struct{}),
	}
	s.lock <- struct{}{}
	s.openings[m.owner] = m
	<-s.lock
	return m
}

// Node is the random id of the state.
func (m *Model) Node() string { return m.node }

// Names are the one name of the model.
func (m *Model) Names() edge.Names { return edge.OneName(m.node) }

// Owner is the random id of this opening.
func (m *Model) Owner() string { return m.owner }

// Clock is the clock of this opening.
func (m *Model) Clock() *edge.Clock { return m.clock }

// Failed is closed by [Model.Break].
func (m *Model) Failed() <-chan struct{} { return m.failed }

// Watch registers fn for the changes that this opening commits.
func (m *Model) Watch(fn func([]edge.Change)) {
	m.lock <- struct{}{}
	m.watch = fn
	<-m.lock
}

// Close ends the opening. Its leases stay and its owner counts as dead.
func (m *Model) Close() error {
	m.lock <- struct{}{}
	defer func() { <-m.lock }()
	if !m.closed {
		m.closed = true
		close(m.done)
		m.rouse()
	}
	return nil
}

// Kill ends the opening as a crash of its process does: calls that wait return
// ErrClosed, nothing more is stored, leases stay and DeadOwners of the other
// openings lists the owner.
func (m *Model) Kill() { _ = m.Close() }

// Poke wakes Dispatch, for a test that has moved a manual clock.
func (m *Model) Poke() {
	m.lock <- struct{}{}
	m.rouse()
	<-m.lock
}

// Hold makes a pending delivery held, as a policy that asks for consent does
// at accept.
func (m *Model) Hold(id edge.DeliveryID) error {
	return m.update(context.Background(), "Hold", func(t *tx) error {
		d, err := t.find(id)
		if err != nil {
			return err
		}
		if d.State != edge.Pending {
			return illegal(d, "hold", "")
		}
		t.move(d, edge.Held, d.Code)
		return nil
	})
}

// Consume writes the consumption of an event by a target, as a generation that
// has been pruned since may have left it.
func (m *Model) Consume(e edge.EventID, target edge.Target) error {
	return m.update(context.Background(), "Consume", func(t *tx) error {
		t.consumed[consumption{e, target}] = true
		return nil
	})
}

// tx is one commit of one opening.
type tx struct {
	*Model
	nowMS   int64
	changes []edge.Change
	quiet   bool // nothing was written: nobody has to look again
}

// update runs fn as one commit. fn must test all guards before its first write.
func (m *Model) update(ctx context.Context, method string, fn func(*tx) error) error {
	if err := m.enter(ctx); err != nil {
		return err
	}
	defer func() { <-m.lock }()
	before, after, delay := m.fault.next(method)
	if delay > 0 {
		if err := m.hold(ctx, delay); err != nil {
			return err
		}
	}
	if before != nil {
		return fmt.Errorf("%s: %w", method, before)
	}
	t := &tx{Model: m, nowMS: m.clock.NowMS()}
	err := fn(t)
	if len(t.changes) > 0 && m.watch != nil {
		m.watch(t.changes)
	}
	if !t.quiet {
		m.rouse()
	}
	if err == nil && after != nil {
		return fmt.Errorf("%s: %w", method, after)
	}
	return err
}

// view runs fn on a state that stands still.
func (m *Model) view(ctx context.Context, method string, fn func(*tx) error) error {
	if err := m.enter(ctx); err != nil {
		return err
	}
	defer func() { <-m.lock }()
	if before, _, _ := m.fault.next(method); before != nil {
		return fmt.Errorf("%s: %w", method, before)
	}
	return fn(&tx{Model: m, nowMS: m.clock.NowMS()})
}

// enter takes the lock of the state for a call.
func (m *Model) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case m.lock <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-m.done:
		return edge.ErrClosed
	}
	var err error
	switch {
	case m.closed:
		err = edge.ErrClosed
	case m.broken():
		err = edge.ErrStorage
	}
	if err != nil {
		<-m.lock
	}
	return err
}

func (m *Model) broken() bool {
	select {
	case <-m.failed:
		return true
	default:
		return false
	}
}

// hold keeps the lock for d, as a slow disk does.
func (m *Model) hold(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// openingsByOwner lists the owners of all openings in order.
func (s *state) openingsByOwner() []string {
	owners := make([]string, 0, len(s.openings))
	for o := range s.openings {
		owners = append(owners, o)
	}
	sort.Strings(owners)
	return owners
}
