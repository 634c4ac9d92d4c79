-- `phases/0004_leases_by_account.sql` says that idempotency_leases_by_recovery goes. It stays: a reconciler that finds nothing
-- to do looks once a second, and so do metrics, for what is due first of all accounts.
SET LOCAL lock_timeout = '2s';

COMMENT ON INDEX idempotency_leases_by_recovery IS
    'For the look whether anything is due, of any account, and for the count of what is in flight.';
