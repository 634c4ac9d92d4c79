-- What the histories share: two tables in a schema of their own, and how they show what happens. This
-- session is one request. Each `psql` after `\!` or `\o |` is another, which connects as this one did.
\set QUIET on
\set VERBOSITY terse
\pset format unaligned
\setenv PGHOST :HOST
\setenv PGPORT :PORT
\setenv PGUSER :USER
\setenv PGDATABASE :DBNAME
\setenv PGOPTIONS '--search_path=charge_once_histories --client_min_messages=error'
SET search_path = charge_once_histories;
SET client_min_messages = error;
SET statement_timeout = '10s';
DROP SCHEMA IF EXISTS charge_once_histories CASCADE;
CREATE SCHEMA charge_once_histories;
CREATE TABLE keys (key text, reply text);
CREATE TABLE charges (amount integer);

-- Returns when another session waits for this one.
CREATE PROCEDURE until_another_session_waits() LANGUAGE plpgsql AS $$
BEGIN
    WHILE NOT EXISTS (SELECT FROM pg_locks WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid))) LOOP
        PERFORM pg_sleep(0.01);
    END LOOP;
END
$$;
\set QUIET off
\set ECHO all
