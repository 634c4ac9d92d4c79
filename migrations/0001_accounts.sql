-- Who may call. An account is the tenant: it owns charges, orders and idempotency keys. API keys
-- come and go (rotation) without touching what the account owns.
CREATE TABLE accounts (
    id         uuid        NOT NULL,
    name       text        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),

    CONSTRAINT accounts_are_known_by_id PRIMARY KEY (id),
    CONSTRAINT an_account_name_is_unique UNIQUE (name),
    CONSTRAINT an_account_name_has_1_to_100_characters CHECK (char_length(name) BETWEEN 1 AND 100)
);

CREATE TABLE api_keys (
    -- SHA-256 of the key. The key itself has at least 128 random bits, so a plain hash is enough:
    -- there is nothing to guess, and the look-up stays one index probe.
    hash       bytea       NOT NULL,
    account_id uuid        NOT NULL,
    -- The last four characters, so that a person can tell keys apart in a list.
    last4      text        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    revoked_at timestamptz,

    CONSTRAINT api_keys_are_found_by_hash PRIMARY KEY (hash),
    CONSTRAINT an_api_key_belongs_to_an_account FOREIGN KEY (account_id) REFERENCES accounts (id),
    CONSTRAINT an_api_key_hash_is_a_sha256 CHECK (octet_length(hash) = 32)
);

CREATE INDEX api_keys_by_account ON api_keys (account_id);

COMMENT ON TABLE accounts IS 'Tenants. Everything a client creates belongs to one account.';
COMMENT ON TABLE api_keys IS
    'Hashes of the keys that authenticate an account; a key is shown once and not kept.';
