SET LOCAL lock_timeout = '2s';

-- What is left of keys whose records were swept, where they are to be remembered.
--
-- A row has at most 64 bytes, because it is kept for a year rather than a day.
CREATE TABLE idempotency_tombstones (
    id          uuid        NOT NULL,
    -- The first eight bytes of the request's fingerprint.
    request     bigint      NOT NULL,
    expired_at  timestamptz NOT NULL,
    resource_id text        COLLATE "C",

    CONSTRAINT one_tombstone_per_account_and_key PRIMARY KEY (id),
    CONSTRAINT a_tombstone_is_small CHECK (octet_length(resource_id) <= 31)
);

-- The sweep walks them in this order.
CREATE INDEX idempotency_tombstones_by_expiry ON idempotency_tombstones (expired_at);

-- The rows of an account lie together: the first half is of the account alone. A sealed record has
-- the hash of its key already.
CREATE FUNCTION idempotency_tombstone_id(account_id uuid, key text) RETURNS uuid
LANGUAGE sql IMMUTABLE AS $$
    SELECT encode(substring(sha256(uuid_send(account_id)) FOR 8)
                  || substring(CASE WHEN key LIKE ',sealed.%' THEN decode(substr(key, 9), 'hex')
                                    ELSE sha256((account_id::text || ':' || key)::bytea) END
                               FOR 8),
                  'hex')::uuid
$$;

COMMENT ON TABLE idempotency_tombstones IS
    'One row per key whose record was swept, kept for as long as keys are remembered.';
COMMENT ON COLUMN idempotency_tombstones.request IS
    'The first eight bytes of the fingerprint of the request that the key belonged to.';
COMMENT ON COLUMN idempotency_tombstones.expired_at IS
    'When the record died. The key is remembered from then on.';
COMMENT ON COLUMN idempotency_tombstones.resource_id IS
    'The id of what the request created, if it created anything.';
