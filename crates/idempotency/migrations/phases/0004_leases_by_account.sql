-- no-transaction
-- The reconciler gives each account its turn, and takes the operation that waits longest of the account
-- whose turn it is. idempotency_leases_by_recovery serves replicas of the release before, and goes in the
-- next one.
CREATE INDEX CONCURRENTLY idempotency_leases_by_account
    ON idempotency_leases (kind, account_id, recover_after);
