package api

import (
	"fmt"
	"net/http"

	"fencepost/edge"
)

// BulkRequest asks for one verb on up to [edge.MaxBulk] deliveries, each as it
// was seen.
type BulkRequest struct {
	Verb   edge.BulkVerb `json:"verb"` // cancel, redrive or retry_now
	Items  []BulkItem    `json:"items"`
	Again  bool          `json:"again,omitempty"`
	NewKey bool          `json:"new_key,omitempty"`
}

// BulkItem is a delivery with the version that was seen.
type BulkItem struct {
	ID      string `json:"id"`
	Version int64  `json:"version"`
}

// BulkAnswer has what became of each item, in their order.
type BulkAnswer struct {
	Results []BulkResult `json:"results"`
}

// BulkResult is what became of one item: the delivery after it (of a redrive the
// new generation), or why nothing was done.
type BulkResult struct {
	ID       string    `json:"id"`
	Delivery *Delivery `json:"delivery,omitempty"`
	Code     string    `json:"code,omitempty"` // of the refusal
	Detail   string    `json:"detail,omitempty"`
}

func (l *local) bulk(r *http.Request) (any, error) {
	var req BulkRequest
	if err := readRequest(r, &req); err != nil {
		return nil, err
	}
	if len(req.Items) > edge.MaxBulk {
		return nil, invalid(FieldFault{Pointer: "/items", Detail: fmt.Sprintf("has %d deliveries, the limit is %d", len(req.Items), edge.MaxBulk)})
	}
	b := edge.Bulk{Verb: req.Verb, Again: req.Again, NewKey: req.NewKey, Items: make([]edge.BulkItem, len(req.Items))}
	for i, item := range req.Items {
		id, err := l.node.Names().Parse(edge.KindDelivery, item.ID)
		if err != nil {
			return nil, err
		}
		b.Items[i] = edge.BulkItem{Delivery: edge.DeliveryID(id), Version: item.Version}
	}
	rs, err := l.node.Bulk(r.Context(), b)
	if err != nil {
		return nil, err
	}
	answer := BulkAnswer{Results: make([]BulkResult, len(rs))}
	for i, res := range rs {
		out := BulkResult{ID: l.form().deliveryID(b.Items[i].Delivery)}
		if res.Err != nil {
			p := problemOf(res.Err)
			out.Code, out.Detail = p.Code, p.Detail
		} else {
			d := l.form().delivery(res.Delivery)
			out.Delivery = &d
		}
		answer.Results[i] = out
	}
	return answer, nil
}

func (l *local) retryNow(r *http.Request) (any, error) {
	id, err := l.pathID(r)
	if err != nil {
		return nil, err
	}
	if err := readRequest(r, &struct{}{}); err != nil {
		return nil, err
	}
	return l.moved(l.node.RetryNow(r.Context(), id))
}
