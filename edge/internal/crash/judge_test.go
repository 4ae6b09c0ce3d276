package crash_test

import (
	"fmt"
	"strings"
	"testing"

	"fencepost/edge"
	"fencepost/edge/api"

	"github.com/stretchr/testify/require"
)

// evidence is all that is known at the end of a run: what the program says, and
// what was seen outside of it.
type evidence struct {
	acked      []sent          // the producers' ledger, each producer's in its order
	lost       []string        // what the node no longer knows of it
	deliveries []api.Delivery  // all of the database
	arrivals   []arrival       // the receiver's ledger, in order of arrival
	seen       []string        // rules that the receiver saw broken
	runs       []line          // the commands' ledgers, each target's in its order
	again      map[string]int  // how often a person asked for a key to run again
	ruled      map[string]bool // deliveries that a person decided
}

// Names of the handlers that the evidence is about.
const (
	hook = "hook" // webhook, idempotent
	once = "once" // command, once
	idem = "idem" // command, idempotent
)

// judge lists every promise that the evidence shows broken.
func (ev *evidence) judge() []string {
	j := &verdict{evidence: ev, byID: map[string]api.Delivery{}}
	for _, d := range ev.deliveries {
		j.byID[d.ID] = d
	}
	j.faults = append(append(j.faults, ev.lost...), ev.seen...)
	j.acknowledged()
	j.effects()
	j.webhooks()
	j.producersOrder()
	j.commands()
	return j.faults
}

type verdict struct {
	*evidence
	byID   map[string]api.Delivery
	faults []string
}

func (j *verdict) fault(format string, a ...any) {
	j.faults = append(j.faults, fmt.Sprintf(format, a...))
}

// acknowledged: each acknowledged event has its deliveries, and they are final.
func (j *verdict) acknowledged() {
	for _, e := range j.acked {
		if len(e.receipt.Deliveries) == 0 {
			j.fault("event %s has no deliveries", e.receipt.ID)
		}
		for _, ref := range e.receipt.Deliveries {
			d, ok := j.byID[ref.ID]
			switch {
			case !ok:
				j.fault("delivery %s of acknowledged event %s does not exist", ref.ID, e.receipt.ID)
			case !d.State.Final():
				j.fault("delivery %s is %s at the end", d.ID, d.State)
			case d.Event != e.receipt.ID:
				j.fault("delivery %s is of event %s, not of %s", d.ID, d.Event, e.receipt.ID)
			}
		}
	}
}

// effects are counted by idempotency key: each key that succeeded has one
// delivery that did, and no effect has a key that nobody handed in.
func (j *verdict) effects() {
	succeeded, known := map[string]int{}, map[string]bool{}
	for _, d := range j.deliveries {
		known[d.Key] = true
		if d.State == edge.Succeeded {
			succeeded[d.Key]++
		}
	}
	for key, n := range succeeded {
		if n > 1 {
			j.fault("key %s succeeded %d times", key, n)
		}
	}
	for _, a := range j.arrivals {
		if !known[a.key] {
			j.fault("the receiver saw key %s, which no delivery has", a.key)
		}
	}
	for _, l := range j.runs {
		if !known[l.Key] {
			j.fault("a command saw key %s, which no delivery has", l.Key)
		}
	}
}

// webhooks: each key arrived, first arrivals follow the line, fences grow.
func (j *verdict) webhooks() {
	arrived, answered := map[string]int{}, map[string]int{}
	first, fence := map[string]int64{}, map[string]int64{}
	for _, a := range j.arrivals {
		if a.fence <= fence[a.target] {
			j.fault("%s: fence %d after fence %d", a.target, a.fence, fence[a.target])
		}
		fence[a.target] = a.fence
		if arrived[a.key]++; arrived[a.key] == 1 {
			if n := numberOf(a.key); n < first[a.target] {
				j.fault("%s: key %d arrived first after key %d had", a.target, n, first[a.target])
			} else {
				first[a.target] = n
			}
		}
		if a.status/100 == 2 {
			answered[a.key]++
		}
	}
	for _, d := range j.deliveries {
		if handlerOf(d) == hook && d.State == edge.Succeeded && answered[d.Key] == 0 {
			j.fault("webhook %s succeeded, and the receiver never said so", d.ID)
		}
		if handlerOf(d) == hook && d.State.Final() && arrived[d.Key] == 0 {
			j.fault("webhook %s is %s and never arrived", d.ID, d.State)
		}
	}
}

