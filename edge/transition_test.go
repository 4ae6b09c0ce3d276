package edge_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
)

// The expectations here are written by hand from the design's table.
func TestJudge(t *testing.T) {
	t.Parallel()
	const now = 1_000_000
	once := edge.Situation{Effect: edge.Once, NowMS: now, Attempts: 1, Losses: 2, MaxAttempts: 5, DelayMS: 4000, FirstStartMS: now - 60_000, Code: "why"}
	idem := once
	idem.Effect = edge.Idempotent
	with := func(s edge.Situation, f func(*edge.Situation)) edge.Situation { f(&s); return s }
	cancel := func(s *edge.Situation) { s.Cancel = true }
	spent := func(s *edge.Situation) { s.Attempts = 4 }
	late := func(s *edge.Situation) { s.GiveUpAfterMS = 63_999 }
	inTime := func(s *edge.Situation) { s.GiveUpAfterMS = 64_000 }
	for _, tc := range []struct {
		name string
		on   edge.Trigger
		s    edge.Situation
		want edge.Verdict
	}{
		{"succeeded", edge.OnSettleSucceeded, once, edge.Verdict{To: edge.Succeeded, Code: "why", Attempts: 1, Losses: 2}},
		{"succeeded though cancel was asked", edge.OnSettleSucceeded, with(once, cancel), edge.Verdict{To: edge.Succeeded, Code: "why", Attempts: 1, Losses: 2}},
		{"failed", edge.OnSettleFailed, once, edge.Verdict{To: edge.Failed, Code: "why", Attempts: 2, Losses: 2}},
		{"retry", edge.OnSettleRetry, once, edge.Verdict{To: edge.Pending, Code: "why", DueMS: now + 4000, Attempts: 2, Losses: 2}},
		{"retry spent", edge.OnSettleRetry, with(once, spent), edge.Verdict{To: edge.Failed, Code: "why", Attempts: 5, Losses: 2}},
		{"retry cancelled", edge.OnSettleRetry, with(once, cancel), edge.Verdict{To: edge.Cancelled, Code: "cancelled", Attempts: 2, Losses: 2}},
		{"retry spent and cancelled", edge.OnSettleRetry, with(with(once, spent), cancel), edge.Verdict{To: edge.Cancelled, Code: "cancelled", Attempts: 5, Losses: 2}},
		{"retry after give up", edge.OnSettleRetry, with(idem, late), edge.Verdict{To: edge.Failed, Code: "why", Attempts: 2, Losses: 2}},
		{"retry exactly at give up", edge.OnSettleRetry, with(idem, inTime), edge.Verdict{To: edge.Pending, Code: "why", DueMS: now + 4000, Attempts: 2, Losses: 2}},
		{"retry with doubted clock", edge.OnSettleRetry, with(with(idem, late), func(s *edge.Situation) { s.ClockDoubted = true }), edge.Verdict{To: edge.Pending, Code: "why", DueMS: now + 4000, Attempts: 2, Losses: 2}},
		{"retry is never in the past", edge.OnSettleRetry, with(idem, func(s *edge.Situation) { s.DelayMS = -5 }), edge.Verdict{To: edge.Pending, Code: "why", DueMS: now + 1, Attempts: 2, Losses: 2}},
		{"deferred", edge.OnSettleDeferred, once, edge.Verdict{To: edge.Pending, Code: "why", DueMS: now + 4000, Attempts: 1, Losses: 2}},
		{"deferred too soon", edge.OnSettleDeferred, with(once, func(s *edge.Situation) { s.DelayMS = 1 }), edge.Verdict{To: edge.Pending, Code: "why", DueMS: now + 1000, Attempts: 1, Losses: 2}},
		{"deferred cancelled", edge.OnSettleDeferred, with(once, cancel), edge.Verdict{To: edge.Cancelled, Code: "cancelled", Attempts: 1, Losses: 2}},
		{"interrupted once", edge.OnSettleInterrupted, once, edge.Verdict{To: edge.Blocked, Code: "outcome_unknown", Attempts: 1, Losses: 2}},
		{"interrupted once, cancelled", edge.OnSettleInterrupted, with(once, cancel), edge.Verdict{To: edge.Blocked, Code: "outcome_unknown", Attempts: 1, Losses: 2}},
		{"interrupted idempotent", edge.OnSettleInterrupted, idem, edge.Verdict{To: edge.Pending, Code: "why", DueMS: now + 1000, Attempts: 1, Losses: 2}},
		{"interrupted idempotent, cancelled", edge.OnSettleInterrupted, with(idem, cancel), edge.Verdict{To: edge.Cancelled, Code: "cancelled", Attempts: 1, Losses: 2}},
		{"blocked", edge.OnSettleBlocked, once, edge.Verdict{To: edge.Blocked, Code: "why", Attempts: 1, Losses: 2}},
		{"indeterminate once", edge.OnSettleIndeterminate, once, edge.Verdict{To: edge.Blocked, Code: "outcome_unknown", Attempts: 1, Losses: 2}},
		{"indeterminate undeclared", edge.OnSettleIndeterminate, with(once, func(s *edge.Situation) { s.Effect = "" }), edge.Verdict{To: edge.Blocked, Code: "outcome_unknown", Attempts: 1, Losses: 2}},
		{"indeterminate idempotent", edge.OnSettleIndeterminate, idem, edge.Verdict{To: edge.Pending, Code: "why", DueMS: now + 4000, Attempts: 2, Losses: 2}},
		{"indeterminate idempotent, spent", edge.OnSettleIndeterminate, with(idem, spent), edge.Verdict{To: edge.Failed, Code: "why", Attempts: 5, Losses: 2}},
		{"release retry", edge.OnReleaseRetry, once, edge.Verdict{To: edge.Pending, Code: "why", DueMS: now + 4000, Attempts: 2, Losses: 2}},
		{"release retry spent", edge.OnReleaseRetry, with(once, spent), edge.Verdict{To: edge.Failed, Code: "why", Attempts: 5, Losses: 2}},
		{"release defer", edge.OnReleaseDefer, once, edge.Verdict{To: edge.Pending, Code: "why", DueMS: now + 4000, Attempts: 1, Losses: 2}},
		{"release interrupt", edge.OnReleaseInterrupt, once, edge.Verdict{To: edge.Pending, Code: "why", DueMS: now + 4000, Attempts: 1, Losses: 2}},
		{"release block", edge.OnReleaseBlock, once, edge.Verdict{To: edge.Blocked, Code: "why", Attempts: 1, Losses: 2}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, edge.Judge(tc.on, tc.s))
		})
	}
}

