package edge

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
)

// ErrKeyReused: the key of a request was used for another one. It wraps
// [ErrConflict].
var ErrKeyReused = fmt.Errorf("%w: the key was used for another request; a new request needs a new key", ErrConflict)

// RequestKey names a request, so that it is carried out once however often it
// comes: what an Idempotency-Key is for.
type RequestKey struct {
	// Key is a hash of whatever tells the requests of one producer apart.
	Key [sha256.Size]byte
	// Fingerprint is a hash of what the request asks for.
	Fingerprint [sha256.Size]byte
}

// Kept is the answer to a request with a key.
type Kept struct {
	Answers  []Accepted // as they were at the first time
	Replayed bool       // the request had been carried out before; nothing changed
	AtMS     int64      // when it was carried out, milliseconds UTC
}

// EnqueueOnce is EnqueueBatch for a request with a key: together with the events
// the answers are stored, those that are conflicts included, and the same request
// gets the same answers again for as long as identities are remembered
// (Retention.Dedupe). An event that is invalid refuses them all. When one finds the
// backlog full, its answer says so and nothing is stored under the key.
// [ErrKeyReused]: the key is that of a request with another fingerprint.
func (e *Engine) EnqueueOnce(ctx context.Context, key RequestKey, evs []Event) (Kept, error) {
	if err := e.mayAccept(evs); err != nil {
		return Kept{}, err
	}
	subs := make([]Submission, len(evs))
	for i, ev := range evs {
		ev.N, ev.AcceptedMS, ev.Depth = 0, 0, 0
		var err error
		if subs[i], err = e.offered(ev); err != nil {
			return Kept{}, atEvent(err, i, len(evs))
		}
	}
	kept, err := e.store.AcceptOnce(ctx, key, subs)
	if err != nil {
		return Kept{}, fmt.Errorf("accept: %w", err)
	}
	if !kept.Replayed {
		e.expireWith(subs)
		e.logUnplaced(subs, kept.Answers)
	}
	return kept, nil
}

// atEvent says of which event of several an error is.
func atEvent(err error, i, n int) error {
	var field *FieldError
	if n == 1 || errors.As(err, &field) {
		return err
	}
	return fmt.Errorf("event %d of %d: %w", i+1, n, err)
}