// producersOrder: what one producer sent to one target, one after another,
// arrived first in that order. It uses none of the program's numbers.
func (j *verdict) producersOrder() {
	at := map[string]int{}
	for i, a := range j.arrivals {
		if _, ok := at[a.target+"|"+a.event]; !ok {
			at[a.target+"|"+a.event] = i
		}
	}
	last := map[string]int{}
	for _, e := range j.acked {
		target := hook + ":" + e.subject
		i, ok := at[target+"|"+e.id]
		if !ok {
			continue // of another handler
		}
		line := e.producer + "|" + target
		if before, ok := last[line]; ok && i < before {
			j.fault("%s: %s of %s overtook what was sent before it", target, e.id, e.producer)
		}
		last[line] = i
	}
}

// commands: once work starts once for each time that somebody asked for it,
// nothing of an earlier execution lives beside a later one, and lines and fences
// are kept.
func (j *verdict) commands() {
	started, ended := map[string]int{}, map[string]int{}
	first, fence := map[string]int64{}, map[string]int64{}
	for _, l := range j.runs {
		switch l.Kind {
		case "end":
			ended[l.Key]++
			continue
		case "start":
		default:
			continue
		}
		for _, who := range l.Alive {
			j.fault("%s: fence %d began beside %s", l.Target, l.Fence, who)
		}
		if l.Fence <= fence[l.Target] {
			j.fault("%s: a command had fence %d after fence %d", l.Target, l.Fence, fence[l.Target])
		}
		fence[l.Target] = l.Fence
		if started[l.Key]++; started[l.Key] == 1 {
			if n := numberOf(l.Key); n < first[l.Target] {
				j.fault("%s: key %d began first after key %d had", l.Target, n, first[l.Target])
			} else {
				first[l.Target] = n
			}
		}
	}
	for _, d := range j.deliveries {
		h := handlerOf(d)
		switch {
		case h == once && started[d.Key] > 1+j.again[d.Key]:
			j.fault("once work %s began %d times, and %d repeats were asked for", d.ID, started[d.Key], j.again[d.Key])
		case (h == once || h == idem) && d.State == edge.Succeeded && !j.ruled[d.ID] && ended[d.Key] == 0:
			j.fault("command %s succeeded, and it never said that it ended", d.ID)
		}
	}
}

func handlerOf(d api.Delivery) string {
	t, err := edge.ParseTarget(d.Target)
	if err != nil {
		return ""
	}
	return t.Handler
}

