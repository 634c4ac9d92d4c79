-- no-transaction
-- The sweep visits all accounts that are open, a hundred at a time. Test accounts that were closed stay, without
-- any other row, so there may be far more of them: without this index, each hundred read through all those that
-- were closed in between.
CREATE INDEX CONCURRENTLY accounts_open ON accounts (id) WHERE closed_at IS NULL;
