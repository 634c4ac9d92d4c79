-- An account moves from one shard to another while it is served (`charge-once account move`). PostgreSQL copies
-- its rows; this says how far the move is, and keeps each of the two homes from acting where the other one does.
--
-- The old home: copying → draining (workers begin nothing new) → frozen (nothing is written) → leaving (nothing
-- is read either). The new home: arriving → arrived. No row: the account stays where it is.
--
-- These need the tables `api_keys`, `idempotency_tombstones` and `webhook_deliveries`, too.
SET LOCAL lock_timeout = '2s';

CREATE TABLE moving (
    account_id  uuid        NOT NULL,
    state       text        COLLATE "C" NOT NULL,
    other       text        COLLATE "C" NOT NULL,
    since       timestamptz NOT NULL DEFAULT now(),
    held        jsonb,
    switched_by xid8,

    CONSTRAINT an_account_moves_once_at_a_time PRIMARY KEY (account_id),
    CONSTRAINT a_state_of_a_move_is_known CHECK (state IN ('copying', 'draining', 'frozen', 'leaving', 'arriving', 'arrived')),
    CONSTRAINT only_a_frozen_account_has_rows_taken_out CHECK (held IS NULL OR state IN ('frozen', 'leaving')),
    CONSTRAINT only_an_account_that_arrived_was_switched CHECK ((switched_by IS NOT NULL) = (state = 'arrived'))
);

COMMENT ON TABLE moving IS 'Accounts that are on their way from one shard to another, in both of them.';
COMMENT ON COLUMN moving.other IS 'The shard that the account goes to, or comes from.';
COMMENT ON COLUMN moving.since IS 'When it came into this state.';
COMMENT ON COLUMN moving.held IS
    'Rows by which workers find what to do, by table. They go to the new home with the account itself.';
COMMENT ON COLUMN moving.switched_by IS
    'The transaction that made this the home. What an older one wrote came from the old home.';

-- 57C01 is of the class in which PostgreSQL says that it accepts nothing now: each release answers 503. Transactions
-- that asked before the freeze are waited for.
CREATE OR REPLACE FUNCTION the_account_lives_here() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF EXISTS (SELECT FROM accounts WHERE id = NEW.account_id)
       AND NOT EXISTS (SELECT FROM moving
                        WHERE account_id = NEW.account_id AND state IN ('frozen', 'leaving')) THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION 'the account % does not live in this shard, or moves just now', NEW.account_id
        USING ERRCODE = '57C01';
END
$$;

-- A request may have claimed its key long before.
CREATE TRIGGER an_outcome_is_saved_where_its_account_lives
    AFTER UPDATE OF status ON idempotency_keys
    FOR EACH ROW EXECUTE FUNCTION the_account_lives_here();

-- A key that is revoked at the old home must not stay valid at the new one.
CREATE TRIGGER an_api_key_changes_where_its_account_lives
    AFTER INSERT OR UPDATE ON api_keys
    FOR EACH ROW EXECUTE FUNCTION the_account_lives_here();

-- What changes without a key has no claim that could be refused, so it holds the account first. The move waits for
-- this lock when it has closed the account. Each statement here sees what was committed before it began.
CREATE FUNCTION hold_account(wanted uuid) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM FROM accounts WHERE id = wanted FOR SHARE;
    IF FOUND AND NOT EXISTS (SELECT FROM moving
                              WHERE account_id = wanted AND state IN ('frozen', 'leaving')) THEN
        RETURN;
    END IF;
    RAISE EXCEPTION 'the account % does not live in this shard, or moves just now', wanted
        USING ERRCODE = '57C01';
END
$$;

-- The sweep of the new home must not remove what the old one may still take over and execute again, and neither
-- may remove what is being compared. What is swept is dead, and stays until the move is over. A key in flight that
-- a holder gives up is no business of the sweep's.
CREATE FUNCTION a_key_stays_while_its_account_moves() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
DECLARE
    found text := (SELECT state FROM moving WHERE account_id = OLD.account_id);
BEGIN
    IF found IS NULL OR found IN ('copying', 'draining') OR found = 'arrived' AND OLD.status IS NULL THEN
        RETURN OLD;
    ELSIF OLD.status IS NOT NULL OR found = 'arriving' THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION 'the account % moves just now', OLD.account_id USING ERRCODE = '57C01';
END
$$;

CREATE TRIGGER a_key_stays_while_its_account_moves
    BEFORE DELETE ON idempotency_keys
    FOR EACH ROW EXECUTE FUNCTION a_key_stays_while_its_account_moves();

-- What is remembered of a key has no account, but ids that begin with its hash. Both homes must have the same.
CREATE FUNCTION a_memory_stays_while_its_account_moves() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF EXISTS (SELECT FROM moving
                WHERE substring(sha256(uuid_send(account_id)) FOR 8) = substring(uuid_send(OLD.id) FOR 8)) THEN
        RETURN NULL;
    END IF;
    RETURN OLD;
END
$$;

CREATE TRIGGER a_memory_stays_while_its_account_moves
    BEFORE DELETE ON idempotency_tombstones
    FOR EACH ROW EXECUTE FUNCTION a_memory_stays_while_its_account_moves();

-- Two homes must not send one webhook. To a worker, a row that isn't changed is one that another worker has.
CREATE FUNCTION a_webhook_waits_while_its_account_moves() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF EXISTS (SELECT FROM moving
                WHERE account_id = NEW.account_id AND state IN ('draining', 'frozen', 'leaving')) THEN
        RETURN NULL;
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER a_webhook_waits_while_its_account_moves
    BEFORE UPDATE OF claim ON webhook_deliveries
    FOR EACH ROW WHEN (NEW.claim IS NOT NULL AND NEW.claim IS DISTINCT FROM OLD.claim)
    EXECUTE FUNCTION a_webhook_waits_while_its_account_moves();
