package sqlite

import (
	"database/sql"
	"time"

	"fencepost/edge"
)

// bucket is the row of a handler's rate limit. It is taken from in memory and
// written once a commit.
type bucket struct {
	rate   edge.Rate
	fullUS int64
	dirty  bool // to be written by finish
}

// takeToken pays for a claim, in the transaction that makes it.
func (tx *tx) takeToken(h *handler) {
	if h.bucket.rate.Limited() {
		tx.fullAt(h, h.bucket.rate.Take(h.bucket.fullUS, tx.now))
	}
}

// clampBucket mends what a clock left that was stepped back.
func (tx *tx) clampBucket(h *handler) {
	if us := h.bucket.rate.Clamp(h.bucket.fullUS, tx.now); us < h.bucket.fullUS {
		tx.fullAt(h, us)
	}
}

func (tx *tx) fullAt(h *handler, us int64) {
	h.bucket.fullUS, tx.wrote = us, true
	if !h.bucket.dirty {
		h.bucket.dirty = true
		tx.rated = append(tx.rated, h)
	}
}

// writeBuckets writes what was taken in this transaction.
func (tx *tx) writeBuckets() error {
	const update = `UPDATE rates SET full_us = ? WHERE handler = ?`
	for _, h := range tx.rated {
		h.bucket.dirty = false
		if err := tx.exec(update, h.bucket.fullUS, h.id); err != nil {
			return err
		}
	}
	tx.rated = tx.rated[:0]
	return nil
}

// setRate declares the rate limit of a handler. A new bucket is full; one whose
// rate changes is full when it would have been, unless that is too late.
func (tx *tx) setRate(h *handler, r edge.Rate) error {
	if h.bucket.rate == r {
		tx.clampBucket(h)
		return nil
	}
	if !r.Limited() {
		h.bucket = bucket{}
		return tx.exec(`DELETE FROM rates WHERE handler = ?`, h.id)
	}
	if !h.bucket.rate.Limited() {
		h.bucket.fullUS = tx.now * 1000
	}
	h.bucket.rate, h.bucket.fullUS = r, r.Clamp(h.bucket.fullUS, tx.now)
	const upsert = `INSERT INTO rates (handler, interval_us, burst, full_us) VALUES (?1, ?2, ?3, ?4)
	                ON CONFLICT (handler) DO UPDATE SET interval_us = ?2, burst = ?3, full_us = ?4`
	return tx.exec(upsert, h.id, r.Interval.Microseconds(), r.Burst, h.bucket.fullUS)
}

// loadBuckets reads the buckets of all handlers.
func (tx *tx) loadBuckets() error {
	for _, h := range tx.w.hands.byID {
		h.bucket = bucket{}
	}
	return tx.each(`SELECT handler, interval_us, burst, full_us FROM rates`, func(rows *sql.Rows) error {
		var id, interval int64
		var b bucket
		if err := rows.Scan(&id, &interval, &b.rate.Burst, &b.fullUS); err != nil {
			return err
		}
		b.rate.Interval = time.Duration(interval) * time.Microsecond
		if h := tx.w.hands.byID[id]; h != nil {
			h.bucket = b
		}
		return nil
	})
}
