package edgetest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
)

// expectedMoves is written by hand from the description of the state machine
// and not derived from [edge.Transitions]: every move out of each situation that
// a delivery can be in. What is not listed here must change nothing.
var expectedMoves = []expectedMove{
	{"held", "cancel", edge.Cancelled, 0, 0},
	{"held", "skip", edge.Cancelled, 0, 0},
	{"held", "expire", edge.Expired, 0, 0},

	{"pending", "claim", edge.Leased, 0, 0},
	{"pending", "claim_start", edge.Running, 0, 0},
	{"pending", "cancel", edge.Cancelled, 0, 0},
	{"pending", "expire", edge.Expired, 0, 0},
	{"pending, redriven", "claim", edge.Leased, 0, 0},
	{"pending, redriven", "claim_start", edge.Running, 0, 0},
	{"pending, redriven", "already_consumed", edge.Succeeded, 0, 0},
	{"pending, redriven", "cancel", edge.Cancelled, 0, 0},
	{"pending, waiting", "retry now", edge.Pending, 0, 0},
	{"pending, waiting", "cancel", edge.Cancelled, 0, 0},
	{"pending, waiting", "expire", edge.Expired, 0, 0},

	{"leased", "start", edge.Running, 0, 0},
	{"leased", "release retry", edge.Pending, 1, 0},
	{"leased", "release retry, budget spent", edge.Failed, 1, 0},
	{"leased", "release retry, too late", edge.Pending, 1, 0}, // never started: time has no start to count from
	{"leased", "release deferred", edge.Pending, 0, 0},
	{"leased", "release interrupted", edge.Pending, 0, 0},
	{"leased", "release blocked", edge.Blocked, 0, 0},
	{"leased", "cancel", edge.Cancelled, 0, 0},
	{"leased", "lease lost", edge.Pending, 0, 1},
	{"leased", "lease lost, losses spent", edge.Failed, 0, 1},
	{"leased, redriven", "start", edge.Running, 0, 0},
	{"leased, redriven", "already_consumed", edge.Succeeded, 0, 0},
	{"leased, redriven", "release retry", edge.Pending, 1, 0},
	{"leased, redriven", "release retry, budget spent", edge.Failed, 1, 0},
	{"leased, redriven", "release retry, too late", edge.Pending, 1, 0},
	{"leased, redriven", "release deferred", edge.Pending, 0, 0},
	{"leased, redriven", "release interrupted", edge.Pending, 0, 0},
	{"leased, redriven", "release blocked", edge.Blocked, 0, 0},
	{"leased, redriven", "cancel", edge.Cancelled, 0, 0},
	{"leased, redriven", "lease lost", edge.Pending, 0, 1},
	{"leased, redriven", "lease lost, losses spent", edge.Pending, 0, 1}, // its own budget: one of two

	{"running once", "settle succeeded", edge.Succeeded, 0, 0},
	{"running once", "settle failed", edge.Failed, 1, 0},
	{"running once", "settle retry", edge.Pending, 1, 0},
	{"running once", "settle retry, budget spent", edge.Failed, 1, 0},
	{"running once", "settle retry, too late", edge.Failed, 1, 0},
	{"running once", "settle deferred", edge.Pending, 0, 0},
	{"running once", "settle interrupted", edge.Blocked, 0, 0},
	{"running once", "settle blocked", edge.Blocked, 0, 0},
	{"running once", "settle indeterminate", edge.Blocked, 0, 0},
	{"running once", "settle indeterminate, budget spent", edge.Blocked, 0, 0},
	{"running once", "cancel", edge.Running, 0, 0},
	{"running once", "lease lost", edge.Blocked, 0, 1},
	{"running once", "lease lost, losses spent", edge.Blocked, 0, 1},

	{"running idempotent", "settle succeeded", edge.Succeeded, 0, 0},
	{"running idempotent", "settle failed", edge.Failed, 1, 0},
	{"running idempotent", "settle retry", edge.Pending, 1, 0},
	{"running idempotent", "settle retry, budget spent", edge.Failed, 1, 0},
	{"running idempotent", "settle retry, too late", edge.Failed, 1, 0},
	{"running idempotent", "settle deferred", edge.Pending, 0, 0},
	{"running idempotent", "settle interrupted", edge.Pending, 0, 0},
	{"running idempotent", "settle blocked", edge.Blocked, 0, 0},
	{"running idempotent", "settle indeterminate", edge.Pending, 1, 0},
	{"running idempotent", "settle indeterminate, budget spent", edge.Failed, 1, 0},
	{"running idempotent", "cancel", edge.Running, 0, 0},
	{"running idempotent", "lease lost", edge.Pending, 0, 1},
	{"running idempotent", "lease lost, losses spent", edge.Failed, 0, 1},

	{"running once, cancel asked", "settle succeeded", edge.Succeeded, 0, 0},
	{"running once, cancel asked", "settle failed", edge.Failed, 1, 0},
	{"running once, cancel asked", "settle retry", edge.Cancelled, 1, 0},
	{"running once, cancel asked", "settle retry, budget spent", edge.Cancelled, 1, 0},
	{"running once, cancel asked", "settle retry, too late", edge.Cancelled, 1, 0},
	{"running once, cancel asked", "settle deferred", edge.Cancelled, 0, 0},
	{"running once, cancel asked", "settle interrupted", edge.Blocked, 0, 0},
	{"running once, cancel asked", "settle blocked", edge.Blocked, 0, 0},
	{"running once, cancel asked", "settle indeterminate", edge.Blocked, 0, 0},
	{"running once, cancel asked", "settle indeterminate, budget spent", edge.Blocked, 0, 0},
	{"running once, cancel asked", "lease lost", edge.Blocked, 0, 1},
	{"running once, cancel asked", "lease lost, losses spent", edge.Blocked, 0, 1},

	{"running idempotent, cancel asked", "settle succeeded", edge.Succeeded, 0, 0},
	{"running idempotent, cancel asked", "settle failed", edge.Failed, 1, 0},
	{"running idempotent, cancel asked", "settle retry", edge.Cancelled, 1, 0},
	{"running idempotent, cancel asked", "settle retry, budget spent", edge.Cancelled, 1, 0},
	{"running idempotent, cancel asked", "settle retry, too late", edge.Cancelled, 1, 0},
	{"running idempotent, cancel asked", "settle deferred", edge.Cancelled, 0, 0},
	{"running idempotent, cancel asked", "settle interrupted", edge.Cancelled, 0, 0},
	{"running idempotent, cancel asked", "settle blocked", edge.Blocked, 0, 0},
	{"running idempotent, cancel asked", "settle indeterminate", edge.Cancelled, 1, 0},
	{"running idempotent, cancel asked", "settle indeterminate, budget spent", edge.Cancelled, 1, 0},
	{"running idempotent, cancel asked", "lease lost", edge.Cancelled, 0, 1},
	{"running idempotent, cancel asked", "lease lost, losses spent", edge.Cancelled, 0, 1},

	{"blocked, configuration", "reconfigure", edge.Pending, 0, 0},
	{"blocked, configuration", "resolve succeeded", edge.Succeeded, 0, 0},
	{"blocked, configuration", "resolve failed", edge.Failed, 0, 0},
	{"blocked, configuration", "resolve retry", edge.Failed, 0, 0},
	{"blocked, configuration", "skip", edge.Failed, 0, 0},

	// What would lead to pending leads to cancelled once that was asked for.
	{"blocked, configuration, cancel asked", "reconfigure", edge.Cancelled, 0, 0},
	{"blocked, configuration, cancel asked", "resolve succeeded", edge.Succeeded, 0, 0},
	{"blocked, configuration, cancel asked", "resolve failed", edge.Failed, 0, 0},
	{"blocked, configuration, cancel asked", "resolve retry", edge.Failed, 0, 0},
	{"blocked, configuration, cancel asked", "skip", edge.Failed, 0, 0},

	{"blocked, lost after start", "settle succeeded", edge.Succeeded, 0, 0},
	{"blocked, lost after start", "settle failed", edge.Failed, 1, 0},
	{"blocked, lost after start", "resolve succeeded", edge.Succeeded, 0, 0},
	{"blocked, lost after start", "resolve failed", edge.Failed, 0, 0},
	{"blocked, lost after start", "resolve retry", edge.Failed, 0, 0},
	{"blocked, lost after start", "skip", edge.Failed, 0, 0},

	{"blocked, outcome unknown", "resolve succeeded", edge.Succeeded, 0, 0},
	{"blocked, outcome unknown", "resolve failed", edge.Failed, 0, 0},
	{"blocked, outcome unknown", "resolve retry", edge.Failed, 0, 0},
	{"blocked, outcome unknown", "skip", edge.Failed, 0, 0},

	{"blocked, route error", "reroute", edge.Pending, 0, 0},
	{"blocked, route error", "resolve succeeded", edge.Succeeded, 0, 0},
	{"blocked, route error", "resolve failed", edge.Failed, 0, 0},

	{"succeeded", "redrive again", created, 0, 0},
	{"succeeded", "prune", gone, 0, 0},
	{"failed", "redrive", created, 0, 0},
	{"failed", "redrive again", created, 0, 0},
	{"failed", "prune", gone, 0, 0},
	{"cancelled", "redrive", created, 0, 0},
	{"cancelled", "redrive again", created, 0, 0},
	{"cancelled", "prune", gone, 0, 0},
	{"expired", "redrive", created, 0, 0},
	{"expired", "redrive again", created, 0, 0},
	{"expired", "prune", gone, 0, 0},
}

