package edge

// Bounds of a page of a listing.
const (
	DefaultPage = 50
	MaxPage     = 1000
)

// DeliveryPage is one page of deliveries, newest first. Next is the cursor of
// the next page (DeliveryFilter.Before); 0 when nothing older can match. Partial
// means that the page is short because enough rows were looked at: there may be
// more behind Next.
type DeliveryPage struct {
	Deliveries []Delivery
	Next       DeliveryID
	Partial    bool
}

// EventFilter selects events for a page. Zero fields select all.
type EventFilter struct {
	Type, Source, Subject string
	ID                    string  // the producer's id; with Source it is looked up
	SinceMS, UntilMS      int64   // accepted at or after, and before
	Before                EventID // keyset cursor: events below this one
	Limit                 int     // 1..MaxPage, 0 = DefaultPage
}

// EventInfo is an event in a listing: without its data and trace.
type EventInfo struct {
	Event
	DataBytes int
	Pruned    bool // its data is no longer kept
}

// EventPage is one page of events, newest first; the fields are as those of
// [DeliveryPage].
type EventPage struct {
	Events  []EventInfo
	Next    EventID
	Partial bool
}

// TargetPage is one page of targets by handler and key. Next is the cursor of the
// next page (TargetFilter.After); empty when there is none.
type TargetPage struct {
	Targets []TargetInfo
	Next    Target
	Partial bool
}

// Backlog is what waits, as far as it can be told without counting rows.
type Backlog struct {
	// Worst are the targets whose oldest waiting delivery was accepted first.
	// They are found among those that are ready longest, stalled, or at work.
	Worst []TargetBacklog
	// InFlight is how many deliveries of each handler are leased or running.
	InFlight map[string]int
	// Finished deliveries became final since SinceMS; the two give the recent
	// rate. Of a busy store only the latest are looked at.
	Finished int
	SinceMS  int64
	// OldestEventMS is when the oldest event that is kept was accepted; 0 when
	// there is none.
	OldestEventMS int64
}

// TargetBacklog is the backlog of one target.
type TargetBacklog struct {
	Target   TargetInfo
	Oldest   DeliveryID // its oldest waiting delivery by place in line
	OldestMS int64      // when that one was accepted
	State    State
	Code     string
	DueMS    int64
}

// BulkVerb is what [Operator] does to many deliveries.
type BulkVerb string

const (
	BulkCancel   BulkVerb = "cancel"
	BulkRedrive  BulkVerb = "redrive"
	BulkRetryNow BulkVerb = "retry_now"
)

// MaxBulk is how many deliveries one call of Bulk takes.
const MaxBulk = 200

// Bulk asks for one verb on many deliveries, each as it was seen.
type Bulk struct {
	Verb   BulkVerb
	Items  []BulkItem
	Again  bool // as in [Redrive]
	NewKey bool // as in [Redrive]
}

// BulkItem is a delivery with the version that was seen: when it has moved since,
// it is left alone.
type BulkItem struct {
	Delivery DeliveryID
	Version  int64
}

// BulkResult is what became of one item: Err says why nothing was done, else
// Delivery is the delivery after it (with BulkRedrive the new generation).
type BulkResult struct {
	Delivery Delivery
	Err      error
}
