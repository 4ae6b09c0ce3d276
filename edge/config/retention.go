package config

import (
	"fmt"
	"slices"
	"time"
)

// Retention is the section [retention]: what is kept of work that is done. Age
// and bytes hold at once.
type Retention struct {
	Succeeded      time.Duration // succeeded_days
	SucceededBytes int64         // succeeded_bytes; 0 = no bound
	Failed         time.Duration // failed_days: failed, cancelled and expired deliveries
	FailedBytes    int64         // failed_bytes; 0 = no bound
	Dedupe         time.Duration // dedupe_days: how long an event's (source, id) is remembered
}

// Storage is the section [storage]: bounds of what waits and of the disk.
type Storage struct {
	MaxBacklogBytes int64    // max_backlog_bytes; 0 = no bound
	AtBacklogBound  AtBound  // at_backlog_bound
	DropHandlers    []string // drop_handlers: whose oldest waiting work goes, with drop_oldest
	LowWaterBytes   int64    // low_water_bytes: free space below which intake and claiming stop; 0 = none
}

// AtBound is what happens to an event for which there is no room.
type AtBound string

// Values of at_backlog_bound.
const (
	Refuse     AtBound = "refuse"      // 507, with the time after which to try again
	DropOldest AtBound = "drop_oldest" // the oldest waiting work of some handlers makes room
)

// Bounds of bytes.
const (
	minBoundBytes = 1 << 20
	maxBoundBytes = 1 << 50
)

func defaultRetention() Retention {
	return Retention{Succeeded: 7 * day, SucceededBytes: 1 << 30, Failed: 30 * day, FailedBytes: 1 << 30, Dedupe: 30 * day}
}

func defaultStorage() Storage {
	return Storage{MaxBacklogBytes: 4 << 30, AtBacklogBound: Refuse, DropHandlers: []string{}, LowWaterBytes: 64 << 20}
}

func readRetention(t *table) Retention {
	r := defaultRetention()
	for _, age := range [...]struct {
		key string
		to  *time.Duration
	}{{"succeeded_days", &r.Succeeded}, {"failed_days", &r.Failed}, {"dedupe_days", &r.Dedupe}} {
		if d, ok := t.duration(age.key, day, 1, 3650); ok {
			*age.to = d
		}
	}
	readBytes(t, "succeeded_bytes", &r.SucceededBytes)
	readBytes(t, "failed_bytes", &r.FailedBytes)
	return r
}

func readStorage(t *table) Storage {
	s := defaultStorage()
	readBytes(t, "max_backlog_bytes", &s.MaxBacklogBytes)
	readBytes(t, "low_water_bytes", &s.LowWaterBytes)
	if v, ok := t.oneOf("at_backlog_bound", string(Refuse), string(DropOldest)); ok {
		s.AtBacklogBound = AtBound(v)
	}
	if names, ok := t.texts("drop_handlers", MaxListItems, checkPath); ok {
		s.DropHandlers = names
	}
	return s
}

// readBytes reads a number of bytes into n: none, or at least a mebibyte, as less
// would be a slip of the unit.
func readBytes(t *table, key string, n *int64) {
	v, ok := typed[int64](t, key, "a whole number")
	switch {
	case !ok:
	case v < 0 || v > maxBoundBytes:
		t.fault(key, fmt.Sprintf("%d is out of range", v), fmt.Sprintf("0, or %d to %d", minBoundBytes, int64(maxBoundBytes)))
	case v > 0 && v < minBoundBytes:
		t.fault(key, fmt.Sprintf("%d bytes are less than a mebibyte", v), fmt.Sprintf("0 for no bound, or at least %d", minBoundBytes))
	default:
		*n = v
	}
}

// checkDrop notes a policy that cannot make room.
func checkDrop(d *document, c *Config) {
	drops := c.Storage.DropHandlers
	if c.Storage.AtBacklogBound == DropOldest && len(drops) == 0 {
		d.add("storage.at_backlog_bound", "nothing may be dropped", "name the handlers whose oldest waiting work may go in drop_handlers")
	}
	if c.Storage.AtBacklogBound != DropOldest && len(drops) > 0 {
		d.add("storage.drop_handlers", "has no effect", `at_backlog_bound = "drop_oldest" with it`)
	}
	for i, name := range drops {
		at := fmt.Sprintf("storage.drop_handlers[%d]", i+1)
		if !slices.ContainsFunc(c.Handlers, func(h Handler) bool { return h.Name == name }) {
			d.add(at, "no handler has this name", "the name of a handler of this file")
		} else if slices.Index(drops, name) < i {
			d.add(at, "the name is given twice", "give each name once")
		}
	}
}
