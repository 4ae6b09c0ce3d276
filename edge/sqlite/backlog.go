package sqlite

import (
	"database/sql"
	"fmt"
	"slices"
	"time"

	"fencepost/edge"
)

// Limits bound what waits and what the disk must have left. The zero value means
// no bound.
type Limits struct {
	// MaxBacklogBytes bounds what the deliveries that are not final hold, by
	// [edge.ShareBytes]; 0 means no bound. At the bound new events are refused
	// with edge.ErrBacklogFull; follow-ups and new generations are not.
	MaxBacklogBytes int64
	// DropOldest names handlers whose oldest pending deliveries make room at
	// the bound: they expire with the code dropped_backlog. Events are refused
	// only when there is nothing to drop. Nothing that is held, blocked,
	// leased or running is dropped.
	DropOldest []string
	// LowWaterBytes is the free space of the disk below which no event is
	// taken (edge.ErrLowSpace) and nothing new is begun; 0 means none.
	LowWaterBytes int64
}

// SetLimits changes the limits, from the next commit on.
func (s *Store) SetLimits(l Limits) {
	l.DropOldest = slices.Clone(l.DropOldest)
	s.limits.Store(&l)
}

// backlog keeps the bytes of what waits below their bound. It belongs to the
// writer's goroutine.
type backlog struct {
	full  bool            // the bound was met, and was logged
	walk  edge.DeliveryID // up to where the search for something to drop has come
	found bool            // the search has found something since it began anew
	rest  time.Duration   // monotonic time until which there is no search, as there was nothing to drop
}

const (
	dropWindow = 500  // deliveries looked at by one query
	dropLook   = 5000 // deliveries that one transaction looks at for something to drop
	dropRest   = time.Second
)

// room makes sure that a new event fits under the bound, by the declared policy.
// ErrBacklogFull: it does not, and nothing was changed for it but drops.
func (tx *tx) room(p *submission) error {
	l := tx.w.store.limits.Load()
	bound := l.MaxBacklogBytes
	if bound <= 0 || p.followUp || p.Exempt || len(p.Routes) == 0 {
		return nil
	}
	need := edge.ShareBytes(&p.Event, len(p.Routes)) * int64(len(p.Routes))
	open := tx.held(bytesOpen)
	if open+need <= bound {
		return nil
	}
	tx.w.backlogIsFull(l, open)
	if len(l.DropOldest) > 0 && need <= bound {
		if err := tx.drop(open + need - bound); err != nil {
			return err
		}
		if open = tx.held(bytesOpen); open+need <= bound {
			return nil
		}
	}
	tx.w.store.refused.Add(1)
	return fmt.Errorf("%w: %d bytes wait, the bound is %d", edge.ErrBacklogFull, open, bound)
}

// drop expires the oldest pending deliveries of the handlers that may lose work
// until over bytes are free, or it has looked at enough. Nothing that is held,
// blocked, leased or running goes.
func (tx *tx) drop(over int64) error {
	const query = `SELECT id, target, state FROM deliveries WHERE id > ? ORDER BY id LIMIT ?`
	type row struct {
		id     edge.DeliveryID
		target int64
		state  edge.State
	}
	b := &tx.w.backlog
	for over > 0 && tx.looked < dropLook && tx.w.clock.Mono() >= b.rest {
		var rows []row
		err := tx.each(query, func(r *sql.Rows) error {
			var x row
			err := r.Scan(&x.id, &x.target, &x.state)
			rows = append(rows, x)
			return err
		}, int64(b.walk), dropWindow)
		if err != nil {
			return err
		}
		tx.looked += dropWindow
		for _, r := range rows {
			if over <= 0 {
				return nil
			}
			b.walk = r.id
			if r.state != edge.Pending {
				continue
			}
			n, err := tx.dropOne(r.id, r.target)
			if err != nil {
				return err
			}
			over -= n
			b.found = b.found || n > 0
		}
		if len(rows) < dropWindow {
			b.anew(tx.w.clock.Mono())
			return nil
		}
	}
	return nil
}

// anew lets the search begin from the oldest: what was under way when it was
// passed may wait again.
func (b *backlog) anew(mono time.Duration) {
	if !b.found {
		b.rest = mono + dropRest
	}
	b.walk, b.found = 0, false
}

// dropOne expires a pending delivery if its handler may lose work. It returns
// the bytes that it held.
func (tx *tx) dropOne(id edge.DeliveryID, targetID int64) (int64, error) {
	t, err := tx.target(targetID)
	if err != nil || !slices.Contains(tx.w.store.limits.Load().DropOldest, t.handler.name) {
		return 0, err
	}
	d, err := tx.delivery(id)
	if err != nil {
		return 0, err
	}
	v := edge.Verdict{To: edge.Expired, Code: edge.CodeDroppedBacklog, Attempts: d.Attempts, Losses: d.Losses}
	tx.count("backlog_dropped", 1)
	return d.bytes, tx.move(d, t, edge.OnExpire, v, "", "")
}

// backlogIsFull says once per episode that the bound was met.
func (w *writer) backlogIsFull(l *Limits, open int64) {
	if w.backlog.full {
		return
	}
	w.backlog.full = true
	policy := "events are refused"
	if len(l.DropOldest) > 0 {
		policy = "the oldest waiting deliveries are dropped"
	}
	w.store.log.Warn("the backlog has reached its bound", "policy", policy, "open_bytes", open, "max_backlog_bytes", l.MaxBacklogBytes)
}

// committed says once that a backlog at its bound has room again.
func (b *backlog) committed(s *Store) {
	const tenth = 10
	if open, bound := s.bytes.open.Load(), s.limits.Load().MaxBacklogBytes; b.full && open <= bound-bound/tenth {
		b.full = false
		s.log.Info("the backlog is below its bound again", "open_bytes", open, "max_backlog_bytes", bound)
	}
}
