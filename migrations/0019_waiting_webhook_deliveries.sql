-- no-transaction
-- What waits for its next attempt or for the end of one, the first that is due first.
CREATE INDEX CONCURRENTLY webhook_deliveries_waiting
    ON webhook_deliveries (next_attempt_at) WHERE status = 'pending' AND NOT ready;
