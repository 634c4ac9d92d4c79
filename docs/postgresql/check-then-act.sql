\ir begin.sql
BEGIN;
SELECT reply FROM keys WHERE key = 'order-1' FOR UPDATE;
-- Nothing is found, so nothing is locked. A duplicate finds nothing, either, and charges.
\! psql -qXAc "SELECT reply FROM keys WHERE key = 'order-1' FOR UPDATE"
\! psql -qX1c "INSERT INTO charges VALUES (2000)" -c "INSERT INTO keys VALUES ('order-1', 'ch_1')"
INSERT INTO charges VALUES (2000);
INSERT INTO keys VALUES ('order-1', 'ch_2');
COMMIT;
SELECT count(*) AS charges FROM charges;
