-- What each request was and how it ended. A worker writes many rows at once, beside the requests and never in
-- their transactions, and drops rows when it can't keep up. So nothing may be decided by this table.
--
-- No bodies, and no keys or paths that hold what must not be kept.
CREATE TABLE request_log (
    account_id      uuid        NOT NULL,
    -- The request's own id. It begins with the time at which the request came.
    id              uuid        NOT NULL,
    method          text        NOT NULL,
    route           text        NOT NULL,
    path            text,
    idempotency_key text        COLLATE "C",
    -- NULL: the client left before it was answered.
    status          smallint,
    outcome         text        NOT NULL,
    duration_us     bigint      NOT NULL,
    resource_id     text,
    created_at      timestamptz NOT NULL DEFAULT now(),

    CONSTRAINT logged_requests_are_known_by_account_and_id PRIMARY KEY (account_id, id),
    CONSTRAINT a_logged_outcome_is_known CHECK (outcome IN ('executed', 'replayed', 'refused',
        'reused', 'in_use', 'failed', 'read', 'unanswered')),
    CONSTRAINT only_an_unanswered_request_has_no_status
        CHECK ((status IS NULL) = (outcome = 'unanswered'))
);

CREATE INDEX request_log_by_key ON request_log (account_id, idempotency_key, id DESC)
    WHERE idempotency_key IS NOT NULL;

COMMENT ON TABLE request_log IS 'One row for each authenticated request. Rows may be missing.';
COMMENT ON COLUMN request_log.id IS 'A UUIDv7 of when the request came.';
COMMENT ON COLUMN request_log.path IS
    'As sent, without its query, cut to 512 bytes; NULL where it may hold what must not be kept.';
COMMENT ON COLUMN request_log.idempotency_key IS 'Only a key that passed its checks.';
COMMENT ON COLUMN request_log.duration_us IS
    'Microseconds from the head of the request to the reply, or to the client''s leaving.';
COMMENT ON COLUMN request_log.resource_id IS 'The id of what the reply is about.';
