package edgetest

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
)

func requestKey(key, fingerprint byte) edge.RequestKey {
	return edge.RequestKey{Key: [32]byte{key}, Fingerprint: [32]byte{fingerprint}}
}

// answersOf are answers in which errors are told by their text alone.
func answersOf(t *testing.T, k edge.Kept) (plain []edge.Accepted, texts []string) {
	t.Helper()
	for _, a := range k.Answers {
		text := ""
		if a.Err != nil {
			require.ErrorIs(t, a.Err, edge.ErrConflict)
			text = a.Err.Error()
		}
		a.Err = nil
		plain, texts = append(plain, a), append(texts, text)
	}
	return plain, texts
}

func acceptOnceReplays(t *testing.T, r *rig) {
	r.register(started("h", edge.Idempotent))
	taken := Owe("taken", "h", "k")
	r.accept(taken)
	taken.Event.Data = []byte("other")
	subs := []edge.Submission{Owe("1", "h", "a"), taken, {Event: NewEvent("unrouted", "")}}

	first, err := r.s.AcceptOnce(r.ctx, requestKey(1, 1), subs)
	require.NoError(t, err)
	require.False(t, first.Replayed)
	require.Equal(t, r.clock.NowMS(), first.AtMS)
	require.ErrorIs(t, first.Answers[1].Err, edge.ErrConflict)
	id := first.Answers[0].Deliveries[0].ID
	for range 10 { // its state moves on, the answer does not
		cs, err := r.s.Claim(r.ctx, 1)
		require.NoError(t, err)
		if len(cs) == 0 {
			break
		}
		r.settle(cs[0], edge.OutcomeSucceeded, "ok")
	}
	d, err := r.s.Delivery(r.ctx, id)
	require.NoError(t, err)
	require.Equal(t, edge.Succeeded, d.State)

	r.clock.Advance(1000 * 1000 * 1000)
	again, err := r.s.AcceptOnce(r.ctx, requestKey(1, 1), subs)
	require.NoError(t, err)
	require.True(t, again.Replayed)
	require.Equal(t, first.AtMS, again.AtMS)
	want, wantText := answersOf(t, first)
	got, gotText := answersOf(t, again)
	require.Equal(t, want, got)
	require.Equal(t, wantText, gotText)

	_, err = r.s.AcceptOnce(r.ctx, requestKey(1, 2), []edge.Submission{Owe("2", "h", "a")})
	require.ErrorIs(t, err, edge.ErrKeyReused)
	require.ErrorIs(t, err, edge.ErrConflict)
	other, err := r.s.AcceptOnce(r.ctx, requestKey(2, 1), subs[:1])
	require.NoError(t, err)
	require.False(t, other.Replayed, "another key is another request")
	require.True(t, other.Answers[0].Existing)

	acceptOnceIsOne(t, r)

	_, err = r.s.Prune(r.ctx, edge.PrunePolicy{DedupeBeforeMS: first.AtMS + 1, Limit: 100})
	require.NoError(t, err)
	again, err = r.s.AcceptOnce(r.ctx, requestKey(1, 9), subs[:1])
	require.NoError(t, err, "the key is forgotten")
	require.False(t, again.Replayed)
	other, err = r.s.AcceptOnce(r.ctx, requestKey(2, 1), subs[:1])
	require.NoError(t, err)
	require.True(t, other.Replayed, "this one is younger")
}

// acceptOnceIsOne has many submitters of one key: one is the first.
func acceptOnceIsOne(t *testing.T, r *rig) {
	const submitters = 16
	answers := make([]edge.Kept, submitters)
	errs := make([]error, submitters)
	var wg sync.WaitGroup
	for i := range submitters {
		wg.Go(func() {
			answers[i], errs[i] = r.s.AcceptOnce(r.ctx, requestKey(3, 1), []edge.Submission{Owe("many", "h", "m")})
		})
	}
	wg.Wait()
	fresh := 0
	for i, a := range answers {
		require.NoError(t, errs[i])
		require.False(t, a.Answers[0].Existing, "all have the answer of the first")
		require.Equal(t, answers[0].Answers, a.Answers)
		if !a.Replayed {
			fresh++
		}
	}
	require.Equal(t, 1, fresh)
}

func acceptKeepsTheTrace(t *testing.T, r *rig) {
	r.register(started("h", edge.Idempotent))
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	sub := Owe("1", "h", "k")
	sub.Event.Trace = edge.Trace{Parent: parent, State: "a=1,b=2"}
	sub.Event.Extensions = map[string]string{"traceparent": "of-its-origin"}
	id := r.accept(sub)[0]
	sub.Event.Trace = edge.Trace{}
	require.True(t, func() bool {
		as, err := r.s.Accept(r.ctx, []edge.Submission{sub})
		require.NoError(t, err)
		return as[0].Existing
	}(), "the trace is no part of the content")
	d, err := r.s.Delivery(r.ctx, id)
	require.NoError(t, err)
	e, err := r.s.Event(r.ctx, d.Event)
	require.NoError(t, err)
	require.Equal(t, edge.Trace{Parent: parent, State: "a=1,b=2"}, e.Trace)
	c := r.claimOne(id)
	require.Equal(t, e.Trace, c.Event.Trace)
	require.Equal(t, "of-its-origin", c.Event.Extensions["traceparent"])
	r.settle(c, edge.OutcomeSucceeded, "ok")
}
