-- Roles of PostgreSQL for charge-once, each with what it needs and no more:
--
--   charge_once_migrator  owns the schema: `charge-once migrate`
--   charge_once_app       reads and writes rows, and changes no table: `charge-once serve`, `api-key`
--   charge_once_sweeper   removes rows, and inserts none: `charge-once sweep`
--   charge_once_reader    reads: `charge-once check`, `keys list`, `sweep --dry-run`, and the statements of
--                         docs/runbook.md. It writes one row, the result of a check
--
-- Run it in the database of charge-once, as a role that may create roles, with psql 15 or later:
--
--   psql --set ON_ERROR_STOP=1 --file deploy/postgres/roles.sql postgres://…
--
-- It can be run again at any time. Run it before the first migration, or else hand over what another
-- role has made: REASSIGN OWNED BY that_role TO charge_once_migrator.
--
-- Passwords come from the environment, and are left alone where a variable is unset.
\getenv migrator_password CHARGE_ONCE_MIGRATOR_PASSWORD
\getenv app_password CHARGE_ONCE_APP_PASSWORD
\getenv sweeper_password CHARGE_ONCE_SWEEPER_PASSWORD
\getenv reader_password CHARGE_ONCE_READER_PASSWORD

SELECT format('CREATE ROLE %I LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION', name)
  FROM unnest(ARRAY['charge_once_migrator', 'charge_once_app', 'charge_once_sweeper',
                    'charge_once_reader']) AS name
 WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name)
\gexec

\if :{?migrator_password}
ALTER ROLE charge_once_migrator PASSWORD :'migrator_password';
\endif
\if :{?app_password}
ALTER ROLE charge_once_app PASSWORD :'app_password';
\endif
\if :{?sweeper_password}
ALTER ROLE charge_once_sweeper PASSWORD :'sweeper_password';
\endif
\if :{?reader_password}
ALTER ROLE charge_once_reader PASSWORD :'reader_password';
\endif

-- PostgreSQL lets every role connect to every database and make temporary tables there.
SELECT format('REVOKE ALL ON DATABASE %I FROM PUBLIC', current_database()),
       format('GRANT CONNECT ON DATABASE %I TO charge_once_migrator, charge_once_app,
               charge_once_sweeper, charge_once_reader', current_database())
\gexec
REVOKE ALL ON SCHEMA public FROM PUBLIC;
GRANT USAGE, CREATE ON SCHEMA public TO charge_once_migrator;
GRANT USAGE ON SCHEMA public TO charge_once_app, charge_once_sweeper, charge_once_reader;

-- Tables that a later migration makes get the same rights as those of today. To set the default rights
-- of a role takes membership in it, which a superuser needs not.
SELECT 'GRANT charge_once_migrator TO CURRENT_USER'
 WHERE NOT pg_has_role(current_user, 'charge_once_migrator', 'MEMBER')
\gexec
ALTER DEFAULT PRIVILEGES FOR ROLE charge_once_migrator IN SCHEMA public
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO charge_once_app;
-- Locking a row takes the right to update it.
ALTER DEFAULT PRIVILEGES FOR ROLE charge_once_migrator IN SCHEMA public
    GRANT SELECT, UPDATE, DELETE ON TABLES TO charge_once_sweeper;
ALTER DEFAULT PRIVILEGES FOR ROLE charge_once_migrator IN SCHEMA public
    GRANT SELECT ON TABLES TO charge_once_reader;

-- The tables that are there already.
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO charge_once_app;
GRANT SELECT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO charge_once_sweeper;
GRANT SELECT ON ALL TABLES IN SCHEMA public TO charge_once_reader;

-- The result of a check, which the servers show among their metrics.
SELECT 'GRANT INSERT, UPDATE ON last_check TO charge_once_reader'
 WHERE to_regclass('public.last_check') IS NOT NULL
\gexec

-- PostgreSQL hides from a role what sessions of other roles do. A person who looks for the session that
-- holds a lock, as docs/runbook.md says, must see all of them. That shows statements of every database of
-- this PostgreSQL, with the values that are written into them. charge-once binds its values, and shows none.
DO $$
BEGIN
    IF pg_has_role('charge_once_reader', 'pg_read_all_stats', 'USAGE') THEN
        RETURN;
    END IF;
    GRANT pg_read_all_stats TO charge_once_reader;
EXCEPTION
    -- A managed PostgreSQL may keep this right to itself. Everything else works without it.
    WHEN insufficient_privilege THEN
        RAISE NOTICE 'charge_once_reader can''t see what sessions of other roles do: %', SQLERRM
            USING HINT = 'An administrator may run: GRANT pg_read_all_stats TO charge_once_reader';
END
$$;

-- Which migrations are applied is written by the migrator alone. Run this file again after the first
-- migration, so that these tables are there.
SELECT format('REVOKE INSERT, UPDATE, DELETE ON %I FROM charge_once_app, charge_once_sweeper', tablename)
  FROM pg_tables
 WHERE schemaname = 'public' AND tablename IN ('_sqlx_migrations', 'idempotency_migrations')
\gexec
