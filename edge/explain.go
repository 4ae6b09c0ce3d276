package edge

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Explain says in plain sentences, one a line, why a delivery is where it is,
// what happens next and what a person can do. nowMS is the time of the facts,
// milliseconds UTC. Times in the text are UTC.
func Explain(f Facts, nowMS int64) string {
	x := &explainer{f: f, now: nowMS}
	d := f.Delivery
	why := inBrackets(d.Code)
	if d.State == Leased || d.State == Running {
		why = "" // the code is of the execution before
	}
	x.say("Delivery %d of event %d to %s is %s%s.", d.ID, d.Event, d.Target, d.State, why)
	switch d.State {
	case Held:
		x.held()
	case Pending:
		x.pending()
	case Leased:
		x.leased()
	case Running:
		x.running()
	case Blocked:
		x.blocked()
	default:
		x.final()
	}
	x.expiry()
	x.last()
	return x.b.String()
}

type explainer struct {
	b   strings.Builder
	f   Facts
	now int64
}

func (x *explainer) say(format string, a ...any) {
	fmt.Fprintf(&x.b, format+"\n", a...)
}

func (x *explainer) held() {
	x.say("It waits for people to agree, and for nothing else. A worker takes it after consent.")
	if x.f.Delivery.Ordered {
		x.say("Until then it holds up the line of its target.")
	}
	x.say("To call it off: fencepost cancel %d", x.f.Delivery.ID)
}

func (x *explainer) pending() {
	d, reasons := x.f.Delivery, x.b.Len()
	x.hold()
	x.gate()
	x.endpoint()
	x.line()
	if d.DueMS > x.now {
		switch {
		case d.Attempts+d.Losses > 0:
			x.say("It has been tried (%d charged, %d lost); the next attempt is due at %s.", d.Attempts, d.Losses, x.at(d.DueMS))
		default:
			x.say("It is due at %s.", x.at(d.DueMS))
		}
		x.say("To try it now: fencepost retry-now %d", d.ID)
	}
	x.slots()
	if x.b.Len() == reasons {
		x.say("Nothing stops it: it is taken as soon as a worker is free (%d deliveries of handler %s run now).", x.f.Held, d.Target.Handler)
	}
	if d.CancelMS != 0 {
		x.say("Cancelling was asked for at %s.", x.at(d.CancelMS))
		return
	}
	x.say("To call it off: fencepost cancel %d", d.ID)
}

// hold tells that the whole node stands still.
func (x *explainer) hold() {
	l := x.f.OnHold
	if l == nil {
		return
	}
	x.say("The node is on hold since %s, so nothing is taken: %s.", x.at(l.FoundMS), l.Detail)
	if l.Lost && l.AcceptedMS == 0 {
		x.say("To go on without what was lost: fencepost accept-loss --reason TEXT, then fencepost resume --reason TEXT")
		return
	}
	x.say("To go on: fencepost resume --reason TEXT")
}

// gate tells what the handler's gate has to do with it.
func (x *explainer) gate() {
	h := x.f.Handler
	name := x.f.Delivery.Target.Handler
	switch h.Gate {
	case GateOff:
		x.say("The gate of handler %s is off%s, so nothing of it is taken.", name, inBrackets(h.GateCode))
		x.say("To open it: fencepost handler resume %s", name)
	case GateMissing:
		x.say("No running configuration names handler %s. The delivery waits, uncharged, and runs when the handler comes back: add it to the configuration, then: fencepost reload", name)
	case GatePaused:
		if h.ResumeMS > x.now {
			x.say("Handler %s is paused%s until %s; it goes on by itself then.", name, inBrackets(h.GateCode), x.at(h.ResumeMS))
			x.say("To open it now: fencepost handler resume %s", name)
		}
	}
}

// endpoint tells what the handler's other side and the way there have to do with
// it.
func (x *explainer) endpoint() {
	h, u, name := x.f.Handler, x.f.Uplink, x.f.Delivery.Target.Handler
	if u.DownMS != 0 {
		x.say("The uplink %s of handler %s is down since %s%s: nothing is attempted and nothing is charged. It goes on by itself when the uplink is back.",
			u.Name, name, x.at(u.DownMS), asDetail(u.Detail))
	}
	if e := h.Episode; e.BeganMS != 0 {
		x.say("Handler %s has been failing since %s (%d failures in a row, %s); until a delivery succeeds, one at a time is tried.", name, x.at(e.BeganMS), e.Failures, e.Code)
	}
	if h.RateReadyMS > x.now && x.f.Delivery.DueMS <= h.RateReadyMS {
		x.say("Handler %s waits for its rate limit (one every %s, at most %d at once) until %s.", name, h.Rate.Interval, h.Rate.Burst, x.at(h.RateReadyMS))
	}
}

func asDetail(s string) string {
	if s == "" {
		return ""
	}
	return " (" + strconv.Quote(scrub(s, maxTextBytes)) + ")"
}

