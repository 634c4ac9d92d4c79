SET LOCAL lock_timeout = '2s';

-- How often an object was changed, and once for its creation. A verb that changes a row names the
-- version that it has read, so that a change in between is refused and not lost, should its lock ever be
-- forgotten. The release before, which may run beside this one, changes rows under their locks and
-- leaves the version as it is.
ALTER TABLE charges ADD COLUMN version bigint NOT NULL DEFAULT 1;
ALTER TABLE refunds ADD COLUMN version bigint NOT NULL DEFAULT 1;
ALTER TABLE orders ADD COLUMN version bigint NOT NULL DEFAULT 1;
ALTER TABLE payment_intents ADD COLUMN version bigint NOT NULL DEFAULT 1;

COMMENT ON COLUMN charges.version IS '1 when the charge is written, and one more with each change';
COMMENT ON COLUMN refunds.version IS '1 when the refund is written, and one more with each change';
COMMENT ON COLUMN orders.version IS '1 when the order is written, and one more with each change';
COMMENT ON COLUMN payment_intents.version IS '1 when the intent is written, and one more with each change';
