package edgetest

import (
	"context"
	"fmt"

	"fencepost/edge"
)

// Check reports every broken invariant of the model.
func (m *Model) Check(ctx context.Context, full bool) ([]edge.Violation, error) {
	var out []edge.Violation
	err := m.view(ctx, "Check", func(t *tx) error {
		c := &checker{tx: t, full: full}
		for _, d := range t.byID() {
			c.delivery(d)
		}
		for _, tg := range t.targets {
			c.target(tg)
		}
		c.leases()
		c.events()
		out = c.found
		return nil
	})
	return out, err
}

type checker struct {
	*tx
	full  bool
	found []edge.Violation
}

func (c *checker) wrong(rule, format string, args ...any) {
	c.found = append(c.found, edge.Violation{Rule: rule, Detail: fmt.Sprintf(format, args...)})
}

func (c *checker) delivery(d *delivery) {
	l := c.leaseOn(d)
	working := d.State == edge.Leased || d.State == edge.Running
	switch {
	case d.State == edge.Succeeded && !c.consumed[consumption{d.Event, d.Target}]:
		c.wrong("succeeded-consumed", "delivery %d succeeded without a consumption", d.ID)
	case working != (l != nil):
		c.wrong("lease", "delivery %d is %s, lease: %v", d.ID, d.State, l != nil)
	case d.State.Final() != (d.FinishedMS != 0):
		c.wrong("finished", "delivery %d is %s, finished at %d", d.ID, d.State, d.FinishedMS)
	case d.unknown && d.State != edge.Blocked:
		c.wrong("recovery", "delivery %d is %s with an open recovery", d.ID, d.State)
	}
	if l == nil {
		return
	}
	x := c.executions[l.Execution]
	if x == nil || x.EndedMS != 0 || (x.StartedMS != 0) != (d.State == edge.Running) {
		c.wrong("running", "delivery %d is %s and its execution %d does not agree", d.ID, d.State, l.Execution)
	}
}

func (c *checker) target(tg *target) {
	busy, ordered := 0, 0
	for _, l := range c.tx.leases {
		if l.Target == tg.Target {
			busy++
			if d := c.deliveries[l.Delivery]; d != nil && d.Ordered {
				ordered++
			}
		}
	}
	pending, waiting := 0, false
	for _, d := range tg.open {
		switch {
		case d.State == edge.Pending:
			pending++
		case d.Ordered != tg.strict():
			waiting = true // a row of the old mode holds up those of the new
		}
	}
	switch {
	case busy != tg.Busy:
		c.wrong("busy", "target %s counts %d leases and has %d", tg.Target, tg.Busy, busy)
	case ordered > 1:
		c.wrong("strict", "target %s has %d leases in its line", tg.Target, ordered)
	case len(tg.open) != tg.Open:
		c.wrong("open", "target %s counts %d open deliveries and has %d", tg.Target, tg.Open, len(tg.open))
	case tg.ReadyMS != 0 && (tg.Stall != edge.NoStall || tg.full()):
		c.wrong("ready", "target %s is ready while stalled or full", tg.Target)
	case pending > 0 && tg.ReadyMS == 0 && busy == 0 && tg.Stall == edge.NoStall && !waiting:
		c.wrong("stranded", "target %s has %d pending deliveries and nothing moves it", tg.Target, pending)
	}
}

func (c *checker) leases() {
	for _, l := range c.tx.leases {
		if x := c.executions[l.Execution]; x == nil || x.EndedMS != 0 {
			c.wrong("lease", "lease of execution %d, which has ended", l.Execution)
		}
	}
}

func (c *checker) events() {
	for n, e := range c.tx.events {
		if c.full && e.Data != nil && e.Digest() != e.digest {
			c.wrong("body", "event %d has other content than was accepted", n)
		}
	}
}
