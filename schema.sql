-- The schema of a fresh fencepost database: a dump, written by `make schema`.
-- Times are milliseconds UTC and end in _ms. Ids come from the table sequences.

CREATE TABLE settings (
    -- Facts about this file: node (random id), created_ms, last_seen_ms.
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE sequences (
    -- One row. Every id comes from here; no id is used twice and no number
    -- is ever lowered. Read at BEGIN IMMEDIATE, written back once a commit.
    id         INTEGER PRIMARY KEY CHECK (id = 1),
    event      INTEGER NOT NULL,
    delivery   INTEGER NOT NULL,
    execution  INTEGER NOT NULL,
    target     INTEGER NOT NULL,
    commit_no  INTEGER NOT NULL -- number of the last writing commit
, chain /* derived from that of the commit before; 0 = no commit yet */ INTEGER NOT NULL DEFAULT 0, syncs /* commits made for their sync alone (durability normal) */ INTEGER NOT NULL DEFAULT 0) STRICT;

CREATE TABLE counters (
    -- Kept in the transactions that they count. A name that begins with
    -- "state." is the number of deliveries in that state now.
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE owners (
    -- One row per opening of this file that held leases.
    id        INTEGER PRIMARY KEY,
    name      TEXT NOT NULL UNIQUE, -- random; never the host name
    pid       INTEGER NOT NULL,
    config    TEXT NOT NULL,        -- digest of the configuration, compared among sharers
    opened_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE handlers (
    -- Named code that performs deliveries, as the last configuration knew it.
    id        INTEGER PRIMARY KEY,
    name      TEXT NOT NULL UNIQUE,
    gate      TEXT NOT NULL CHECK (gate = 'on' OR gate = 'off' OR gate = 'missing' OR gate = 'paused'), -- claiming reads it
    gate_kept TEXT CHECK (gate_kept = 'on' OR gate_kept = 'off' OR gate_kept = 'paused'), -- the gate to return to when it is no longer missing
    gate_code TEXT NOT NULL,    -- why the gate (while missing: gate_kept) is not on
    resume_ms INTEGER,          -- end of a pause
    slots     INTEGER NOT NULL CHECK (slots >= 1), -- per target; 1 = strict order
    revision  INTEGER NOT NULL, -- revisions.id of the present configuration
    version   INTEGER NOT NULL,
    CHECK ((gate = 'missing') = (gate_kept IS NOT NULL)),
    CHECK (gate <> 'paused' OR resume_ms IS NOT NULL)
) STRICT;

CREATE TABLE revisions (
    -- What a handler declared with one revision of its configuration.
    -- Executions point here, so that settle and recovery go by what held at
    -- the claim.
    id       INTEGER PRIMARY KEY,
    handler  INTEGER NOT NULL REFERENCES handlers (id),
    revision TEXT NOT NULL,
    effect   TEXT NOT NULL CHECK (effect = 'idempotent' OR effect = 'transactional' OR effect = 'once'),
    UNIQUE (handler, revision, effect)
) STRICT;

CREATE TABLE targets (
    -- A handler and a key: the scope of order and of the lease. ready_ms and
    -- stall are decided by one function after every move, so claiming looks
    -- only at targets that have something claimable.
    id           INTEGER PRIMARY KEY,
    handler      INTEGER NOT NULL REFERENCES handlers (id),
    key          TEXT NOT NULL,
    slots        INTEGER NOT NULL CHECK (slots >= 1),
    busy         INTEGER NOT NULL CHECK (busy >= 0),     -- lease rows
    borrowed     INTEGER NOT NULL CHECK (borrowed >= 0 AND borrowed <= busy), -- those of WithTarget among them
    open         INTEGER NOT NULL CHECK (open >= 0),     -- deliveries not final
    open_ordered INTEGER NOT NULL CHECK (open_ordered >= 0 AND open_ordered <= open),
    kept         INTEGER NOT NULL CHECK (kept >= open),  -- delivery and consumption rows; at 0 the target goes
    ready_ms     INTEGER,           -- NULL = nothing claimable
    class        INTEGER NOT NULL CHECK (class = 0 OR class = 1), -- 0 first tries, 1 retries
    stall        TEXT CHECK (stall = 'held' OR stall = 'blocked' OR stall = 'halted'),
    stalled      INTEGER,           -- the delivery that the stall names
    served_ms    INTEGER NOT NULL,  -- last claim; makes rotation fair
    version      INTEGER NOT NULL,
    CHECK ((stall IS NULL) = (stalled IS NULL)),
    CHECK (stall IS NULL OR ready_ms IS NULL)
) STRICT;
CREATE UNIQUE INDEX targets_by_name ON targets (handler, key);
CREATE INDEX targets_ready ON targets (handler, class, ready_ms) WHERE ready_ms IS NOT NULL;
CREATE INDEX targets_stalled ON targets (handler, key) WHERE stall IS NOT NULL;

CREATE TABLE events (
    -- Immutable facts, accepted once. (source, event_id) identifies; hash is
    -- 64 bits of it, and the full key is compared on a hit.
    id           INTEGER PRIMARY KEY,
    hash         INTEGER NOT NULL,
    source       TEXT NOT NULL,
    event_id     TEXT NOT NULL,
    type         TEXT NOT NULL,
    subject      TEXT,
    time         TEXT,             -- RFC 3339, exactly as received
    content_type TEXT,
    extensions   TEXT,             -- JSON object of extension attributes
    depth        INTEGER NOT NULL, -- length of the chain of follow-ups
    accepted_ms  INTEGER NOT NULL,
    sha256       BLOB NOT NULL CHECK (length(sha256) = 32), -- over type, subject, content type and data
    data         BLOB              -- the bytes exactly as received; NULL once pruned
, trace /* W3C traceparent of the request that brought it, and after a space its tracestate */ TEXT) STRICT;
CREATE INDEX events_by_hash ON events (hash);

CREATE TABLE deliveries (
    -- One event owed to one target: the durable obligation, with its state.
    -- Lists of states are written as OR: an IN of three or more builds a
    -- table of its own at every write.
    id             INTEGER PRIMARY KEY,
    event          INTEGER NOT NULL REFERENCES events (id),
    target         INTEGER NOT NULL, -- targets.id
    generation     INTEGER NOT NULL CHECK (generation >= 1),
    redrive_of     INTEGER,          -- the generation before
    key_of         INTEGER,          -- whose id is the idempotency key; NULL = its own
    again          INTEGER NOT NULL CHECK (again = 0 OR again = 1), -- repeats an effect that succeeded
    route          TEXT NOT NULL,
    ordered        INTEGER NOT NULL CHECK (ordered = 0 OR ordered = 1), -- fixed at accept
    line           INTEGER NOT NULL, -- place in line: its own id, or inherited
    state          TEXT NOT NULL CHECK (
        state = 'held' OR state = 'pending' OR state = 'leased' OR state = 'running' OR state = 'blocked' OR
        state = 'succeeded' OR state = 'failed' OR state = 'cancelled' OR state = 'expired'),
    block          TEXT CHECK (block = 'outcome' OR block = 'config' OR block = 'route' OR block = 'refused'), -- what a blocked one waits for
    due_ms         INTEGER NOT NULL,
    accepted_ms    INTEGER NOT NULL,
    expires_ms     INTEGER,
    first_start_ms INTEGER,
    attempts       INTEGER NOT NULL CHECK (attempts >= 0),   -- charged to the retry budget
    losses         INTEGER NOT NULL CHECK (losses >= 0),     -- lost to crashes
    executions     INTEGER NOT NULL CHECK (executions >= 0), -- all, those no longer kept included
    execution      INTEGER,          -- the latest
    code           TEXT NOT NULL,    -- why it is in this state
    cancel_ms      INTEGER,
    finished_ms    INTEGER,
    version        INTEGER NOT NULL, bytes /* its share of the event, and 1 KiB for its rows; fixed at accept */ INTEGER NOT NULL DEFAULT 1024,
    CHECK ((finished_ms IS NOT NULL) = (state = 'succeeded' OR state = 'failed' OR state = 'cancelled' OR state = 'expired')),
    CHECK ((block IS NOT NULL) = (state = 'blocked')),
    CHECK (execution IS NOT NULL OR state <> 'leased' AND state <> 'running'),
    CHECK (state <> 'running' OR first_start_ms IS NOT NULL)
) STRICT;
CREATE INDEX deliveries_line ON deliveries (target, line) WHERE state = 'held' OR state = 'pending' OR state = 'blocked';
CREATE INDEX deliveries_due ON deliveries (target, due_ms, line) WHERE state = 'pending' AND ordered = 0;
CREATE INDEX deliveries_expiring ON deliveries (expires_ms) WHERE expires_ms IS NOT NULL AND (state = 'held' OR state = 'pending');
CREATE INDEX deliveries_blocked ON deliveries (id) WHERE state = 'blocked';
CREATE INDEX deliveries_of_event ON deliveries (event);
CREATE UNIQUE INDEX deliveries_redrive ON deliveries (redrive_of) WHERE redrive_of IS NOT NULL;

CREATE TABLE executions (
    -- One claim of a delivery under one lease. The id only grows: it is the
    -- fence. Inserted in the claiming commit, updated once at settle.
    id           INTEGER PRIMARY KEY,
    delivery     INTEGER,          -- NULL for WithTarget
    attempt      INTEGER NOT NULL,
    owner        INTEGER NOT NULL, -- owners.id
    token        INTEGER NOT NULL, -- of its lease
    revision     INTEGER,          -- what the handler declared at the claim; NULL for WithTarget
    claimed_ms   INTEGER NOT NULL,
    started_ms   INTEGER,
    ended_ms     INTEGER,
    outcome      TEXT CHECK (
        outcome = 'succeeded' OR outcome = 'retry' OR outcome = 'failed' OR outcome = 'deferred' OR outcome = 'indeterminate' OR
        outcome = 'blocked' OR outcome = 'interrupted' OR outcome = 'cancelled' OR outcome = 'lost'),
    code         TEXT,
    detail       TEXT,             -- for people; scrubbed and bounded
    late_outcome TEXT,             -- what the handler answered after its lease was gone
    CHECK ((ended_ms IS NOT NULL) = (outcome IS NOT NULL))
) STRICT;
CREATE INDEX executions_of_delivery ON executions (delivery, id) WHERE delivery IS NOT NULL;

CREATE TABLE leases (
    -- The right to work on a target until a time. Rows exist only while
    -- held, so there are never more than workers.
    target     INTEGER NOT NULL, -- targets.id
    slot       INTEGER NOT NULL,
    token      INTEGER NOT NULL,
    delivery   INTEGER,           -- NULL for WithTarget
    execution  INTEGER NOT NULL,
    owner      INTEGER NOT NULL, -- owners.id
    expires_ms INTEGER NOT NULL,
    PRIMARY KEY (target, slot)
) STRICT, WITHOUT ROWID;

CREATE TABLE consumptions (
    -- The effect of this event for this target is done. Written with every
    -- move into succeeded, and outlives delivery and body.
    event  INTEGER NOT NULL,
    target INTEGER NOT NULL,
    PRIMARY KEY (event, target)
) STRICT, WITHOUT ROWID;

CREATE TABLE recoveries (
    -- One row per execution of once work whose outcome is unknown; closed by
    -- a late result, by evidence or by a person.
    execution  INTEGER PRIMARY KEY,
    delivery   INTEGER NOT NULL,
    opened_ms  INTEGER NOT NULL,
    closed_ms  INTEGER,
    resolution TEXT CHECK (resolution = 'succeeded' OR resolution = 'failed' OR resolution = 'retry' OR resolution = 'late'),
    reason     TEXT,
    actor      TEXT,
    CHECK ((closed_ms IS NOT NULL) = (resolution IS NOT NULL))
) STRICT;
CREATE INDEX recoveries_of_delivery ON recoveries (delivery);
CREATE INDEX deliveries_succeeded ON deliveries (finished_ms) WHERE state = 'succeeded';
CREATE INDEX deliveries_failed ON deliveries (finished_ms) WHERE state = 'failed' OR state = 'cancelled' OR state = 'expired';

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
CREATE INDEX deliveries_unsuccessful ON deliveries (id, state) WHERE state = 'failed' OR state = 'cancelled' OR state = 'expired';
CREATE INDEX executions_borrowed ON executions (ended_ms) WHERE delivery IS NULL AND ended_ms IS NOT NULL;

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

CREATE TABLE marks (
    -- Ring of the last 4,096 writing commits. The side file beside the
    -- database names one of them; when it does not, something was lost.
    slot      INTEGER PRIMARY KEY, -- commit_no % 4096
    commit_no INTEGER NOT NULL,
    chain     INTEGER NOT NULL
) STRICT;

CREATE TABLE losses (
    -- What database and side file disagreed about at an opening, and what
    -- people decided.
    id              INTEGER PRIMARY KEY,
    found_ms        INTEGER NOT NULL,
    kind            TEXT NOT NULL,
    expected_no     INTEGER NOT NULL, -- by the side file; -1 = there was none
    expected_chain  INTEGER NOT NULL,
    found_no        INTEGER NOT NULL, -- in the database
    found_chain     INTEGER NOT NULL,
    detail          TEXT NOT NULL,    -- for people
    lost            INTEGER NOT NULL CHECK (lost = 0 OR lost = 1), -- acknowledged work may be gone
    hold            INTEGER NOT NULL CHECK (hold = 0 OR hold = 1), -- nothing is dispatched
    accepted_ms     INTEGER,
    accepted_by     TEXT,
    accepted_reason TEXT,
    resumed_ms      INTEGER,
    resumed_by      TEXT,
    resumed_reason  TEXT,
    CHECK (hold = 0 OR resumed_ms IS NULL)
) STRICT;
CREATE INDEX losses_open ON losses (id) WHERE hold = 1;

CREATE TABLE former_nodes (
    -- Names that this file's node had before it was copied, with the last
    -- numbers that bear them. The present one is in settings.
    id       INTEGER PRIMARY KEY,
    name     TEXT NOT NULL,
    event    INTEGER NOT NULL,
    delivery INTEGER NOT NULL,
    until_ms INTEGER NOT NULL
) STRICT;

PRAGMA application_id = 1718510448;
PRAGMA user_version = 7;
