-- Who may call. An account is the tenant. API keys come and go (rotation) without touching what the
-- account owns.
--
-- Indexed text is sorted by bytes (COLLATE "C"): the locale of a database sorts in an order that
-- another version of the operating system's C library may change, and indexes then miss rows.
CREATE TABLE accounts (
    id         uuid        NOT NULL,
    name       text        COLLATE "C" NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    -- An account may be made for a test. It ends by itself: from test_until on, its API keys no
    -- longer authenticate. Its row stays when its data has been removed, marked as closed, so that
    -- no id is ever used twice.
    test_until timestamptz,
    closed_at  timestamptz,

    CONSTRAINT accounts_are_known_by_id PRIMARY KEY (id),
    CONSTRAINT an_account_name_is_unique UNIQUE (name),
    CONSTRAINT an_account_name_has_1_to_100_characters CHECK (char_length(name) BETWEEN 1 AND 100)
);

-- Test accounts that are open, the first to end first: a sweep looks for those that have ended, and
-- the creation of another one counts them.
CREATE INDEX accounts_to_close
    ON accounts (test_until) WHERE test_until IS NOT NULL AND closed_at IS NULL;
-- All accounts that are open: test accounts that were closed may be far more.
CREATE INDEX accounts_open ON accounts (id) WHERE closed_at IS NULL;

CREATE TABLE api_keys (
    -- SHA-256 of the key. The key itself has at least 128 random bits, so a plain hash is enough:
    -- there is nothing to guess, and the look-up stays one index probe.
    hash             bytea       NOT NULL,
    account_id       uuid        NOT NULL,
    -- The last four characters, so that a person can tell keys apart in a list.
    last4            text        NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT now(),
    revoked_at       timestamptz,
    -- When the variable DEV_API_KEY gets another value, the key of the value before is revoked; and
    -- that value, set again, makes its key valid again. A key that a person revoked stays revoked:
    -- that takes the mark away.
    from_dev_api_key boolean     NOT NULL DEFAULT false,

    CONSTRAINT api_keys_are_found_by_hash PRIMARY KEY (hash),
    CONSTRAINT an_api_key_belongs_to_an_account FOREIGN KEY (account_id) REFERENCES accounts (id),
    CONSTRAINT an_api_key_hash_is_a_sha256 CHECK (octet_length(hash) = 32)
);

CREATE INDEX api_keys_by_account ON api_keys (account_id);

-- Rows that are written with every request should have no foreign key to accounts. Such a key locks
-- the row that it refers to, FOR KEY SHARE, in every transaction that inserts: all transactions of an
-- account would meet at its one row. Two of them at a time make PostgreSQL write a multixact: one for
-- each transaction, a second space of ids that runs out and has to be vacuumed like the first. What
-- the key would keep true needs no lock: an account is never deleted, and a request has its account
-- from its API key.

COMMENT ON TABLE accounts IS 'Tenants. Everything a client creates belongs to one account.';
COMMENT ON COLUMN accounts.test_until IS 'When a test account ends; NULL: it is no test account.';
COMMENT ON COLUMN accounts.closed_at IS
    'When all that an ended test account had was removed, and its API keys revoked.';
COMMENT ON TABLE api_keys IS
    'Hashes of the keys that authenticate an account; a key is shown once and not kept.';
COMMENT ON COLUMN api_keys.from_dev_api_key IS
    'Whether it came from DEV_API_KEY, whose next value revokes it.';
