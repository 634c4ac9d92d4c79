-- A workflow is the requests of an account that have one label, in the order of their first use.
-- On a table that is in use, build it CONCURRENTLY by hand first: a plain build blocks every claim.
CREATE INDEX IF NOT EXISTS idempotency_keys_by_label
    ON idempotency_keys (account_id, label, created_at, key) WHERE label IS NOT NULL;
