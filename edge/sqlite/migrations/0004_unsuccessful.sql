-- Lists of what failed, was cancelled or expired, newest first. A row comes here
-- when it ends so, in about the order of ids; what succeeds never does.
CREATE INDEX deliveries_unsuccessful ON deliveries (id, state) WHERE state = 'failed' OR state = 'cancelled' OR state = 'expired';
