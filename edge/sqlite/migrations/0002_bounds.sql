ALTER TABLE deliveries ADD COLUMN bytes /* its share of the event, and 1 KiB for its rows; fixed at accept */ INTEGER NOT NULL DEFAULT 1024;
UPDATE deliveries SET bytes = 1024 + (
    SELECT (coalesce(length(e.data), 0) + length(e.source) + length(e.event_id) + length(e.type)) / (
        SELECT count(*) FROM deliveries n WHERE n.event = e.id)
    FROM events e WHERE e.id = deliveries.event);

-- One index per class that is kept for a time and a number of bytes of its own.
DROP INDEX deliveries_finished;
CREATE INDEX deliveries_succeeded ON deliveries (finished_ms) WHERE state = 'succeeded';
CREATE INDEX deliveries_failed ON deliveries (finished_ms) WHERE state = 'failed' OR state = 'cancelled' OR state = 'expired';

INSERT INTO counters (name, value)
    SELECT CASE WHEN finished_ms IS NULL THEN 'bytes.open' WHEN state = 'succeeded' THEN 'bytes.succeeded' ELSE 'bytes.failed' END, sum(bytes)
    FROM deliveries GROUP BY 1;
INSERT INTO counters (name, value)
    SELECT 'bytes.unrouted', sum(length(e.data)) FROM events e
    WHERE e.data IS NOT NULL AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.event = e.id)
    HAVING count(*) > 0;
