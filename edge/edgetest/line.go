package edgetest

import (
	"sort"

	"fencepost/edge"
)

// refresh decides what a target's next claim takes, when, and what stalls it.
func (s *state) refresh(tg *target) {
	tg.Open = len(tg.open)
	tg.next, tg.ReadyMS = nil, 0
	if tg.Stall == edge.StallHalted {
		return
	}
	tg.Stall, tg.Stalled = edge.NoStall, 0
	if tg.inLine() {
		if head := tg.head(); head != nil && !tg.working() {
			tg.stallBy(head)
		}
	} else {
		tg.nextUnordered()
		if tg.next == nil && tg.strict() && !tg.working() {
			for _, d := range tg.line() { // the old mode's rows hold up the new line, visibly
				if !d.Ordered {
					tg.stallBy(d)
					break
				}
			}
		}
	}
	if tg.next != nil && !tg.full() {
		tg.ReadyMS = max(tg.next.DueMS, tg.servedMS)
	}
}

// full says that no further lease may be taken on the target.
func (tg *target) full() bool {
	if tg.inLine() {
		return tg.Busy > 0
	}
	return tg.Busy >= tg.Slots
}

// inLine says whether the target is worked in line now. After a change of its
// slots the rows of the new mode wait until those of the old one are final.
func (tg *target) inLine() bool {
	ordered := 0
	for _, d := range tg.open {
		if d.Ordered {
			ordered++
		}
	}
	if tg.strict() {
		return ordered == len(tg.open)
	}
	return ordered > 0
}

// working says that a delivery of the target is under way.
func (tg *target) working() bool {
	for _, d := range tg.open {
		if d.State == edge.Leased || d.State == edge.Running {
			return true
		}
	}
	return false
}

// line is the open deliveries by their place in line.
func (tg *target) line() []*delivery {
	line := make([]*delivery, 0, len(tg.open))
	for _, d := range tg.open {
		line = append(line, d)
	}
	sort.Slice(line, func(i, j int) bool { return line[i].Line < line[j].Line })
	return line
}

// head is the first open delivery in line.
func (tg *target) head() *delivery {
	for _, d := range tg.line() {
		if d.Ordered {
			return d
		}
	}
	return nil
}

// stallBy takes the head as the next to be claimed, or as what stalls the line.
func (tg *target) stallBy(head *delivery) {
	switch head.State {
	case edge.Pending:
		tg.next = head
	case edge.Held:
		tg.Stall, tg.Stalled = edge.StallHeld, head.ID
	case edge.Blocked:
		tg.Stall, tg.Stalled = edge.StallBlocked, head.ID
	}
}

// nextUnordered finds the earliest due row that takes no part in a line.
func (tg *target) nextUnordered() {
	for _, d := range tg.line() {
		if !d.Ordered && d.State == edge.Pending && (tg.next == nil || d.DueMS < tg.next.DueMS) {
			tg.next = d
		}
	}
}

// strict says whether the target's new deliveries take part in a line.
func (tg *target) strict() bool { return tg.Slots == 1 }

// halt stops the line of a delivery that ended as failed, when its handler says
// so.
func (t *tx) halt(d *delivery) {
	if d.State != edge.Failed || !d.Ordered || !t.regs[d.Target.Handler].Halt {
		return
	}
	tg := t.target(d.Target)
	tg.Stall, tg.Stalled = edge.StallHalted, d.ID
	tg.Version++
	t.refresh(tg)
}

// unhalt ends a halt.
func (t *tx) unhalt(tg *target) {
	tg.Stall, tg.Stalled = edge.NoStall, 0
	tg.Version++
	t.refresh(tg)
}

// gateOpen says whether a handler's gate lets work through.
func gateOpen(h *handler, nowMS int64) bool {
	return h != nil && (h.Gate == edge.GateOn || h.Gate == edge.GatePaused && h.ResumeMS <= nowMS)
}
