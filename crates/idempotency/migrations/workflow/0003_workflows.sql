-- A workflow is the requests of an account that have one label, read in the order of their first use.
CREATE INDEX idempotency_keys_by_label ON idempotency_keys (account_id, label, created_at, key)
    WHERE label IS NOT NULL;
