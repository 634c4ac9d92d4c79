SET LOCAL lock_timeout = '2s';

-- As 0122 did for money: a verb that changes a level names the version that it has read.
ALTER TABLE inventory ADD COLUMN version bigint NOT NULL DEFAULT 1;

COMMENT ON COLUMN inventory.version IS '1 when the level is written, and one more with each change';
