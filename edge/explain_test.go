package edge_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
)

const explainNow = 1_772_323_201_000 // 2026-03-01T00:00:01Z

func explained(f func(f *edge.Facts)) string {
	facts := edge.Facts{
		Delivery: edge.Delivery{
			ID: 42, Event: 7, Target: edge.Target{Handler: "shop", Key: "till 1"}, Ordered: true, Line: 42,
			State: edge.Pending, DueMS: explainNow, Version: 7,
		},
		Target:  edge.TargetInfo{Target: edge.Target{Handler: "shop", Key: "till 1"}, Slots: 1, Open: 1, ReadyMS: explainNow},
		Handler: edge.HandlerInfo{Name: "shop", Gate: edge.GateOn},
	}
	f(&facts)
	return edge.Explain(facts, explainNow)
}

func TestExplain(t *testing.T) {
	t.Parallel()
	state := func(s edge.State, code string) func(f *edge.Facts) {
		return func(f *edge.Facts) { f.Delivery.State, f.Delivery.Code = s, code }
	}
	both := func(fs ...func(f *edge.Facts)) func(f *edge.Facts) {
		return func(f *edge.Facts) {
			for _, g := range fs {
				g(f)
			}
		}
	}
	head := func(s edge.State, code string) func(f *edge.Facts) {
		return func(f *edge.Facts) {
			f.Ahead, f.Head = 3, &edge.Delivery{ID: 39, State: s, Code: code, Version: 5, DueMS: explainNow + 90_000}
		}
	}
	leasedBy := func(until int64) func(f *edge.Facts) {
		return func(f *edge.Facts) {
			f.Lease = &edge.Lease{Owner: "abc", ExpiresMS: until, Delivery: 42, Execution: 99}
			f.Last = &edge.Execution{ID: 99, Attempt: 2, Owner: "abc", Effect: edge.Once, StartedMS: explainNow - 1000}
		}
	}
	for _, tc := range []struct {
		name string
		f    func(f *edge.Facts)
		want []string
	}{
		{"ready", func(f *edge.Facts) { f.Held = 4 }, []string{
			"Delivery 42 of event 7 to shop:till 1 is pending.\n",
			"Nothing stops it", "(4 deliveries of handler shop run now)", "fencepost cancel 42",
		}},
		{"waiting for a retry", func(f *edge.Facts) {
			f.Delivery.DueMS, f.Delivery.Attempts, f.Delivery.Losses, f.Delivery.Code = explainNow+5000, 2, 1, "http_503"
			f.Last = &edge.Execution{ID: 9, EndedMS: explainNow - 1000, Outcome: edge.OutcomeRetry, Code: "http_503", Detail: "no\x1b[31m token=s3cret"}
		}, []string{"is pending (http_503)", "2 charged, 1 lost", "2026-03-01T00:00:06.000Z (in 5s)", `ended at 2026-03-01T00:00:00.000Z (1s ago) as retry (http_503): "no [31m token=***"`}},
		{"scheduled", func(f *edge.Facts) { f.Delivery.DueMS = explainNow + 7_200_000 }, []string{"It is due at 2026-03-01T02:00:01.000Z (in 2h0m0s)."}},
		{"gate off", func(f *edge.Facts) { f.Handler.Gate, f.Handler.GateCode = edge.GateOff, "endpoint_gone" }, []string{"gate of handler shop is off (endpoint_gone)", "fencepost handler resume shop"}},
		{"gate missing", func(f *edge.Facts) { f.Handler.Gate = edge.GateMissing }, []string{"No running configuration names handler shop", "uncharged", "then: fencepost reload"}},
		{"gate paused", func(f *edge.Facts) { f.Handler.Gate, f.Handler.ResumeMS = edge.GatePaused, explainNow+60_000 }, []string{"paused until 2026-03-01T00:01:01.000Z (in 1m0s)", "by itself"}},
		{"behind a blocked head", head(edge.Blocked, "lost_after_start"), []string{
			"The target keeps strict order and 3 deliveries are ahead of this one.\n", "delivery 39, is blocked (lost_after_start) and waits for a person",
			"    fencepost resolve 39 --as failed --version 5 --reason 'say why'\n", "fencepost explain 39",
		}},
		{"behind a held head", head(edge.Held, ""), []string{"delivery 39, waits for consent", "fencepost target skip 'shop:till 1' --version 5"}},
		{"behind a retry", head(edge.Pending, "http_503"), []string{"delivery 39, is next tried at 2026-03-01T00:01:31.000Z (in 1m30s)"}},
		{"behind a running head", head(edge.Running, ""), []string{"delivery 39, is running."}},
		{"behind very many", func(f *edge.Facts) { f.Ahead = 1000 }, []string{"1000 or more deliveries are ahead"}},
		{"halted", func(f *edge.Facts) { f.Target.Stall, f.Target.Stalled = edge.StallHalted, 40 }, []string{"halted since delivery 40 failed", "in its place: fencepost redrive 40\n", "fencepost target resume 'shop:till 1'\n"}},
		{"halted, then unordered", func(f *edge.Facts) {
			f.Delivery.Ordered, f.Target.Slots, f.Target.Stall, f.Target.Stalled = false, 4, edge.StallHalted, 40
		}, []string{"halted since delivery 40 failed", "fencepost target resume 'shop:till 1'\n"}},
		{"behind the order of before", both(head(edge.Blocked, "lost_after_start"), func(f *edge.Facts) { f.Delivery.Ordered, f.Target.Slots = false, 4 }), []string{
			"The ordering of handler shop was changed and 3 deliveries are ahead of this one in the order of before", "delivery 39, is blocked (lost_after_start)",
		}},
		{"slots busy", func(f *edge.Facts) { f.Delivery.Ordered, f.Target.Slots, f.Target.Busy = false, 4, 4 }, []string{"All slots of the target are at work (4 of 4)"}},
		{"other code at work", func(f *edge.Facts) {
			f.Target.Busy, f.Lease = 1, &edge.Lease{Owner: "abc", Execution: 8, ExpiresMS: explainNow + 1000}
		}, []string{"Other code works on the target (execution 8 of owner abc)", "by 2026-03-01T00:00:02.000Z"}},
		{"held", state(edge.Held, ""), []string{"waits for people to agree", "holds up the line", "fencepost cancel 42"}},
		{"leased", both(state(edge.Leased, ""), leasedBy(explainNow+30_000)), []string{"its effect has not begun", "Owner abc holds the lease until 2026-03-01T00:00:31.000Z (in 30s)"}},
		{"running", both(state(edge.Running, ""), leasedBy(explainNow+30_000)), []string{"attempt 2, fence 99", "until 2026-03-01T00:00:31.000Z (in 30s)", "nobody can know whether", "fencepost cancel 42"}},
		{"running, idempotent", both(state(edge.Running, ""), leasedBy(explainNow+30_000), func(f *edge.Facts) { f.Last.Effect = edge.Idempotent }), []string{"tried again with the same idempotency key"}},
		{"running, being cancelled", both(state(edge.Running, ""), leasedBy(explainNow+1), func(f *edge.Facts) { f.Delivery.CancelMS = explainNow - 1 }), []string{"Cancelling was asked for"}},
		{"route error", state(edge.Blocked, "route_error"), []string{"Its route", "failed on the event", "correct it, then: fencepost reload\n", "    fencepost resolve 42 --as succeeded --version 7 --reason 'say why'\n"}},
		{"route error, asked again", both(state(edge.Blocked, "route_error"), func(f *edge.Facts) {
			f.Delivery.Route, f.Fault = "orders", "key: the event has no \x1btenant"
		}), []string{`Its route orders failed on the event, so it has no target yet: "key: the event has no  tenant".`}},
		{"unknown", state(edge.Blocked, "outcome_unknown"), []string{"nobody knows whether the effect happened", "    fencepost resolve 42 --as retry --version 7 --reason 'say why'\n"}},
		{"configuration", state(edge.Blocked, "secret_missing"), []string{"Nothing had begun", "configuration of handler shop", "put right what is missing, then: fencepost reload\n"}},
		{"succeeded", both(state(edge.Succeeded, "ok"), func(f *edge.Facts) { f.Delivery.FinishedMS = explainNow - 3_600_000 }), []string{"final since 2026-02-28T23:00:01.000Z (1h0m0s ago)", "fencepost redrive 42 --again"}},
		{"failed", state(edge.Failed, "http_400"), []string{"To try it again: fencepost redrive 42\n"}},
		{"failed after all attempts", both(state(edge.Failed, "http_503"), func(f *edge.Facts) {
			f.Delivery.Attempts, f.Last = 5, &edge.Execution{ID: 1, EndedMS: explainNow, Outcome: edge.OutcomeRetry, Code: "http_503"}
		}), []string{"It was tried 5 times, and the policy of its handler allows no more", "as retry (http_503)"}},
		{"failed by losses", both(state(edge.Failed, "attempt_budget_exhausted"), func(f *edge.Facts) { f.Delivery.Losses = 3 }), []string{"lost too often while it was worked on (3 times)"}},
		{"dropped", state(edge.Expired, "dropped_backlog"), []string{"dropped to make room", "storage.max_backlog_bytes"}},
		{"expired", both(state(edge.Expired, "expired"), func(f *edge.Facts) { f.Delivery.ExpiresMS = explainNow - 1000 }), []string{"Nothing had claimed it by its deadline, 2026-03-01T00:00:00.000Z (1s ago)."}},
		{"failed and halting", both(state(edge.Failed, "http_400"), func(f *edge.Facts) { f.Target.Stall, f.Target.Stalled = edge.StallHalted, 42 }), []string{"It halts the line", "fencepost target resume 'shop:till 1'", "fencepost redrive 42"}},
		{"redriven", both(state(edge.Failed, ""), func(f *edge.Facts) { f.Newer = 50 }), []string{"Delivery 50 was made of it", "fencepost explain 50"}},
		{"expires", func(f *edge.Facts) { f.Delivery.ExpiresMS = explainNow + 1000 }, []string{"It expires at 2026-03-01T00:00:02.000Z (in 1s)"}},
		{"doubted clock", func(f *edge.Facts) { f.Doubted = true }, []string{"The clock of this host is doubted", "fencepost clock confirm"}},
		{"late outcome", both(state(edge.Failed, ""), func(f *edge.Facts) {
			f.Last = &edge.Execution{ID: 1, EndedMS: explainNow, Outcome: edge.OutcomeLost, Code: "lease_lost", LateOutcome: edge.OutcomeSucceeded}
		}), []string{"as lost (lease_lost)", "After its lease was gone its handler answered: succeeded"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			text := explained(tc.f)
			for _, part := range tc.want {
				require.Contains(t, text, part)
			}
			require.True(t, strings.HasSuffix(text, "\n"))
			require.NotContains(t, text, "\n\n")
			require.NotContains(t, text, "\x1b")
		})
	}
}

