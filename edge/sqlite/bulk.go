package sqlite

import (
	"context"
	"fmt"

	"fencepost/edge"
)

// Bulk does one verb to many deliveries; see [edge.Operator]. Each verb tests its
// guards before it writes, so a refusal of one leaves the others as they are.
func (s *Store) Bulk(ctx context.Context, b edge.Bulk) ([]edge.BulkResult, error) {
	switch b.Verb {
	case edge.BulkCancel, edge.BulkRedrive, edge.BulkRetryNow:
	default:
		return nil, fmt.Errorf("%w: bulk verb %q: use cancel, redrive or retry_now", edge.ErrInvalid, b.Verb)
	}
	if len(b.Items) > edge.MaxBulk {
		return nil, fmt.Errorf("%w: %d deliveries at once, the limit is %d", edge.ErrInvalid, len(b.Items), edge.MaxBulk)
	}
	var answers []edge.BulkResult
	err := s.w.do(ctx, phaseSettle, func(tx *tx) error {
		answers = make([]edge.BulkResult, len(b.Items))
		for i, item := range b.Items {
			d, err := tx.bulkOne(b, item)
			if err != nil && !refusal(err) {
				return err
			}
			answers[i] = edge.BulkResult{Delivery: d, Err: err}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return answers, nil
}

func (tx *tx) bulkOne(b edge.Bulk, item edge.BulkItem) (edge.Delivery, error) {
	d, t, err := tx.deliveryAndTarget(item.Delivery)
	if err != nil {
		return edge.Delivery{}, err
	}
	if d.Version != item.Version {
		return edge.Delivery{}, illegal(d, bulkTrigger(b.Verb), fmt.Sprintf("it has moved since it was listed: version is %d, not %d", d.Version, item.Version))
	}
	switch b.Verb {
	case edge.BulkRedrive:
		return tx.redrive(d, t, edge.Redrive{Delivery: d.ID, Again: b.Again, NewKey: b.NewKey})
	case edge.BulkRetryNow:
		err = tx.retryNow(d, t)
	default:
		err = tx.cancel(d, t)
	}
	if err != nil {
		return edge.Delivery{}, err
	}
	return d.public(t), nil
}

func bulkTrigger(v edge.BulkVerb) edge.Trigger {
	switch v {
	case edge.BulkRedrive:
		return edge.OnRedrive
	case edge.BulkRetryNow:
		return edge.OnRetryNow
	}
	return edge.OnCancel
}
