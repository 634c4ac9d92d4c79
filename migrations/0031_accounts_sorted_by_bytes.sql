-- As 0029 does for orders: two accounts could otherwise get one name. The table is small, so requests that look up
-- API keys wait for a moment.
SET LOCAL lock_timeout = '2s';

ALTER TABLE accounts ALTER COLUMN name TYPE text COLLATE "C";
ANALYZE accounts (name);
