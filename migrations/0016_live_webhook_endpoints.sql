-- no-transaction
-- An account may delete as many endpoints as it likes. Each event reads those that live, and so do the
-- list and the count of endpoints.
CREATE INDEX CONCURRENTLY webhook_endpoints_live
    ON webhook_endpoints (account_id, id DESC) WHERE deleted_at IS NULL;
