-- An account may be made for a test. It ends by itself: from test_until on, its API keys no longer
-- authenticate. The sweep removes its data afterwards, in batches, and then marks the row as closed. The
-- row stays, so that no id is ever used twice.
--
-- Both columns are NULL for every other account, so no row is rewritten, and the release before this one
-- can ignore them. During a rollout, a replica of that release still accepts the keys of a test account
-- that has ended, as long as they are not revoked.
SET LOCAL lock_timeout = '2s';

ALTER TABLE accounts ADD COLUMN test_until timestamptz;
ALTER TABLE accounts ADD COLUMN closed_at timestamptz;

COMMENT ON COLUMN accounts.test_until IS 'When a test account ends; NULL: it is no test account.';
COMMENT ON COLUMN accounts.closed_at IS
    'When all that an ended test account had was removed, and its API keys revoked.';