// sound is evidence in which nothing is wrong.
func sound() *evidence {
	ev := &evidence{again: map[string]int{"dlv-x-3": 1}, ruled: map[string]bool{}}
	add := func(n int, target string, s edge.State, key int) {
		id := fmt.Sprintf("dlv-x-%d", n)
		ev.deliveries = append(ev.deliveries, api.Delivery{
			ID: id, Target: target, State: s, Key: fmt.Sprintf("dlv-x-%d", key), Event: fmt.Sprintf("evt-x-%d", key),
		})
		if n == key {
			ev.acked = append(ev.acked, sent{
				id: fmt.Sprint("e", n), producer: "p", subject: "t", place: n,
				receipt: api.Receipt{ID: fmt.Sprintf("evt-x-%d", n), Deliveries: []api.DeliveryRef{{ID: id}}},
			})
		}
	}
	add(1, "hook:t", edge.Succeeded, 1)
	add(2, "hook:t", edge.Succeeded, 2)
	add(3, "once:t", edge.Failed, 3)
	add(4, "idem:t", edge.Succeeded, 4)
	add(5, "once:t", edge.Succeeded, 3)
	add(6, "once:t", edge.Succeeded, 6)
	for i, a := range []arrival{{key: "dlv-x-1", event: "e1"}, {key: "dlv-x-1", event: "e1", status: 200}, {key: "dlv-x-2", event: "e2", status: 200}} {
		a.target, a.fence = "hook:t", int64(i+1)
		ev.arrivals = append(ev.arrivals, a)
	}
	for i, l := range []line{
		{Kind: "start", Key: "dlv-x-3", Target: "once:t"}, {Kind: "start", Key: "dlv-x-3", Target: "once:t"}, {Kind: "end", Key: "dlv-x-3"},
		{Kind: "start", Key: "dlv-x-6", Target: "once:t"}, {Kind: "end", Key: "dlv-x-6"},
		{Kind: "start", Key: "dlv-x-4", Target: "idem:t"}, {Kind: "end", Key: "dlv-x-4"},
	} {
		l.Fence = int64(i + 10)
		ev.runs = append(ev.runs, l)
	}
	return ev
}

// TestTheJudgeSeesEachFault breaks sound evidence in one place after another: a
// rule that never finds anything proves nothing.
func TestTheJudgeSeesEachFault(t *testing.T) {
	t.Parallel()
	require.Empty(t, sound().judge())
	for want, spoil := range map[string]func(*evidence){
		"is lost":               func(ev *evidence) { ev.lost = []string{"event is lost"} },
		"were open at once":     func(ev *evidence) { ev.seen = []string{"they were open at once"} },
		"does not exist":        func(ev *evidence) { ev.deliveries = ev.deliveries[1:] },
		"has no deliveries":     func(ev *evidence) { ev.acked[0].receipt.Deliveries = nil },
		"is of event":           func(ev *evidence) { ev.deliveries[0].Event = "evt-x-9" },
		"is blocked at the end": func(ev *evidence) { ev.deliveries[2].State = edge.Blocked },
		"succeeded 2 times":     func(ev *evidence) { ev.deliveries[2].State = edge.Succeeded },
		"receiver saw key":      func(ev *evidence) { ev.arrivals[0].key = "dlv-x-9" },
		"command saw key":       func(ev *evidence) { ev.runs[0].Key = "dlv-x-9" },
		"fence 1 after fence 3": func(ev *evidence) { ev.arrivals[1].fence, ev.arrivals[0].fence = 1, 3 },
		"arrived first after":   func(ev *evidence) { ev.arrivals[0].key = "dlv-x-2" },
		"never said so":         func(ev *evidence) { ev.arrivals[2].status = 500 },
		"never arrived":         func(ev *evidence) { ev.arrivals = ev.arrivals[:2] },
		"overtook": func(ev *evidence) {
			ev.arrivals[0].event, ev.arrivals[1].event = "e2", "e2"
			ev.arrivals[2].event = "e1"
		},
		"began beside":                  func(ev *evidence) { ev.runs[3].Alive = []string{"start 1 of fence 1"} },
		"had fence 10 after fence 11":   func(ev *evidence) { ev.runs[0].Fence, ev.runs[1].Fence = 11, 10 },
		"began first after key":         func(ev *evidence) { ev.runs[0].Key = "dlv-x-6" },
		"began 2 times, and 0 repeats":  func(ev *evidence) { ev.again = nil },
		"never said that it ended":      func(ev *evidence) { ev.runs = ev.runs[:6] },
		"began 3 times, and 1 repeats ": func(ev *evidence) { ev.runs[3].Key = "dlv-x-3" },
	} {
		ev := sound()
		spoil(ev)
		found := false
		for _, f := range ev.judge() {
			found = found || strings.Contains(f, want)
		}
		require.True(t, found, "%q was not seen among %q", want, ev.judge())
	}
}
