-- By default autovacuum waits until a fifth of a table is dead: two million keys of ten million. With a
-- fiftieth it comes ten times as often and has a tenth to do, so that the space of swept keys is used
-- again before the table grows.
SET LOCAL lock_timeout = '2s';

ALTER TABLE idempotency_keys
    SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
