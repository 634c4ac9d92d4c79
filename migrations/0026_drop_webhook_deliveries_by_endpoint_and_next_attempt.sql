-- no-transaction
-- Replicas from before the turns of 0017 claimed along this index, and none of them runs beside this release.
-- A claim writes each row's new version into every index of the table.
DROP INDEX CONCURRENTLY IF EXISTS webhook_deliveries_by_endpoint_and_next_attempt;
