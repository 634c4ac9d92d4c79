-- Roles of PostgreSQL for charge-once, each with what it needs and no more:
--
--   charge_once_migrator  owns the schema: `charge-once migrate`
--   charge_once_app       reads and writes rows, and changes no table: `charge-once serve`, `api-key`
--   charge_once_sweeper   removes keys and rows that are kept for a while: `charge-once sweep`. It
--                         leaves test accounts that ended to the servers: they have charges
--   charge_once_reader    reads all but credentials and stored replies: `charge-once check`, `keys list`,
--                         `sweep --dry-run`, and the statements of docs/runbook.md. It writes one row, the
--                         result of a check
--
-- Run it in the database of charge-once, as a role that may create roles, with psql 15 or later:
--
--   psql --set ON_ERROR_STOP=1 --file deploy/postgres/roles.sql postgres://…
--
-- It can be run again at any time. Run it again after each upgrade: rights are those of the tables and
-- columns that are named here. Run it before the first migration, or else hand over what another role has
-- made: REASSIGN OWNED BY that_role TO charge_once_migrator.
--
-- The rights are those of one schema: where the tables are, or else where this session would make them, which is
-- `public` unless the URL or a default of your role says otherwise.
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

-- All or nothing: a run that fails leaves the rights that were there, and servers that run miss none
-- meanwhile.
BEGIN;

