-- no-transaction
-- Deleted endpoints for which something may still be pending: few, and only for moments.
CREATE INDEX CONCURRENTLY webhook_endpoints_to_cancel
    ON webhook_endpoints (account_id, id) WHERE deleted_at IS NOT NULL AND canceled_at IS NULL;
