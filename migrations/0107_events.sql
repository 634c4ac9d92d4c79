-- What happened, in the order it happened. An event is written by the transaction that made the
-- change, so there is no change without its event and no event without its change.
CREATE TABLE events (
    account_id      uuid        NOT NULL,
    id              uuid        NOT NULL,
    type            text        COLLATE "C" NOT NULL,
    -- json, not jsonb: the object as the API showed it at that moment, to the byte.
    object          json        NOT NULL,
    request_id      text        NOT NULL,
    idempotency_key text        COLLATE "C" NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    -- A webhook belongs to the trace of the request that made its event happen, and is sent by a
    -- worker that knows of the request only what is stored.
    traceparent     text,

    CONSTRAINT events_are_known_by_account_and_id PRIMARY KEY (account_id, id),
    CONSTRAINT an_event_type_is_a_noun_and_what_happened_to_it CHECK (type ~ '^[a-z_]+\.[a-z_]+$')
) WITH (
    -- By default autovacuum waits until a fifth of a table is dead: two million rows of ten
    -- million, which the sweep then leaves behind in one go, and which every index keeps pointing
    -- at. With a fiftieth it comes ten times as often and has a tenth to do, so that the space of
    -- removed rows is used again before the table grows. The statistics follow in the same steps.
    -- Deliveries and operations have the same settings.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_analyze_scale_factor = 0.02
);

CREATE INDEX events_by_type ON events (account_id, type, id DESC);

COMMENT ON TABLE events IS 'One row for each change, with the object as it was right after it.';
COMMENT ON COLUMN events.request_id IS 'The req_... that made the change.';
COMMENT ON COLUMN events.idempotency_key IS
    'The key of the request that made the change; a replay makes none.';
COMMENT ON COLUMN events.traceparent IS
    'W3C Trace Context of the request that made the change; NULL if it was not traced.';
