ALTER TABLE events ADD COLUMN trace /* W3C traceparent of the request that brought it, and after a space its tracestate */ TEXT;

CREATE TABLE requests (
    -- Requests with an Idempotency-Key that were carried out, with their
    -- answers: the same request gets the same answers. Written in the
    -- transaction that stores the events.
    n           INTEGER PRIMARY KEY,  -- grows with each, so that the oldest go first
    key         BLOB NOT NULL CHECK (length(key) = 32),         -- hash of token, method, path and key
    fingerprint BLOB NOT NULL CHECK (length(fingerprint) = 32), -- hash of what was asked for
    accepted_ms INTEGER NOT NULL,
    answers     TEXT NOT NULL         -- JSON array in the order of the events
) STRICT;
CREATE UNIQUE INDEX requests_by_key ON requests (key);
