-- no-transaction
-- Test accounts that are open, the first to end first: the sweep looks for those that have ended, and the
-- creation of another one counts them.
CREATE INDEX CONCURRENTLY accounts_to_close
    ON accounts (test_until) WHERE test_until IS NOT NULL AND closed_at IS NULL;
