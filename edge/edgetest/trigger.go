package edgetest

import (
	"fmt"
	"math"
	"slices"
	"time"

	"fencepost/edge"
)

// trigger is one call that may move a delivery.
type trigger struct {
	name   string
	fenced bool
	// arm prepares what the trigger needs: time that passes, or a row. The
	// trigger is then tried on a delivery of its own.
	arm func(r *rig, s subject)
	do  func(r *rig, s subject, k key) error
	// quiet says for which delivery a call that changes nothing is no error.
	quiet func(d edge.Delivery, k tokenKind) bool
}

// tokens are the keys with which a trigger is tried.
func (tr trigger) tokens(s subject) []key {
	if !tr.fenced {
		return []key{s.token(rightToken)}
	}
	return []key{s.token(absentToken), s.token(staleToken), s.token(mixedToken), s.token(rightToken)}
}

func always(edge.Delivery, tokenKind) bool { return true }

var triggers = slices.Concat([]trigger{
	{name: "accept", quiet: always, do: func(r *rig, s subject, _ key) error {
		d := r.delivery(s.id)
		e, err := r.s.Event(r.ctx, d.Event)
		if err != nil {
			return err
		}
		e.N, e.AcceptedMS = 0, 0
		as, err := r.s.Accept(r.ctx, []edge.Submission{{Event: e, Routes: []edge.Routed{{Handler: "h", Key: "other"}}}})
		if err == nil && (as[0].Err != nil || !as[0].Existing || as[0].Event != d.Event) {
			return fmt.Errorf("not the existing event: %+v", as[0])
		}
		return err
	}},
	{name: "claim", quiet: always, do: claimAny},
	{name: "claim_start", quiet: always, arm: func(r *rig, s subject) {
		if r.delivery(s.id).State == edge.Blocked {
			return // registering would mend it
		}
		reg := registration(edge.Once)
		reg.Inspect = false
		r.register(reg)
	}, do: claimAny},
	{name: "already_consumed", quiet: always, arm: func(r *rig, s subject) {
		if st := r.delivery(s.id); st.Generation > 1 {
			r.bench.Consume(r.t, r.s, s.id)
		}
	}, do: consumedAny},
	{name: "start", fenced: true, quiet: repeatedStart, do: func(r *rig, _ subject, k key) error {
		_, err := r.s.Start(r.ctx, k.execution, k.token)
		return err
	}},
	{name: "renew", fenced: true, quiet: always, do: func(r *rig, s subject, k key) error {
		out, err := r.s.Renew(r.ctx, []edge.Token{k.token})
		if err != nil {
			return err
		}
		d := r.delivery(s.id)
		holds := (d.State == edge.Leased || d.State == edge.Running) && k.kind == rightToken
		if holds == slices.Contains(out.Lost, k.token) {
			return fmt.Errorf("holds %v, lost %v", holds, out.Lost)
		}
		if len(out.Voided) > 0 {
			return fmt.Errorf("voided %v", out.Voided)
		}
		return nil
	}},
	{name: "lease lost", quiet: always, arm: armLoss(10), do: lose},
	{name: "lease lost, losses spent", quiet: always, arm: armLoss(2), do: lose},
	{name: "resolve succeeded", do: resolve(edge.ResolveSucceeded, 0)},
	{name: "resolve failed", do: resolve(edge.ResolveFailed, 0)},
	{name: "resolve retry", do: resolve(edge.ResolveRetry, 0)},
	{name: "resolve succeeded, other version", do: resolve(edge.ResolveSucceeded, -1)},
	{name: "resolve retry, other version", do: resolve(edge.ResolveRetry, 1)},
	{name: "reconfigure", quiet: always, do: func(r *rig, _ subject, _ key) error {
		reg := registration(edge.Once)
		reg.Revision = "2"
		return r.s.Register(r.ctx, []edge.Registration{reg}, 100, rigLease.Milliseconds())
	}},
	{name: "reroute", do: func(r *rig, s subject, _ key) error {
		_, err := r.s.Reroute(r.ctx, s.id, edge.Routed{Route: "mended", Handler: "h", Key: "k"})
		return err
	}},
	{name: "cancel", quiet: func(d edge.Delivery, _ tokenKind) bool { return d.State.Final() || d.State == edge.Running },
		do: func(r *rig, s subject, _ key) error {
			_, err := r.s.Cancel(r.ctx, s.id)
			return err
		}},
	{name: "retry now", quiet: func(d edge.Delivery, _ tokenKind) bool { return d.State == edge.Pending }, // it is due already
		do: func(r *rig, s subject, _ key) error {
			_, err := r.s.RetryNow(r.ctx, s.id)
			return err
		}},
	{name: "expire", quiet: always, arm: func(r *rig, _ subject) { r.pass(situationTTL) },
		do: func(r *rig, _ subject, _ key) error {
			_, err := r.s.Expire(r.ctx, 100)
			return err
		}},
	{name: "redrive", do: redrive(false)},
	{name: "redrive again", do: redrive(true)},
	{name: "skip", do: func(r *rig, s subject, _ key) error {
		d := r.delivery(s.id)
		_, err := r.s.SkipTarget(r.ctx, d.Target, d.Version, "the test says so", "tester")
		return err
	}},
	{name: "resume", do: func(r *rig, s subject, _ key) error {
		_, err := r.s.ResumeTarget(r.ctx, r.delivery(s.id).Target)
		return err
	}},
	{name: "prune", quiet: always, arm: func(*rig, subject) {}, do: func(r *rig, _ subject, _ key) error {
		_, err := r.s.Prune(r.ctx, edge.PrunePolicy{SucceededBeforeMS: math.MaxInt64, FailedBeforeMS: math.MaxInt64, Limit: 100})
		return err
	}},
}, endings())

