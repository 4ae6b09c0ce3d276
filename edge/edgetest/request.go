package edgetest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"fencepost/edge"
)

// request is a request with a key that was carried out.
type request struct {
	fingerprint [32]byte
	answers     []edge.Accepted
	atMS        int64
}

// AcceptOnce is Accept for a request with a key.
func (m *Model) AcceptOnce(ctx context.Context, key edge.RequestKey, subs []edge.Submission) (edge.Kept, error) {
	if len(subs) > edge.MaxBatchEvents {
		return edge.Kept{}, fmt.Errorf("%w: batch: %d events, the limit is %d", edge.ErrInvalid, len(subs), edge.MaxBatchEvents)
	}
	var kept edge.Kept
	err := m.update(ctx, "AcceptOnce", func(t *tx) error {
		if was, ok := t.requests[key.Key]; ok {
			if was.fingerprint != key.Fingerprint {
				return edge.ErrKeyReused
			}
			kept = edge.Kept{Answers: cloneAnswers(was.answers), Replayed: true, AtMS: was.atMS}
			return nil
		}
		kept = edge.Kept{Answers: t.acceptAll(subs), AtMS: t.nowMS}
		if !slices.ContainsFunc(kept.Answers, func(a edge.Accepted) bool { return errors.Is(a.Err, edge.ErrUnavailable) }) {
			t.requests[key.Key] = request{key.Fingerprint, cloneAnswers(kept.Answers), t.nowMS}
		}
		return nil
	})
	return kept, err
}

func cloneAnswers(answers []edge.Accepted) []edge.Accepted {
	out := slices.Clone(answers)
	for i := range out {
		out[i].Deliveries = slices.Clone(out[i].Deliveries)
	}
	return out
}

// pruneRequests drops old answers.
func (t *tx) pruneRequests(p edge.PrunePolicy, out *edge.Swept) {
	for key, r := range t.requests {
		switch {
		case r.atMS >= p.DedupeBeforeMS:
		case out.Done == p.Limit:
			out.More = true
		default:
			delete(t.requests, key)
			out.Done++
		}
	}
}