// line tells what a strict line has to do with it: its own, or the one that its
// target kept before the ordering was changed.
func (x *explainer) line() {
	d, t := x.f.Delivery, x.f.Target
	if t.Stall == StallHalted {
		x.say("Its target is halted since delivery %d failed; the handler asked for that.", t.Stalled)
		x.say("To try that one again, in its place: fencepost redrive %d", t.Stalled)
		x.say("To go on without it: fencepost target resume %s", quote(d.Target))
	}
	if x.f.Ahead == 0 {
		return
	}
	if d.Ordered {
		x.say("The target keeps strict order and %s of this one.", ahead(x.f.Ahead))
	} else {
		x.say("The ordering of handler %s was changed and %s of this one in the order of before; it is taken when those are done.", d.Target.Handler, ahead(x.f.Ahead))
	}
	head := x.f.Head
	if head == nil {
		return
	}
	switch head.State {
	case Held:
		x.say("The head of the line, delivery %d, waits for consent.", head.ID)
		x.say("To let the line go past it: fencepost target skip %s --version %d --reason %s", quote(d.Target), head.Version, sayWhy)
	case Blocked:
		x.say("The head of the line, delivery %d, is blocked%s and waits for a person.", head.ID, inBrackets(head.Code))
		x.decide(head)
	case Pending:
		if head.DueMS > x.now {
			x.say("The head of the line, delivery %d, is next tried at %s.", head.ID, x.at(head.DueMS))
		} else {
			x.say("The head of the line, delivery %d, is next.", head.ID)
		}
	default:
		x.say("The head of the line, delivery %d, is %s.", head.ID, head.State)
	}
	x.say("To see why: fencepost explain %d", head.ID)
}

func ahead(n int) string {
	switch {
	case n == 1:
		return "1 delivery is ahead"
	case n >= 1000:
		return "1000 or more deliveries are ahead"
	}
	return strconv.Itoa(n) + " deliveries are ahead"
}

// slots tells of a target whose slots are all leased.
func (x *explainer) slots() {
	t := x.f.Target
	if t.Slots == 0 || t.Busy < t.Slots || x.f.Ahead > 0 {
		return
	}
	if l := x.f.Lease; l != nil && l.Delivery == 0 {
		x.say("Other code works on the target (execution %d of owner %s) and gives it back by %s unless it renews.", l.Execution, l.Owner, x.at(l.ExpiresMS))
		return
	}
	x.say("All slots of the target are at work (%d of %d); it is taken when one is free.", t.Busy, t.Slots)
}

func (x *explainer) leased() {
	x.say("A worker has claimed it and asks the handler whether it could work; its effect has not begun.")
	x.lease()
	x.say("If that owner dies, it is pending again at once after the restart.")
	x.say("To call it off: fencepost cancel %d", x.f.Delivery.ID)
}

func (x *explainer) running() {
	d := x.f.Delivery
	if e := x.f.Last; e != nil && e.StartedMS != 0 {
		x.say("Its handler was called at %s, as attempt %d, fence %d.", x.at(e.StartedMS), e.Attempt, e.ID)
	}
	x.lease()
	if e := x.f.Last; e != nil && e.Effect != Idempotent && e.Effect != Transactional {
		x.say("If that owner dies, nobody can know whether the effect happened: it is then blocked and waits for a person.")
	} else {
		x.say("If that owner dies, it is tried again with the same idempotency key.")
	}
	if d.CancelMS != 0 {
		x.say("Cancelling was asked for at %s; what the handler answers decides.", x.at(d.CancelMS))
		return
	}
	x.say("To ask its handler to stop: fencepost cancel %d", d.ID)
	if e := x.f.Last; e != nil && e.Effect != Idempotent && e.Effect != Transactional {
		x.say("Mind that its effect must not be repeated: if the handler is cut, it is blocked and waits for a person.")
	}
}

// lease tells who holds the lease and until when.
func (x *explainer) lease() {
	l := x.f.Lease
	if l == nil {
		return
	}
	x.say("Owner %s holds the lease until %s, and renews it while it lives.", l.Owner, x.at(l.ExpiresMS))
	if l.ExpiresMS <= x.now {
		x.say("That time has passed: the owner is stalled or dead. Recovery takes the lease when the owner is proven dead or has been silent for a full lease.")
	}
}

func (x *explainer) blocked() {
	d := x.f.Delivery
	switch d.Code {
	case CodeRouteError:
		x.say("Its route %s failed on the event, so it has no target yet%s.", d.Route, x.routeFault())
		x.say("It is tried again when the route or its handler is mended: correct it, then: fencepost reload")
		x.say("To decide it without, one of these, with your own reason in it.")
		x.choices(&d, choices[:2])
		return
	case CodeOutcomeUnknown, CodeLostAfterStart:
		x.say("Its handler was called and nobody knows whether the effect happened%s.", x.detail())
		x.say("The effect must not be repeated blindly, so nothing happens until a person who has looked says what did.")
	default:
		x.say("Nothing had begun: it waits for the configuration of handler %s to change%s.", d.Target.Handler, x.detail())
		x.say("It is pending again when the configuration is read again: put right what is missing, then: fencepost reload")
	}
	if d.Ordered {
		x.say("Until then it holds up the line of its target.")
	}
	x.decide(&d)
}