// expectedMove is one legal move: where it leads and what it charges.
type expectedMove struct {
	from, on         string
	to               edge.State
	attempts, losses int
}

// What a move may lead to besides a state.
const (
	created edge.State = "unchanged, with a new generation"
	gone    edge.State = "removed"
)

// Exhaustive tries every trigger in every situation of a delivery with the
// right, a stale and an absent token, and compares with a table that was
// written by hand. A refused trigger must change nothing.
func Exhaustive(t *testing.T, b Bench) {
	used := 0
	for _, s := range situations {
		legal := map[string]expectedMove{}
		for _, m := range expectedMoves {
			if m.from == s.name {
				legal[m.on] = m
				used++
			}
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			t.Run("refused", func(t *testing.T) { refusedHere(t, b, s, legal) })
			for on, m := range legal {
				t.Run(on, func(t *testing.T) { movesHere(t, b, s, m) })
			}
		})
	}
	require.Equal(t, len(expectedMoves), used, "a row of the table names a situation that is not there")
}

// movesHere makes one legal move on a store of its own.
func movesHere(t *testing.T, b Bench, s situation, m expectedMove) {
	r := newRig(t, b)
	sub := s.make(r)
	tr := triggerNamed(t, m.on)
	if tr.arm != nil {
		tr.arm(r, sub)
	}
	before := r.look(sub.id)
	require.NoError(t, tr.do(r, sub, sub.right()))
	if m.to == gone {
		_, err := r.s.Delivery(r.ctx, sub.id)
		require.ErrorIs(t, err, edge.ErrNotFound)
		r.check()
		return
	}
	after := r.look(sub.id)
	newer := r.newer(sub.id)
	if m.to == created {
		require.Equal(t, before.Delivery, after.Delivery, "a final delivery changed")
		require.NotZero(t, newer, "no new generation")
		r.check()
		return
	}
	require.Equal(t, m.on == "resolve retry", newer != 0, "a new generation")
	require.Equal(t, m.to, after.State)
	require.Equal(t, before.Attempts+m.attempts, after.Attempts, "attempts charged")
	require.Equal(t, before.Losses+m.losses, after.Losses, "losses charged")
	require.Greater(t, after.Version, before.Version, "version")
	require.Equal(t, m.to.Final(), after.FinishedMS != 0, "finished")
	if m.to == edge.Pending && m.on != "reconfigure" && m.on != "reroute" && m.on != "retry now" && !strings.HasPrefix(m.on, "lease lost") {
		require.Greater(t, after.DueMS, r.clock.NowMS(), "due")
	}
	r.check()
}

