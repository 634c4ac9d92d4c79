-- The memory of "at most once". It names no other table.
--
-- One row is one key of one account. It is inserted (the claim) and completed (status, headers and
-- body) inside the transaction that writes the business rows, so no other transaction sees it half
-- made.
CREATE TABLE idempotency_keys (
    account_id          uuid        NOT NULL,
    -- Byte order ("C"): a key is an opaque token, no language's sorting applies to it.
    key                 text        COLLATE "C" NOT NULL,
    fingerprint_version smallint    NOT NULL,
    fingerprint         bytea       NOT NULL,
    method              text        NOT NULL,
    path                text        NOT NULL,
    request_id          text        NOT NULL,
    label               text        COLLATE "C",
    created_at          timestamptz NOT NULL,
    expires_at          timestamptz NOT NULL,
    -- NULL until the outcome is saved, a few milliseconds later, by the same transaction. A row
    -- that is committed without an outcome belongs to an add-on, and never expires.
    status              smallint,
    headers             jsonb,
    -- bytea, not jsonb: jsonb would turn 1.0 into 1 and merge members, and a replay is byte-exact.
    body                bytea,
    resource_id         text,

    -- The unique index is the arbiter between racing requests; everything else is a courtesy.
    CONSTRAINT one_record_per_account_and_key PRIMARY KEY (account_id, key),
    CONSTRAINT a_key_has_1_to_255_bytes CHECK (octet_length(key) BETWEEN 1 AND 255),
    CONSTRAINT a_label_has_1_to_255_bytes CHECK (octet_length(label) BETWEEN 1 AND 255),
    CONSTRAINT a_fingerprint_is_a_sha256 CHECK (octet_length(fingerprint) = 32),
    CONSTRAINT a_record_lives_before_it_expires CHECK (expires_at > created_at),
    CONSTRAINT an_outcome_is_saved_whole_or_not_at_all
        CHECK ((status IS NULL) = (body IS NULL) AND (status IS NULL) = (headers IS NULL)),
    CONSTRAINT only_definite_outcomes_are_saved CHECK (status BETWEEN 200 AND 499)
) WITH (
    -- By default autovacuum waits until a fifth of a table is dead. Every record is removed in the
    -- end, and removed records lie together, but their entries in the primary key lie all over it:
    -- each pass changes nearly all pages of that index, and logs them whole. With a fiftieth dead,
    -- passes would follow each other without a rest while millions of records are swept. With a
    -- tenth there is a fifth of them, and the table grows by a tenth at most before its space is
    -- used again. The statistics follow in smaller steps.
    autovacuum_analyze_scale_factor = 0.02,
    autovacuum_vacuum_scale_factor = 0.1
);

-- The sweep walks expired records in this order.
CREATE INDEX idempotency_keys_by_expiry ON idempotency_keys (expires_at);

COMMENT ON TABLE idempotency_keys IS
    'One row per account and Idempotency-Key: the fingerprint of the request and its stored outcome.';
COMMENT ON COLUMN idempotency_keys.fingerprint IS
    'SHA-256 of the request by the rule that fingerprint_version names.';
COMMENT ON COLUMN idempotency_keys.request_id IS
    'The req_... that executed; replays name it in Original-Request.';
COMMENT ON COLUMN idempotency_keys.label IS
    'Opaque to the core: what the first use of the key was labeled with. No part of the fingerprint.';
COMMENT ON COLUMN idempotency_keys.headers IS
    'End-to-end reply headers as an array of [name, value] pairs, in order, repeated names kept.';
COMMENT ON COLUMN idempotency_keys.resource_id IS
    'The id, with its prefix, of what the request created, if it created anything.';
COMMENT ON COLUMN idempotency_keys.expires_at IS
    'From this moment, judged by the database clock, a completed record counts as absent.';
