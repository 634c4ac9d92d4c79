-- Without a collation, text is sorted by the locale of the database, whose order another version of the C library
-- may change: an index then misses what it holds, and the reconciler would not find operations in doubt. Only keys
-- in flight have a lease, so the indexes are built again in a moment.
SET LOCAL lock_timeout = '2s';

ALTER TABLE idempotency_leases ALTER COLUMN kind TYPE text COLLATE "C";
