package edge

import "time"

// Retention is how long, and how many bytes of, what is done are kept. Age and
// bytes hold at once: what is older goes, and while a class has more bytes than
// it may, its oldest go. The zero value means the defaults.
type Retention struct {
	// Succeeded is how long succeeded deliveries are kept; 0 = 7 days, below
	// 0 = for ever. The data of events that no route matched is kept as long.
	Succeeded time.Duration
	// Failed is how long failed, cancelled and expired deliveries are kept;
	// 0 = 30 days, below 0 = for ever.
	Failed time.Duration
	// SucceededBytes bounds what succeeded deliveries hold, and with them the
	// data of events that no route matched, which goes first; 0 = no bound.
	SucceededBytes int64
	// FailedBytes bounds what failed, cancelled and expired deliveries hold;
	// 0 = no bound.
	FailedBytes int64
	// Dedupe is how long an event's identity and its consumptions are kept;
	// 0 = 30 days, below 0 = for ever. They never go before the event's last
	// delivery.
	Dedupe time.Duration
}

const (
	defaultSucceeded = 7 * 24 * time.Hour
	defaultFailed    = 30 * 24 * time.Hour
	defaultDedupe    = 30 * 24 * time.Hour
)

func (r Retention) withDefaults() Retention {
	orDuration(&r.Succeeded, defaultSucceeded)
	orDuration(&r.Failed, defaultFailed)
	orDuration(&r.Dedupe, defaultDedupe)
	return r
}

// policy is what r, which has its defaults, keeps at now.
func (r Retention) policy(nowMS int64) PrunePolicy {
	before := func(d time.Duration) int64 {
		if d <= 0 {
			return 0
		}
		return max(nowMS-d.Milliseconds(), 0)
	}
	return PrunePolicy{
		SucceededBeforeMS: before(r.Succeeded), FailedBeforeMS: before(r.Failed), DedupeBeforeMS: before(r.Dedupe),
		SucceededBytes: r.SucceededBytes, FailedBytes: r.FailedBytes, Limit: pruneStep,
	}
}

// PrunePolicy says what is no longer kept. In each class what finished before
// its time goes, and the oldest while the class holds more than its bytes.
type PrunePolicy struct {
	SucceededBeforeMS int64 // succeeded deliveries, and data of events that no route matched; 0 = none
	FailedBeforeMS    int64 // failed, cancelled and expired deliveries; 0 = none
	SucceededBytes    int64 // 0 = no bound
	FailedBytes       int64 // 0 = no bound
	DedupeBeforeMS    int64 // skeletons and consumptions of events accepted before; 0 = none
	Limit             int   // rows of one step
}

// DeliveryRowBytes is what the rows of a delivery and of its executions are
// counted as.
const DeliveryRowBytes = 1024

// ShareBytes is what one of the n deliveries of an event is counted as: an equal
// share of the event, and its own rows. It is fixed at accept, so bounds are kept
// without looking at rows.
func ShareBytes(e *Event, n int) int64 {
	size := len(e.Data) + len(e.Source) + len(e.ID) + len(e.Type) + len(e.Subject) + len(e.Time) + len(e.ContentType)
	for name, value := range e.Extensions {
		size += len(name) + len(value)
	}
	return DeliveryRowBytes + int64(size/max(n, 1))
}

// SetRetention changes what is kept, from the next pruning on.
func (e *Engine) SetRetention(r Retention) {
	r = r.withDefaults()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.o.Retention = r
}

func (e *Engine) retention() Retention {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.o.Retention
}
