-- no-transaction
-- Where ready is true: the endpoints whose turn it is, and what they get, in the order of the events.
-- Both values together: everything that is pending for one endpoint, so that it can be canceled.
CREATE INDEX CONCURRENTLY webhook_deliveries_pending_by_endpoint
    ON webhook_deliveries (ready, account_id, endpoint_id, event_id) WHERE status = 'pending';
