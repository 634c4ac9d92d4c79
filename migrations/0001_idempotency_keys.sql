-- The memory of "at most once". This migration names no other table, so it can be copied together
-- with src/idempotency/.
--
-- One row is one key of one account. A request without an effect outside the database inserts its
-- row (the claim) and completes it (status, headers and body) in the transaction that writes the
-- business rows, so no other transaction ever sees it unfinished.
--
-- A request with such an effect takes two transactions with a network call between them. The first
-- one commits its row without an outcome: the key is in flight, and this row is the point to
-- recover from. The process that works on it holds a lease; when the lease has expired, a retry or
-- the reconciler may take it over.
CREATE TABLE idempotency_keys (
    account_id          uuid        NOT NULL,
    -- Byte order ("C"): a key is an opaque token, no language's sorting applies to it.
    key                 text        COLLATE "C" NOT NULL,
    fingerprint_version smallint    NOT NULL,
    fingerprint         bytea       NOT NULL,
    method              text        NOT NULL,
    path                text        NOT NULL,
    request_id          text        NOT NULL,
    -- Written by the transaction that claims the key. It is no part of the fingerprint: a retry
    -- without it, or with another one, is the same request.
    workflow            text        COLLATE "C",
    created_at          timestamptz NOT NULL,
    expires_at          timestamptz NOT NULL,

    -- The outcome: NULL until the request is finished.
    status              smallint,
    headers             jsonb,
    -- bytea, not jsonb: jsonb would turn 1.0 into 1 and merge members, and a replay is byte-exact.
    body                bytea,
    resource_id         text,

    -- The lease: NULL unless the request has an effect outside the database and is unfinished.
    operation           uuid,
    operation_kind      text,
    lease_token         uuid,
    leased_until        timestamptz,
    recover_after       timestamptz,
    takeovers           integer     NOT NULL DEFAULT 0,
    in_doubt            boolean     NOT NULL DEFAULT false,

    -- The unique index decides between racing requests; every other check only saves time.
    CONSTRAINT one_record_per_account_and_key PRIMARY KEY (account_id, key),
    CONSTRAINT a_key_has_1_to_255_bytes CHECK (octet_length(key) BETWEEN 1 AND 255),
    CONSTRAINT a_fingerprint_is_a_sha256 CHECK (octet_length(fingerprint) = 32),
    CONSTRAINT a_workflow_has_a_name_of_1_to_255_bytes
        CHECK (octet_length(workflow) BETWEEN 1 AND 255),
    CONSTRAINT a_record_lives_before_it_expires CHECK (expires_at > created_at),
    CONSTRAINT an_outcome_is_saved_whole_or_not_at_all
        CHECK ((status IS NULL) = (body IS NULL) AND (status IS NULL) = (headers IS NULL)),
    CONSTRAINT only_definite_outcomes_are_saved CHECK (status BETWEEN 200 AND 499),
    CONSTRAINT a_lease_is_whole CHECK (
        (operation IS NULL) = (lease_token IS NULL)
        AND (operation IS NULL) = (leased_until IS NULL)
        AND (operation IS NULL) = (recover_after IS NULL)),
    CONSTRAINT an_operation_has_a_kind CHECK ((operation IS NULL) = (operation_kind IS NULL)),
    CONSTRAINT a_finished_key_is_not_leased CHECK (status IS NULL OR operation IS NULL),
    CONSTRAINT only_an_operation_is_in_doubt CHECK (operation IS NOT NULL OR NOT in_doubt)
);

-- The sweep reads expired records in this order.
CREATE INDEX idempotency_keys_by_expiry ON idempotency_keys (expires_at);
-- A workflow is read in this order.
CREATE INDEX idempotency_keys_by_workflow
    ON idempotency_keys (account_id, workflow, created_at, key) WHERE workflow IS NOT NULL;
-- The reconciler of each kind of operation reads what is in flight in this order.
CREATE INDEX idempotency_keys_by_recovery
    ON idempotency_keys (operation_kind, recover_after) WHERE operation IS NOT NULL;

COMMENT ON TABLE idempotency_keys IS
    'One row per account and Idempotency-Key: the request''s fingerprint and its stored outcome.';
COMMENT ON COLUMN idempotency_keys.fingerprint IS
    'SHA-256 of the request by the rule that fingerprint_version names.';
COMMENT ON COLUMN idempotency_keys.request_id IS
    'The req_... that executed; replays name it in Original-Request.';
COMMENT ON COLUMN idempotency_keys.workflow IS
    'The client''s name for the requests that this one belongs to, from the first use of the key.';
COMMENT ON COLUMN idempotency_keys.expires_at IS
    'From this moment, judged by the database clock, a completed record counts as absent.';
COMMENT ON COLUMN idempotency_keys.headers IS
    'End-to-end reply headers as an array of [name, value] pairs, in order, repeated names kept.';
COMMENT ON COLUMN idempotency_keys.resource_id IS
    'The id, with its prefix, of what the request created, if it created anything.';
COMMENT ON COLUMN idempotency_keys.operation IS
    'The downstream idempotency key of the effect: one per execution, kept across takeovers.';
COMMENT ON COLUMN idempotency_keys.operation_kind IS
    'Which reconciler recovers the operation: each kind has its own.';
COMMENT ON COLUMN idempotency_keys.lease_token IS
    'Fencing: a fresh uuid for every claim and takeover. Only its holder may save the outcome.';
COMMENT ON COLUMN idempotency_keys.leased_until IS
    'Until then the holder is trusted to be at work, by the database clock.';
COMMENT ON COLUMN idempotency_keys.recover_after IS
    'From then on the reconciler may take over; a client''s retry may do so from leased_until.';
COMMENT ON COLUMN idempotency_keys.in_doubt IS
    'An attempt may have been executed. Only a definite answer for the operation ends this.';