// Secrets in what a handler said are not repeated; what it said of a reference
// to one is.
func TestExplain_RedactsSecretsAndNotWhatIsSaidOfReferences(t *testing.T) {
	t.Parallel()
	for detail, want := range map[string]string{
		"secret missing: env:FENCEPOST_EXAMPLE_SECRET: the environment variable is not set or empty":     "secret missing: env:FENCEPOST_EXAMPLE_SECRET: the environment variable is not set or empty",
		"secret missing: file:/run/api-token: no such file or directory":                                 "secret missing: file:/run/api-token: no such file or directory",
		"API_TOKEN: secret missing: env:API_TOKEN: the environment variable is not set or empty":         "API_TOKEN: secret missing: env:API_TOKEN: the environment variable is not set or empty",
		`header 'Authorization': secret missing: env:AUTHORIZATION: the environment variable is not set`: `header 'Authorization': secret missing: env:AUTHORIZATION: the environment variable is not set`,
		"Authorization: Bearer canary, rest":                                                             "Authorization: Bearer ***, rest",
		"authorization: Basic canary":                                                                    "authorization: Basic ***",
		"password=canary&x=1 token: canary":                                                              "password=***&x=1 token: ***",
		"env:API_TOKEN=canary":                                                                           "env:API_TOKEN=***",
		"file:/a?token=canary rest":                                                                      "file:/a?token=*** rest",
		"secret missing: canary":                                                                         "secret missing: canary",
		"get https://user:canary@host/ secret=canary":                                                    "get https://***@host/ secret=***",
		"password: secret missing":                                                                       "password: *** missing",
		"file://user:canary@host: rest":                                                                  "file://***@host: rest",
	} {
		text := explained(func(f *edge.Facts) {
			f.Delivery.State, f.Delivery.Code = edge.Blocked, "secret_missing"
			f.Last = &edge.Execution{ID: 1, EndedMS: explainNow, Outcome: edge.OutcomeBlocked, Code: "secret_missing", Detail: detail}
		})
		require.Contains(t, text, `"`+want+`"`)
	}
}