func TestJudgeLoss(t *testing.T) {
	t.Parallel()
	const now = 5000
	for _, tc := range []struct {
		name    string
		started bool
		s       edge.Situation
		want    edge.Verdict
	}{
		{"not started", false, edge.Situation{Effect: edge.Once, NowMS: now, Attempts: 3}, edge.Verdict{To: edge.Pending, Code: "lease_lost", DueMS: now, Attempts: 3, Losses: 1}},
		{"started once", true, edge.Situation{Effect: edge.Once, NowMS: now}, edge.Verdict{To: edge.Blocked, Code: "lost_after_start", Losses: 1}},
		{"started once, cancelled, spent", true, edge.Situation{Effect: edge.Once, NowMS: now, Cancel: true, Losses: 9}, edge.Verdict{To: edge.Blocked, Code: "lost_after_start", Losses: 10}},
		{"started undeclared", true, edge.Situation{NowMS: now}, edge.Verdict{To: edge.Blocked, Code: "lost_after_start", Losses: 1}},
		{"started idempotent", true, edge.Situation{Effect: edge.Idempotent, NowMS: now, Losses: 8}, edge.Verdict{To: edge.Pending, Code: "lease_lost", DueMS: now, Losses: 9}},
		{"started transactional, spent", true, edge.Situation{Effect: edge.Transactional, NowMS: now, Losses: 9}, edge.Verdict{To: edge.Failed, Code: "attempt_budget_exhausted", Losses: 10}},
		{"budget of its own", false, edge.Situation{Effect: edge.Once, NowMS: now, Losses: 1, MaxLosses: 2}, edge.Verdict{To: edge.Failed, Code: "attempt_budget_exhausted", Losses: 2}},
		{"cancelled", true, edge.Situation{Effect: edge.Idempotent, NowMS: now, Cancel: true, Losses: 9}, edge.Verdict{To: edge.Cancelled, Code: "cancelled", Losses: 10}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, edge.JudgeLoss(tc.started, tc.s))
		})
	}
}

func TestTransitionsAreSound(t *testing.T) {
	t.Parallel()
	for _, tr := range edge.Transitions {
		require.NotEmpty(t, tr.Meaning, "%s %s", tr.From, tr.On)
		if tr.From.Final() {
			require.Equal(t, edge.OnPrune, tr.On, "a final delivery never changes again")
		}
	}
	require.True(t, edge.Legal(edge.Leased, edge.OnStart))
	require.False(t, edge.Legal(edge.Pending, edge.OnStart))
	require.False(t, edge.Legal(edge.Running, edge.OnExpire))
	require.False(t, edge.Legal(edge.Blocked, edge.OnCancel), "a blocked delivery is resolved, not cancelled")
}

var update = flag.Bool("update", false, "rewrite the drawing in doc.go")

func TestDrawingIsTheOneInThePackageComment(t *testing.T) {
	t.Parallel()
	var want strings.Builder
	for line := range strings.Lines(edge.Drawing()) {
		want.WriteString("//\t" + line)
	}
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	if *update {
		before, rest, ok := strings.Cut(string(doc), "//\t(new)\n")
		require.True(t, ok)
		_, after, ok := strings.Cut(rest, "//\n// # Time")
		require.True(t, ok)
		doc = []byte(before + want.String() + "//\n// # Time" + after)
		require.NoError(t, os.WriteFile("doc.go", doc, 0o644))
	}
	require.Contains(t, string(doc), want.String()+"//\n", "run: go test -run Drawing -update")
	require.Contains(t, edge.Drawing(), "  -> running    start *\n")
}
