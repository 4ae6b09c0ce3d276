package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"fencepost/edge"
)

// AcceptOnce is Accept for a request with a key; see [edge.Intake]. The look-up,
// the events and the answers are one transaction under a unique index, so that
// of many submitters of one key exactly one is the first.
func (s *Store) AcceptOnce(ctx context.Context, key edge.RequestKey, subs []edge.Submission) (edge.Kept, error) {
	var kept edge.Kept
	var reused error
	err := s.acceptOp(ctx, subs, func(tx *tx, prepared []submission) error {
		kept, reused = edge.Kept{}, nil
		var err error
		if kept, err = tx.keptRequest(key); errors.Is(err, edge.ErrKeyReused) {
			tx.count("accept_key_reused", 1)
			reused = err
			return nil
		}
		if err != nil || kept.Replayed {
			return err
		}
		kept.AtMS = tx.now
		if kept.Answers, err = tx.acceptAll(prepared); err != nil {
			return err
		}
		return tx.keepRequest(key, kept.Answers)
	})
	if err == nil {
		err = reused
	}
	if err != nil {
		return edge.Kept{}, err
	}
	return kept, nil
}

// keptRequest returns the stored answers of a request, or none.
func (tx *tx) keptRequest(key edge.RequestKey) (edge.Kept, error) {
	const query = `SELECT fingerprint, accepted_ms, answers FROM requests WHERE key = ?`
	var fingerprint []byte
	var text string
	kept := edge.Kept{Replayed: true}
	err := tx.row(query, key.Key[:]).Scan(&fingerprint, &kept.AtMS, &text)
	switch {
	case noRows(err):
		return edge.Kept{}, nil
	case err != nil:
		return edge.Kept{}, err
	case !bytes.Equal(fingerprint, key.Fingerprint[:]):
		return edge.Kept{}, edge.ErrKeyReused
	}
	tx.count("accept_replayed", 1)
	kept.Answers, err = decodeAnswers(text)
	return kept, err
}

// keepRequest stores the answers of a request, unless one of its events must be
// sent again.
func (tx *tx) keepRequest(key edge.RequestKey, answers []edge.Accepted) error {
	for i := range answers {
		if errors.Is(answers[i].Err, edge.ErrUnavailable) {
			return nil
		}
	}
	text, err := encodeAnswers(answers)
	if err != nil {
		return err
	}
	const insert = `INSERT INTO requests (key, fingerprint, accepted_ms, answers) VALUES (?, ?, ?, ?)`
	return tx.exec(insert, key.Key[:], key.Fingerprint[:], tx.now, text)
}

// answerRow is one answer as it is stored.
type answerRow struct {
	Event      int64         `json:"event,omitempty"`
	Existing   bool          `json:"existing,omitempty"`
	Deliveries []deliveryRow `json:"deliveries,omitempty"`
	Invalid    string        `json:"invalid,omitempty"`
	Conflict   string        `json:"conflict,omitempty"`
}

type deliveryRow struct {
	ID      int64      `json:"id"`
	Handler string     `json:"handler"`
	Key     string     `json:"key,omitempty"`
	State   edge.State `json:"state"`
}

func encodeAnswers(answers []edge.Accepted) (string, error) {
	rows := make([]answerRow, len(answers))
	for i, a := range answers {
		rows[i] = answerRow{Event: int64(a.Event), Existing: a.Existing}
		for _, d := range a.Deliveries {
			rows[i].Deliveries = append(rows[i].Deliveries, deliveryRow{int64(d.ID), d.Target.Handler, d.Target.Key, d.State})
		}
		switch {
		case errors.Is(a.Err, edge.ErrConflict):
			rows[i].Conflict = a.Err.Error()
		case a.Err != nil:
			rows[i].Invalid = a.Err.Error()
		}
	}
	text, err := json.Marshal(rows)
	return string(text), err
}

func decodeAnswers(text string) ([]edge.Accepted, error) {
	var rows []answerRow
	if err := json.Unmarshal([]byte(text), &rows); err != nil {
		return nil, fmt.Errorf("stored answers: %w", err)
	}
	answers := make([]edge.Accepted, len(rows))
	for i, r := range rows {
		a := edge.Accepted{Event: edge.EventID(r.Event), Existing: r.Existing}
		for _, d := range r.Deliveries {
			a.Deliveries = append(a.Deliveries, edge.DeliveryRef{
				ID: edge.DeliveryID(d.ID), Target: edge.Target{Handler: d.Handler, Key: d.Key}, State: d.State,
			})
		}
		switch {
		case r.Conflict != "":
			a.Err = &keptError{r.Conflict, edge.ErrConflict}
		case r.Invalid != "":
			a.Err = &keptError{r.Invalid, edge.ErrInvalid}
		}
		answers[i] = a
	}
	return answers, nil
}

// keptError is an error of before, with its own text.
type keptError struct {
	text  string
	class error
}

func (e *keptError) Error() string { return e.text }
func (e *keptError) Unwrap() error { return e.class }

// requests removes the oldest answers that are no longer remembered.
func (s *pruning) requests() error {
	const query = `SELECT n, accepted_ms FROM requests WHERE n > 0 ORDER BY n LIMIT ?`
	if s.p.DedupeBeforeMS == 0 {
		return nil
	}
	var old []int64
	err := s.each(query, func(rows *sql.Rows) error {
		var n, acceptedMS int64
		err := rows.Scan(&n, &acceptedMS)
		if acceptedMS < s.p.DedupeBeforeMS {
			old = append(old, n)
		}
		return err
	}, s.left)
	if err != nil {
		return err
	}
	for _, n := range old {
		if err := s.exec(`DELETE FROM requests WHERE n = ?`, n); err != nil {
			return err
		}
		s.left--
	}
	return nil
}

// traceText is a trace in its column.
func traceText(t edge.Trace) string {
	if t.State == "" {
		return t.Parent
	}
	return t.Parent + " " + t.State
}
