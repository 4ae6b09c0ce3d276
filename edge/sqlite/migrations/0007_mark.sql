ALTER TABLE sequences ADD COLUMN chain /* derived from that of the commit before; 0 = no commit yet */ INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sequences ADD COLUMN syncs /* commits made for their sync alone (durability normal) */ INTEGER NOT NULL DEFAULT 0;

CREATE TABLE marks (
    -- Ring of the last 4,096 writing commits. The side file beside the
    -- database names one of them; when it does not, something was lost.
    slot      INTEGER PRIMARY KEY, -- commit_no % 4096
    commit_no INTEGER NOT NULL,
    chain     INTEGER NOT NULL
) STRICT;
INSERT INTO marks (slot, commit_no, chain) SELECT commit_no % 4096, commit_no, 0 FROM sequences;

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