func (x *explainer) routeFault() string {
	if x.f.Fault == "" {
		return ""
	}
	return ": " + strconv.Quote(scrub(x.f.Fault, maxTextBytes))
}

// sayWhy stands for the reason in a command that is to be pasted.
const sayWhy = "'say why'"

// choices are the decisions on a blocked delivery.
var choices = [...]struct {
	as   ResolveAs
	when string
}{
	{ResolveSucceeded, "If it happened"},
	{ResolveFailed, "If it did not happen, or is given up"},
	{ResolveRetry, "If it did not happen, and is to be tried again in its place"},
}

// decide lists the decisions as commands, each whole and on a line of its own.
func (x *explainer) decide(d *Delivery) {
	x.say("To decide it, one of these, with your own reason in it.")
	x.choices(d, choices[:])
}

func (x *explainer) choices(d *Delivery, which []struct {
	as   ResolveAs
	when string
}) {
	for _, c := range which {
		x.say("%s:\n    fencepost resolve %d --as %s --version %d --reason %s", c.when, d.ID, c.as, d.Version, sayWhy)
	}
}

func (x *explainer) detail() string {
	if e := x.f.Last; e != nil && e.Detail != "" {
		return ": " + strconv.Quote(scrub(e.Detail, maxTextBytes))
	}
	return ""
}

func (x *explainer) final() {
	d := x.f.Delivery
	if d.FinishedMS != 0 {
		x.say("It has been final since %s and never changes again.", x.at(d.FinishedMS))
	}
	x.because()
	if r := x.f.Decision; r != nil {
		x.say("It was resolved as %s by %s: %s", r.As, strconv.Quote(scrub(r.By, maxTextBytes)), strconv.Quote(scrub(r.Reason, maxTextBytes)))
	}
	if x.f.Newer != 0 {
		x.say("Delivery %d was made of it and goes on in its stead: fencepost explain %d", x.f.Newer, x.f.Newer)
		return
	}
	switch d.State {
	case Succeeded:
		x.say("To make the effect happen again: fencepost redrive %d --again", d.ID)
	case Failed:
		if t := x.f.Target; t.Stall == StallHalted && t.Stalled == d.ID {
			x.say("It halts the line of its target. To let the line go on without it: fencepost target resume %s", quote(d.Target))
		}
		fallthrough
	default:
		x.say("To try it again: fencepost redrive %d", d.ID)
	}
}

// because says what ended a delivery whose execution did not.
func (x *explainer) because() {
	d, e := x.f.Delivery, x.f.Last
	switch {
	case d.State == Expired && d.Code == CodeDroppedBacklog:
		x.say("It was dropped to make room for newer events: what waits had reached its bound (storage.max_backlog_bytes), and the configuration says drop_oldest.")
	case d.State == Expired && d.ExpiresMS != 0:
		x.say("Nothing had claimed it by its deadline, %s.", x.at(d.ExpiresMS))
	case d.State == Failed && d.Code == CodeBudgetExhausted:
		x.say("It was lost too often while it was worked on (%d times), so it was given up.", d.Losses)
	case d.State == Failed && x.f.Decision == nil && e != nil && (e.Outcome == OutcomeRetry || e.Outcome == OutcomeIndeterminate):
		x.say("It was tried %s, and the policy of its handler allows no more, by count or by time, so it was given up.", times(d.Attempts))
	}
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return strconv.Itoa(n) + " times"
}

// expiry tells of a deadline that is still ahead, and of a doubted clock.
func (x *explainer) expiry() {
	d := x.f.Delivery
	if d.ExpiresMS != 0 && (d.State == Held || d.State == Pending) {
		x.say("It expires at %s unless it was claimed by then.", x.at(d.ExpiresMS))
	}
	if x.f.Doubted && !d.State.Final() {
		x.say("The clock of this host is doubted: nothing expires or is given up by time until it is right.")
		x.say("If it is right: fencepost clock confirm")
	}
}

// last tells of the latest execution that has ended.
func (x *explainer) last() {
	e := x.f.Last
	if e == nil || e.EndedMS == 0 {
		return
	}
	text := x.detail()
	if x.f.Delivery.State == Blocked {
		text = "" // told already
	}
	x.say("The latest execution, %d, ended at %s as %s%s%s.", e.ID, x.at(e.EndedMS), e.Outcome, inBrackets(e.Code), text)
	if e.LateOutcome != "" {
		x.say("After its lease was gone its handler answered: %s.", e.LateOutcome)
	}
}

// at is a time with its distance from now.
func (x *explainer) at(ms int64) string {
	t := time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
	d := (time.Duration(ms-x.now) * time.Millisecond).Round(time.Millisecond)
	if d.Abs() >= time.Minute {
		d = d.Round(time.Second)
	}
	switch {
	case d > 0:
		return fmt.Sprintf("%s (in %s)", t, d)
	case d < 0:
		return fmt.Sprintf("%s (%s ago)", t, -d)
	}
	return t + " (now)"
}

func inBrackets(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}

// quote writes a target so that a shell takes it as one plain word.
func quote(t Target) string {
	return "'" + strings.ReplaceAll(t.String(), "'", `'\''`) + "'"
}