// refusedHere tries all that must change nothing, one after the other on the
// same delivery; what moves the clock or needs preparation on one of its own.
func refusedHere(t *testing.T, b Bench, s situation, legal map[string]expectedMove) {
	r := newRig(t, b)
	sub := s.make(r)
	for _, tr := range triggers {
		for _, k := range tr.tokens(sub) {
			if _, ok := legal[tr.name]; ok && k.kind == rightToken {
				continue
			}
			at, subject := r, sub
			if tr.arm != nil {
				at = newRig(t, b)
				subject = s.make(at)
				tr.arm(at, subject)
				k = subject.token(k.kind)
			}
			refused(t, at, subject, tr, k)
			if at != r {
				at.check()
			}
		}
	}
	r.check()
}

func refused(t *testing.T, r *rig, sub subject, tr trigger, k key) {
	t.Helper()
	what := fmt.Sprintf("%s with the %s token", tr.name, k.kind)
	before := r.look(sub.id)
	err := tr.do(r, sub, k)
	after := r.look(sub.id)
	require.Equal(t, before, after, what)
	working := before.State == edge.Leased || before.State == edge.Running
	switch {
	case tr.quiet != nil && tr.quiet(before.Delivery, k.kind):
		require.NoError(t, err, what)
	case tr.fenced && k.execution == 0:
		require.ErrorIs(t, err, edge.ErrNotFound, what)
	case tr.fenced && working && k.kind != rightToken:
		require.ErrorIs(t, err, edge.ErrLeaseLost, what)
	case tr.fenced && working:
		require.ErrorIs(t, err, edge.ErrConflict, what)
	case tr.fenced:
		require.True(t, errors.Is(err, edge.ErrLeaseLost) || errors.Is(err, edge.ErrConflict), "%s: %v", what, err)
	default:
		require.ErrorIs(t, err, edge.ErrConflict, what)
	}
}

