-- Every record is removed in the end, and removed records lie together, but their entries in the primary
-- key lie all over it: each pass of autovacuum changes nearly all pages of that index, and logs them whole.
-- With a fiftieth dead, passes would follow each other without a rest while millions of records are swept.
-- With a tenth there is a fifth of them, and the table grows by a tenth at most before its space is used
-- again.
SET LOCAL lock_timeout = '2s';

ALTER TABLE idempotency_keys SET (autovacuum_vacuum_scale_factor = 0.1);
