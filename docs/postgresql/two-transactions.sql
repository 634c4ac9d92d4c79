\ir begin.sql
CREATE UNIQUE INDEX ON keys (key);
\setenv CHARGE 'INSERT INTO charges VALUES (2000)'
\setenv CRASH 'SELECT pg_terminate_backend(pg_backend_pid())'
\setenv KEEP 'INSERT INTO keys VALUES (''order-1'', ''ch_1'')'
-- Two transactions, and a crash between them. The retry finds no key.
\! psql -qXc "$CHARGE" -c "$CRASH" -c "$KEEP" 2>/dev/null
\! psql -qXc "$CHARGE" -c "$KEEP"
SELECT count(*) AS charges FROM charges;
TRUNCATE charges, keys;
-- One transaction (-1), the same crash, and the same retry.
\! psql -qX1c "$CHARGE" -c "$CRASH" -c "$KEEP" 2>/dev/null
\! psql -qX1c "$CHARGE" -c "$KEEP"
SELECT count(*) AS charges FROM charges;