// sight is all that a refused trigger must not change.
type sight struct {
	edge.Delivery
	executions []edge.Execution
	target     edge.TargetInfo
	lease      edge.Lease
	newer      edge.DeliveryID
}

func (r *rig) look(id edge.DeliveryID) sight {
	r.t.Helper()
	f, err := r.s.Facts(r.ctx, id)
	require.NoError(r.t, err)
	v := sight{Delivery: f.Delivery, target: f.Target, newer: f.Newer}
	v.executions, err = r.s.Executions(r.ctx, id)
	require.NoError(r.t, err)
	for i := range v.executions {
		v.executions[i].LateOutcome = "" // a lost settle leaves its trace
	}
	v.target.Version = 0
	if f.Lease != nil {
		v.lease = *f.Lease
		v.lease.ExpiresMS = 0 // renewing moves it
	}
	return v
}

func (r *rig) newer(id edge.DeliveryID) edge.DeliveryID {
	r.t.Helper()
	f, err := r.s.Facts(r.ctx, id)
	require.NoError(r.t, err)
	return f.Newer
}

func triggerNamed(t *testing.T, name string) trigger {
	t.Helper()
	for _, tr := range triggers {
		if tr.name == name {
			return tr
		}
	}
	require.Failf(t, "no such trigger", "%q", name)
	return trigger{}
}

// situationTTL is how long after accept a subject of expire lives.
const situationTTL = 24 * time.Hour