// repeatedStart: the same start once more is answered as the first was.
func repeatedStart(d edge.Delivery, k tokenKind) bool {
	return d.State == edge.Running && k == rightToken
}

// endings are the ways in which an execution ends by its own word.
func endings() []trigger {
	var all []trigger
	released := []edge.Outcome{edge.OutcomeRetry, edge.OutcomeDeferred, edge.OutcomeInterrupted, edge.OutcomeBlocked}
	for _, o := range released {
		all = append(all, ending("release ", o, "", edge.Settlement{}))
	}
	for _, o := range append(released, edge.OutcomeSucceeded, edge.OutcomeFailed, edge.OutcomeIndeterminate) {
		all = append(all, ending("settle ", o, "", edge.Settlement{}))
	}
	spent := edge.Settlement{MaxAttempts: 1}
	late := edge.Settlement{GiveUpAfterMS: 1, DelayMS: time.Hour.Milliseconds()}
	return append(all,
		ending("release ", edge.OutcomeRetry, ", budget spent", spent),
		ending("release ", edge.OutcomeRetry, ", too late", late),
		ending("settle ", edge.OutcomeRetry, ", budget spent", spent),
		ending("settle ", edge.OutcomeRetry, ", too late", late),
		ending("settle ", edge.OutcomeIndeterminate, ", budget spent", spent),
	)
}

func ending(verb string, o edge.Outcome, which string, s edge.Settlement) trigger {
	s.Outcome, s.Code = o, "second"
	return trigger{name: verb + string(o) + which, fenced: true, do: func(r *rig, _ subject, k key) error {
		s := s // the closure is used by tests that run at once
		s.Execution, s.Token = k.execution, k.token
		if verb == "release " {
			_, err := r.s.Release(r.ctx, s)
			return err
		}
		_, err := r.s.Settle(r.ctx, s)
		return err
	}}
}

func claimAny(r *rig, _ subject, _ key) error {
	_, err := r.s.Claim(r.ctx, 10)
	return err
}

// consumedAny claims, or starts what is claimed.
func consumedAny(r *rig, s subject, k key) error {
	d := r.delivery(s.id)
	if d.Generation == 1 {
		return nil // there is no way for it to be consumed
	}
	if d.State == edge.Leased {
		_, err := r.s.Start(r.ctx, k.execution, k.token)
		return err
	}
	return claimAny(r, s, k)
}

func armLoss(losses int) func(*rig, subject) {
	return func(r *rig, s subject) {
		d := r.delivery(s.id)
		if d.State == edge.Blocked {
			return
		}
		reg := registration(edge.Once)
		reg.MaxLosses = losses
		r.register(reg)
		r.pass(rigLease + time.Second)
	}
}

func lose(r *rig, _ subject, _ key) error {
	_, err := r.s.Renew(r.ctx, nil)
	return err
}

func resolve(as edge.ResolveAs, off int64) func(*rig, subject, key) error {
	return func(r *rig, s subject, _ key) error {
		_, err := r.s.Resolve(r.ctx, edge.Resolution{
			Delivery: s.id, Version: r.delivery(s.id).Version + off, As: as, Reason: "the test says so", By: "tester",
		})
		return err
	}
}

func redrive(again bool) func(*rig, subject, key) error {
	return func(r *rig, s subject, _ key) error {
		_, err := r.s.Redrive(r.ctx, edge.Redrive{Delivery: s.id, Again: again})
		return err
	}
}