// R16: after a crash the reader sees until when the lease is held and what
// comes next.
func TestR16_ALeaseOfADeadOwnerIsExplained(t *testing.T) {
	t.Parallel()
	text := explained(func(f *edge.Facts) {
		f.Delivery.State = edge.Running
		f.Lease = &edge.Lease{Owner: "abc", ExpiresMS: explainNow - 2000, Delivery: 42, Execution: 99}
		f.Last = &edge.Execution{ID: 99, Attempt: 1, Effect: edge.Once, StartedMS: explainNow - 90_000}
	})
	require.Contains(t, text, "Owner abc holds the lease until 2026-02-28T23:59:59.000Z (2s ago)")
	require.Contains(t, text, "the owner is stalled or dead")
	require.Contains(t, text, "Recovery takes the lease when")
	require.Contains(t, text, "it is then blocked and waits for a person")
}

// What is said of a delivery never contradicts what stops it, and the code of an
// execution that ended is not that of the one under way.
func TestExplainIsTrue(t *testing.T) {
	t.Parallel()
	stopped := map[string]func(f *edge.Facts){
		"halted":  func(f *edge.Facts) { f.Target.Stall, f.Target.Stalled = edge.StallHalted, 40 },
		"old row": func(f *edge.Facts) { f.Ahead, f.Head = 1, &edge.Delivery{ID: 39, State: edge.Running} },
		"gate":    func(f *edge.Facts) { f.Handler.Gate = edge.GateOff },
	}
	for name, stop := range stopped {
		for _, ordered := range []bool{true, false} {
			text := explained(func(f *edge.Facts) {
				f.Delivery.Ordered = ordered
				stop(f)
			})
			require.NotContains(t, text, "Nothing stops it", "%s, ordered %v", name, ordered)
		}
	}
	text := explained(func(f *edge.Facts) { f.Delivery.State, f.Delivery.Code = edge.Running, "lease_lost" })
	require.Contains(t, text, "is running.\n")
	text = explained(func(f *edge.Facts) { f.Delivery.State, f.Delivery.Code = edge.Blocked, "route_error" })
	require.NotContains(t, text, "retry", "resolve as retry is refused until there is a target")
}

func TestExplainQuotesTargetsForTheShell(t *testing.T) {
	t.Parallel()
	text := explained(func(f *edge.Facts) {
		f.Delivery.Target.Key = "it's; rm -rf"
		f.Target.Stall, f.Target.Stalled = edge.StallHalted, 40
	})
	require.Contains(t, text, `fencepost target resume 'shop:it'\''s; rm -rf'`)
}
