//go:build power && linux && amd64

package crash_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"fencepost/edge"

	"github.com/stretchr/testify/require"
)

// outcome is what a series of power cuts did.
type outcome struct {
	cuts, early int // early: before the node had verified what was left
	acked       int
	verified    []report
	lost        map[string]bool
	inTurn      int   // cuts after which something was lost
	oldest      int64 // ms between the oldest lost acknowledgement and the last one before its cut
	known       int
	blocked     int
}

// cutPower cuts a machine's power again and again while it works, and looks each
// time what is left.
func cutPower(t *testing.T, durability string, cuts int) outcome {
	t.Helper()
	rng := seeded(t)
	m := newMachine(t)
	o := outcome{lost: map[string]bool{}}
	var all, recent []stream
	var last []ackTime
	see := func() {
		m.await("the machine has verified what was left", func() bool { return len(m.p.said("verified")) > 0 })
		r := m.p.said("verified")[0]
		o.verified, o.known = append(o.verified, r), o.known+r.Known
		o.blocked += r.Blocked
		if len(r.Lost) > 0 {
			o.inTurn++
		}
		for _, id := range r.Lost {
			o.lost[id] = true
			if i := slices.IndexFunc(last, func(a ackTime) bool { return a.id == id }); i >= 0 {
				o.oldest = max(o.oldest, last[len(last)-1].ms-last[i].ms)
			}
		}
	}
	for k := 1; k <= cuts; k++ {
		p := m.boot(order{Boot: k, Durability: durability, Verify: recent, Run: true})
		if k > 1 && rng.IntN(6) == 0 {
			m.await("the machine has booted", func() bool { return len(p.said("booted")) > 0 })
			if !within(p.done, time.Duration(rng.IntN(4000))*time.Millisecond) && len(p.said("verified")) == 0 {
				m.cut()
				o.cuts, o.early = o.cuts+1, o.early+1
				continue // recent is what must be known at the next boot still
			}
		}
		see()
		enough := 20 + rng.IntN(100)
		m.await("events are acknowledged", func() bool { return p.count() >= enough })
		within(p.done, time.Duration(rng.IntN(1500))*time.Millisecond)
		m.cut()
		o.cuts++
		recent, last = nil, p.ackMS
		for _, s := range p.acked {
			recent, o.acked = append(recent, s), o.acked+s.N
		}
		all = append(all, recent...)
	}
	m.boot(order{Boot: cuts + 1, Durability: durability, Verify: recent})
	see()
	m.await("the machine is off", func() bool { return len(m.p.said("off")) > 0 })
	<-m.p.done
	m.boot(order{Boot: cuts + 2, Durability: durability, Verify: all})
	see()
	m.await("the machine is off", func() bool { return len(m.p.said("off")) > 0 })
	<-m.p.done
	return o
}

// sound is what must hold whatever the durability.
func (o outcome) sound(t *testing.T) {
	t.Helper()
	for _, r := range o.verified {
		require.Empty(t, r.Violations)
		require.Empty(t, r.Twice, "once work began again")
		for _, l := range r.Losses {
			require.False(t, l.Hold, "%+v", l)
		}
	}
	end := o.verified[len(o.verified)-1]
	require.Zero(t, end.Open, "deliveries are left that nothing moves")
	require.Empty(t, end.Lost, "what was posted again is there")
	require.Positive(t, end.Began, "no once work began")
}

func (o outcome) String() string {
	end := o.verified[len(o.verified)-1]
	kinds := map[edge.LossKind]int{}
	for _, l := range end.Losses {
		kinds[l.Kind]++
	}
	return fmt.Sprintf("%d cuts (%d before the node had verified), %d events acknowledged, %d of them lost in %d cuts, the oldest acknowledged %d ms before the last one; recorded losses %v; once work began %d times, 0 of it twice, %d decided by a person",
		o.cuts, o.early, o.acked, len(o.lost), o.inTurn, o.oldest, kinds, end.Began, o.blocked)
}

// TestP2_PowerCuts cuts the power of a machine that works: what was
// acknowledged is known afterwards, everything is sound, once work that began
// does not begin again, and nothing is reported lost.
func TestP2_PowerCuts(t *testing.T) {
	t.Parallel()
	o := cutPower(t, "full", number(t, "FENCEPOST_CUTS", 5))
	t.Logf("power cuts, durability full: %s (promised 0 lost)", o)
	o.sound(t)
	require.Empty(t, o.lost)
	require.Empty(t, o.verified[len(o.verified)-1].Losses, "a loss was reported and nothing was lost")
	require.Greater(t, o.cuts, o.early, "no cut hit a node at work")
}

// TestControl_NormalLosesItsWindow shows that the cuts take what was not synced:
// durability "normal" loses acknowledged events, within its window, and goes on.
func TestControl_NormalLosesItsWindow(t *testing.T) {
	t.Parallel()
	o := cutPower(t, "normal", number(t, "FENCEPOST_NORMAL_CUTS", 4))
	t.Logf("power cuts, durability normal: %s (promised: at most the last second)", o)
	o.sound(t)
	require.NotEmpty(t, o.lost, "the cuts took nothing: they prove nothing")
	recorded := o.verified[len(o.verified)-1].Losses
	require.GreaterOrEqual(t, len(recorded), o.inTurn, "a loss was not recorded")
	for _, l := range recorded {
		require.Equal(t, edge.LossWindow, l.Kind, "%+v", l)
	}
}
