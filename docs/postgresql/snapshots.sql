\ir begin.sql
CREATE UNIQUE INDEX ON keys (key);
\setenv CLAIM 'INSERT INTO keys VALUES (''order-1'') ON CONFLICT DO NOTHING RETURNING reply'
BEGIN;
INSERT INTO keys VALUES ('order-1', 'ch_1');
-- A duplicate claims and reads in one statement, which waits for this transaction; then it reads again.
\o |out=$(psql -qXAc "WITH claim AS ($CLAIM) TABLE claim UNION SELECT reply FROM keys" -c "SELECT reply FROM keys"); cat >/dev/null; echo "$out"
CALL until_another_session_waits();
COMMIT;
\o
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT count(*) AS charges FROM charges;
\! psql -qXc "INSERT INTO keys VALUES ('order-2', 'ch_2')"
INSERT INTO keys VALUES ('order-2') ON CONFLICT DO NOTHING;
\echo :SQLSTATE
ROLLBACK;
