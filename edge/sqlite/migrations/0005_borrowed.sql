-- Executions of WithTarget, which belong to no delivery and go by their age.
CREATE INDEX executions_borrowed ON executions (ended_ms) WHERE delivery IS NULL AND ended_ms IS NOT NULL;
