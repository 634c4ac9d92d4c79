SET LOCAL lock_timeout = '2s';

-- As 0122 did for money: a step names the version that it has read.
ALTER TABLE checkouts ADD COLUMN version bigint NOT NULL DEFAULT 1;

COMMENT ON COLUMN checkouts.version IS '1 when the checkout is written, and one more with each change';
