-- The role of `charge-once account move` (docs/scale.md):
--
--   charge_once_mover  does what charge_once_migrator may, and copies rows from one PostgreSQL to another
--
-- Run it in each shard after roles.sql, as a superuser, with psql 15 or later:
--
--   psql --set ON_ERROR_STOP=1 --file deploy/postgres/mover.sql postgres://…
--
-- It can be run again at any time. Who knows the role's password can read and change all rows, so let the
-- role log in only while accounts move: ALTER ROLE charge_once_mover NOLOGIN.
--
-- The password comes from the environment, and is left alone where the variable is unset.
\getenv mover_password CHARGE_ONCE_MOVER_PASSWORD

SELECT 'CREATE ROLE charge_once_mover NOSUPERUSER NOCREATEDB NOCREATEROLE'
 WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'charge_once_mover')
\gexec
ALTER ROLE charge_once_mover LOGIN REPLICATION;
\if :{?mover_password}
ALTER ROLE charge_once_mover PASSWORD :'mover_password';
\endif
-- These extensions record statements within functions, and one has a password. Without them, nothing changes.
ALTER ROLE charge_once_mover SET pg_stat_statements.track = 'top';
ALTER ROLE charge_once_mover SET pgaudit.log = 'none';

BEGIN;
-- A publication takes the tables' owner.
GRANT charge_once_migrator TO charge_once_mover;
SELECT format('GRANT CONNECT, CREATE, TEMPORARY ON DATABASE %I TO charge_once_mover', current_database())
\gexec
-- Rows are deleted without a look at foreign keys: all of the account go.
GRANT SET ON PARAMETER session_replication_role TO charge_once_mover;
-- How far the copy is behind. It shows statements of all sessions, too.
GRANT pg_read_all_stats TO charge_once_mover;

SELECT current_setting('server_version_num')::int >= 160000 AS can_be_granted
\gset
\if :can_be_granted
GRANT pg_create_subscription TO charge_once_mover;
\else
-- PostgreSQL 15 lets only a superuser subscribe. This function subscribes as you, and only to a move. The
-- caller gets the subscription, and its workers then write as the caller: nothing is left that is a
-- superuser's. The new owner must be one when he gets it; no other session sees that he was.
CREATE OR REPLACE FUNCTION charge_once_subscribe(name text, url text) RETURNS void
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS $$
BEGIN
    IF name !~ '^charge_once_move_[0-9a-f]{32}_[0-9a-f]{8}$' OR session_user <> 'charge_once_mover' THEN
        RAISE EXCEPTION 'only charge_once_mover subscribes, and only to a move';
    END IF;
    EXECUTE format('CREATE SUBSCRIPTION %I CONNECTION %L PUBLICATION %I WITH (create_slot = false, slot_name = %L,
                    disable_on_error = true)', name, url, name, name);
    ALTER ROLE charge_once_mover SUPERUSER;
    EXECUTE format('ALTER SUBSCRIPTION %I OWNER TO charge_once_mover', name);
    ALTER ROLE charge_once_mover NOSUPERUSER;
EXCEPTION
    -- Of an error, the log would have the statement with the password, and of a URL that can't be read, a part.
    WHEN syntax_error THEN
        RAISE EXCEPTION 'PostgreSQL can''t read the URL of the old home';
    WHEN OTHERS THEN
        RAISE EXCEPTION USING ERRCODE = SQLSTATE, MESSAGE = SQLERRM;
END
$$;
REVOKE ALL ON FUNCTION charge_once_subscribe(text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION charge_once_subscribe(text, text) TO charge_once_mover;
\endif
COMMIT;