-- PostgreSQL lets every role connect to every database and make temporary tables there.
SELECT format('REVOKE ALL ON DATABASE %I FROM PUBLIC', current_database()),
       format('GRANT CONNECT ON DATABASE %I TO charge_once_migrator, charge_once_app,
               charge_once_sweeper, charge_once_reader', current_database())
\gexec
-- As an identifier, quoted if need be. Tables in two schemas end this with an error.
SELECT coalesce((SELECT relnamespace::regnamespace::text
                   FROM pg_class
                  WHERE relname IN ('idempotency_migrations', 'charges') AND relkind IN ('r', 'p')
                    AND relpersistence <> 't'
                  GROUP BY relnamespace HAVING count(*) = 2),
                quote_ident(current_schema())) AS schema
\gset
REVOKE ALL ON SCHEMA :schema FROM PUBLIC;
GRANT USAGE, CREATE ON SCHEMA :schema TO charge_once_migrator;
GRANT USAGE ON SCHEMA :schema TO charge_once_app, charge_once_sweeper, charge_once_reader;

-- To set the default rights of a role takes membership in it, which a superuser needs not.
SELECT 'GRANT charge_once_migrator TO CURRENT_USER'
 WHERE NOT pg_has_role(current_user, 'charge_once_migrator', 'MEMBER')
\gexec
ALTER DEFAULT PRIVILEGES FOR ROLE charge_once_migrator IN SCHEMA :schema
    REVOKE ALL ON TABLES FROM charge_once_app, charge_once_sweeper, charge_once_reader;
-- A server works with the tables of a later migration before this file is run again.
ALTER DEFAULT PRIVILEGES FOR ROLE charge_once_migrator IN SCHEMA :schema
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO charge_once_app;

-- This takes the rights to single columns, too.
REVOKE ALL ON ALL TABLES IN SCHEMA :schema FROM charge_once_app, charge_once_sweeper, charge_once_reader;

-- A right without columns is one to the whole table. `but` is for all columns but these. To lock a row
-- takes the right to update one column of it: where a role only locks and deletes, that is one that decides
-- nothing. Tables and columns that aren't there yet are passed over.
WITH rights (role, tables, verb, columns, but) AS (
    VALUES
    -- Who may call is added, and ended; no key is changed into another one.
    ('app', '{accounts,api_keys}', 'INSERT', NULL, NULL),
    ('app', '{accounts}', 'UPDATE', '{closed_at}', NULL),
    ('app', '{api_keys}', 'UPDATE', '{revoked_at,from_dev_api_key}', NULL),
    -- What was told and what a person decided stays as it was written.
    ('app', '{events,manual_resolutions,request_log,webhook_replies}', 'INSERT, DELETE', NULL, NULL),
    ('app', '{events}', 'UPDATE', '{traceparent}', NULL),
    ('app', '{request_log}', 'UPDATE', '{path}', NULL),
    -- The steps of a checkout go with it.
    ('app', '{checkout_steps,last_check}', 'INSERT, UPDATE', NULL, NULL),
    ('app', '{charges,checkouts,customers,fault_plans,idempotency_keys,idempotency_leases,
              idempotency_tombstones,inventory,operations,orders,payment_intents,payment_methods,refunds,request_counts,setup_intents,
              webhook_deliveries,webhook_endpoints}',
     'INSERT, UPDATE, DELETE', NULL, NULL),
    -- Of several databases, each knows which one it is. Where replies are sealed, there is an index for it.
    -- Triggers ask whether an account moves, and metrics tell since when.
    ('app', '{moving}', 'SELECT', '{account_id,other,since,state}', NULL),
    ('sweeper', '{moving}', 'SELECT', '{account_id,state}', NULL),
    ('reader', '{moving}', 'SELECT', NULL, '{held}'),
    ('app', '{idempotency_seal_migrations,shard,shard_migrations}', 'SELECT', NULL, NULL),
    ('sweeper', '{idempotency_seal_migrations,shard,shard_migrations}', 'SELECT', NULL, NULL),
    ('reader', '{idempotency_seal_migrations,shard,shard_migrations}', 'SELECT', NULL, NULL),
    ('app', '{accounts,api_keys,charges,checkout_steps,checkouts,customers,events,events_without_secrets,
              fault_plans,idempotency_keys,idempotency_leases,idempotency_tombstones,inventory,last_check,
              manual_resolutions,
              operations,orders,payment_intents,payment_methods,refunds,request_counts,request_log,setup_intents,
              webhook_deliveries,webhook_endpoints,webhook_replies,
              _sqlx_migrations,api_keys_migrations,idempotency_migrations,
              request_log_migrations,webhooks_migrations}', 'SELECT', NULL, NULL),

    ('sweeper', '{_sqlx_migrations,api_keys_migrations,idempotency_migrations,request_log_migrations,
                  webhooks_migrations}', 'SELECT', NULL, NULL),
    ('sweeper', '{accounts}', 'SELECT', '{id,closed_at}', NULL),
    ('sweeper', '{idempotency_keys}', 'SELECT', '{ctid,account_id,key,fingerprint,status,expires_at,resource_id}', NULL),
    ('sweeper', '{idempotency_keys}', 'UPDATE', '{expires_at}', NULL),
    -- What it removes is remembered.
    ('sweeper', '{idempotency_tombstones}', 'SELECT, INSERT, UPDATE, DELETE', NULL, NULL),
    ('sweeper', '{events,request_log}', 'SELECT', '{account_id,id,created_at}', NULL),
    ('sweeper', '{request_counts}', 'SELECT', '{account_id,minute}', NULL),
    ('sweeper', '{events}', 'UPDATE', '{traceparent}', NULL),
    ('sweeper', '{request_log}', 'UPDATE', '{path}', NULL),
    ('sweeper', '{operations}', 'SELECT', '{account_id,id,checkout_id,created_at,completed_at}', NULL),
    ('sweeper', '{operations}', 'UPDATE', '{request_id}', NULL),
    ('sweeper', '{webhook_deliveries}', 'SELECT', '{account_id,event_id,status}', NULL),
    ('sweeper', '{webhook_replies}', 'SELECT', '{account_id,delivery_id,created_at}', NULL),
    ('sweeper', '{checkouts}', 'SELECT', '{account_id,id,status}', NULL),
    ('sweeper', '{events,idempotency_keys,operations,request_counts,request_log,webhook_deliveries,webhook_replies}', 'DELETE',
     NULL, NULL),

    ('reader', '{accounts,charges,checkout_steps,checkouts,customers,events_without_secrets,fault_plans,
                 idempotency_leases,idempotency_tombstones,inventory,last_check,manual_resolutions,operations,
                 orders,payment_methods,refunds,request_counts,request_log,webhook_deliveries,_sqlx_migrations,api_keys_migrations,
                 idempotency_migrations,request_log_migrations,
                 webhooks_migrations}', 'SELECT', NULL, NULL),
    -- A client secret, or the address of a holder's page, is all that it takes to complete a payment.
    -- Objects in events have both; the view above masks them. `before_operation` has the address, too.
    ('reader', '{events}', 'SELECT', NULL, '{object,previous_attributes}'),
    ('reader', '{payment_intents}', 'SELECT', NULL, '{client_secret,holder_page_url,before_operation}'),
    ('reader', '{setup_intents}', 'SELECT', NULL, '{client_secret,holder_page_url}'),
    ('reader', '{api_keys}', 'SELECT', NULL, '{hash}'),
    ('reader', '{idempotency_keys}', 'SELECT', NULL, '{headers,body}'),
    ('reader', '{webhook_endpoints}', 'SELECT', NULL, '{secret}'),
    ('reader', '{webhook_replies}', 'SELECT', NULL, '{reply}'),
    -- The result of a check, which the servers show among their metrics.
    ('reader', '{last_check}', 'INSERT, UPDATE', NULL, NULL)
)
SELECT format('GRANT %s%s ON %s TO charge_once_%s', verb,
              ' (' || string_agg(quote_ident(attname), ', ') || ')', relation, role)
  FROM rights
 CROSS JOIN unnest(tables::text[]) AS name
 CROSS JOIN to_regclass(:'schema' || '.' || name) AS relation
  LEFT JOIN pg_attribute
    ON attrelid = relation AND NOT attisdropped
   AND (attname = ANY (columns::text[]) OR attnum > 0 AND attname <> ALL (but::text[]))
 WHERE relation IS NOT NULL AND (attname IS NOT NULL OR coalesce(columns, but) IS NULL)
 GROUP BY role, relation, verb, columns, but
\gexec

-- Where PUBLIC may not execute new functions, no key could be swept.
SELECT format('GRANT EXECUTE ON FUNCTION %s TO charge_once_app, charge_once_sweeper, charge_once_reader', function)
  FROM to_regprocedure(:'schema' || '.idempotency_tombstone_id(uuid, text)') AS function
 WHERE function IS NOT NULL
\gexec

COMMIT;

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
