CREATE TABLE rates (
    -- The token bucket of a handler with a rate limit: here, so that no
    -- restart fills it.
    handler     INTEGER PRIMARY KEY REFERENCES handlers (id),
    interval_us INTEGER NOT NULL CHECK (interval_us >= 1), -- between two tokens, microseconds
    burst       INTEGER NOT NULL CHECK (burst >= 1),       -- tokens of a full bucket
    full_us     INTEGER NOT NULL -- microseconds UTC: full again then, if nothing is taken
) STRICT;

CREATE TABLE episodes (
    -- Handlers whose other side fails: a row while that lasts, so that it is
    -- told once.
    handler  INTEGER PRIMARY KEY REFERENCES handlers (id),
    began_ms INTEGER NOT NULL,
    since_ms INTEGER NOT NULL, -- from when on the patience of the gate counts
    failures INTEGER NOT NULL, -- in a row, when it began
    code     TEXT NOT NULL     -- of the attempt with which it began
) STRICT;
