-- A database that is one of several, the shards of a service. Each account lives in one of them, and its
-- row in `accounts` says so: there is no other list of who lives where.
--
-- These tables are made only where a service has several databases. They need the tables `accounts`, with
-- the column `id`, and `idempotency_keys`, with `account_id`.
SET LOCAL lock_timeout = '2s';

-- The name of this shard, for good: another database under the same name, or this one under another, is
-- refused when a process starts.
CREATE TABLE shard (
    name     text    COLLATE "C" NOT NULL,
    is_there boolean NOT NULL DEFAULT true,

    CONSTRAINT a_shard_has_one_name PRIMARY KEY (is_there),
    CONSTRAINT a_shard_has_one_row CHECK (is_there)
);

COMMENT ON TABLE shard IS 'Which of several databases this one is.';

-- A key can't be claimed for an account that lives elsewhere, whatever a program believes: neither a new one
-- nor an expired one, whose fingerprint a claim replaces. Each request with a key claims it, so no other table
-- needs the check. It takes no lock: a foreign key would lock the
-- account's row in each transaction (crates/api-keys/migrations/0001_api_keys.sql says what that costs).
CREATE FUNCTION the_account_lives_here() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF EXISTS (SELECT FROM accounts WHERE id = NEW.account_id) THEN
        RETURN NULL;
    END IF;
    -- cannot_connect_now: the client repeats its request, and a process that knows better serves it.
    RAISE EXCEPTION 'the account % does not live in this shard', NEW.account_id USING ERRCODE = '57P03';
END
$$;

CREATE TRIGGER a_key_is_claimed_where_its_account_lives
    AFTER INSERT OR UPDATE OF fingerprint ON idempotency_keys
    FOR EACH ROW EXECUTE FUNCTION the_account_lives_here();
