-- By default autovacuum waits until a fifth of a table is dead: two million rows of ten million, which
-- the sweep then leaves behind in one go, and which every index keeps pointing at. With a fiftieth it
-- comes ten times as often and has a tenth to do, so that the space of removed rows is used again before
-- the tables grow. The statistics follow in the same steps.
SET LOCAL lock_timeout = '2s';

ALTER TABLE events SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
ALTER TABLE webhook_deliveries
    SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
ALTER TABLE operations
    SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
