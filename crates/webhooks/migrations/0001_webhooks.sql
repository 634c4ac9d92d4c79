-- An event is written by the transaction that makes the change, and its deliveries by the statement
-- that writes the event (a transactional outbox). So a change that committed is delivered, and one
-- that rolled back never is. Workers send the deliveries afterwards, so no request waits for a
-- receiver.
--
-- An account is whatever the application keeps apart. No foreign key leads from events and
-- deliveries to an account, and none from deliveries to endpoints: each would lock one row in every
-- transaction that inserts.
CREATE TABLE events (
    account_id      uuid        NOT NULL,
    id              uuid        NOT NULL,
    type            text        COLLATE "C" NOT NULL,
    -- json, not jsonb: the object as clients saw it at that moment, to the byte.
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
    -- million, which the removal of old events then leaves behind in one go, and which every index
    -- keeps pointing at. With a fiftieth it comes ten times as often and has a tenth to do, so that
    -- the space of removed rows is used again before the table grows. The statistics follow in the
    -- same steps. Deliveries have the same settings.
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

CREATE TABLE webhook_endpoints (
    account_id     uuid        NOT NULL,
    id             uuid        NOT NULL,
    url            text        NOT NULL,
    enabled_events text[]      NOT NULL,
    description    text,
    metadata       jsonb       NOT NULL,
    -- In plain text, unlike an API key: each signature is computed with it, so a hash wouldn't do.
    secret         text,
    created_at     timestamptz NOT NULL DEFAULT now(),
    -- A mark instead of a DELETE, so that deleting takes the time of one row: deliveries name the
    -- endpoint, and there may be millions.
    deleted_at     timestamptz,
    -- An endpoint can be disabled for a while without losing its secret, its settings and the list
    -- of its deliveries. The statement that writes an event makes no deliveries for a disabled
    -- endpoint. A delivery that falls due while its endpoint is disabled fails; one that falls due
    -- after the endpoint is enabled again is sent.
    disabled       boolean     NOT NULL DEFAULT false,
    -- After an endpoint is deleted, the workers cancel what was pending for it, in batches. They
    -- find the endpoint by this mark.
    canceled_at    timestamptz,

    CONSTRAINT webhook_endpoints_are_known_by_account_and_id PRIMARY KEY (account_id, id),
    CONSTRAINT a_webhook_url_has_1_to_2048_characters CHECK (char_length(url) BETWEEN 1 AND 2048),
    CONSTRAINT a_webhook_endpoint_enables_1_to_100_events
        CHECK (cardinality(enabled_events) BETWEEN 1 AND 100),
    CONSTRAINT only_a_deleted_endpoint_has_no_secret
        CHECK ((secret IS NULL) = (deleted_at IS NOT NULL))
);

-- An account may delete as many endpoints as it likes. Each event reads those that live, and so do
-- the list and the count of endpoints.
CREATE INDEX webhook_endpoints_live
    ON webhook_endpoints (account_id, id DESC) WHERE deleted_at IS NULL;
-- Deleted endpoints for which something may still be pending: few, and only for moments.
CREATE INDEX webhook_endpoints_to_cancel
    ON webhook_endpoints (account_id, id) WHERE deleted_at IS NOT NULL AND canceled_at IS NULL;

-- The outbox, and the queue that the workers take from. Webhooks take turns: by account, then by
-- endpoint, so that the backlog of one delays no other.
--
-- A pending delivery is ready, or it waits: for its next attempt, or for the end of an attempt. An
-- endpoint has its turn if it has something ready. The workers find those endpoints by jumping from
-- one to the next along an index, so that the cost is that of the endpoints that are due, and not
-- that of the deliveries, nor of the endpoints whose retries wait. Moving the deliveries whose time
-- has come from waiting to ready is the workers' task, in batches.
--
-- There is no row for an endpoint that says when it is due. Each change would have to lock that row,
-- and all changes of an account would queue for it. The transaction of a change only inserts. An
-- endpoint is never deleted, only marked, and a delivery has its endpoint from the statement that
-- reads it.
CREATE TABLE webhook_deliveries (
    account_id      uuid        NOT NULL,
    id              uuid        NOT NULL,
    endpoint_id     uuid        NOT NULL,
    event_id        uuid        NOT NULL,
    status          text        NOT NULL DEFAULT 'pending',
    -- One object for each attempt that ended, the oldest first. They are few and read together.
    attempts        jsonb       NOT NULL DEFAULT '[]',
    -- While an attempt is being made: when another replica may take over from one that died.
    next_attempt_at timestamptz          DEFAULT now(),
    -- A fresh UUID for each attempt. Only its holder writes down how the attempt ended, so an
    -- attempt that ends too late can't overwrite the result of a later one.
    claim           uuid,
    created_at      timestamptz NOT NULL DEFAULT now(),
    delivered_at    timestamptz,
    ready           boolean     NOT NULL DEFAULT true,

    CONSTRAINT webhook_deliveries_are_known_by_account_and_id PRIMARY KEY (account_id, id),
    CONSTRAINT an_event_is_queued_once_for_an_endpoint UNIQUE (account_id, event_id, endpoint_id),
    CONSTRAINT a_delivery_carries_an_event_of_its_own_account
        FOREIGN KEY (account_id, event_id) REFERENCES events (account_id, id),
    CONSTRAINT a_delivery_status_is_known CHECK (status IN ('pending', 'succeeded', 'failed')),
    CONSTRAINT delivery_attempts_are_a_list CHECK (jsonb_typeof(attempts) = 'array'),
    CONSTRAINT only_a_pending_delivery_has_a_next_attempt
        CHECK ((status = 'pending') = (next_attempt_at IS NOT NULL)),
    CONSTRAINT only_a_pending_delivery_is_claimed CHECK (status = 'pending' OR claim IS NULL),
    CONSTRAINT only_a_succeeded_delivery_was_delivered
        CHECK ((status = 'succeeded') = (delivered_at IS NOT NULL))
) WITH (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_analyze_scale_factor = 0.02
);

-- A claim writes each row's new version into every index of the table, so there is none that isn't
-- needed.
CREATE INDEX webhook_deliveries_by_endpoint
    ON webhook_deliveries (account_id, endpoint_id, id DESC);
-- Where ready is true: the endpoints whose turn it is, and what they get, in the order of the
-- events. Both values together: everything that is pending for one endpoint, so that it can be
-- canceled.
CREATE INDEX webhook_deliveries_pending_by_endpoint
    ON webhook_deliveries (ready, account_id, endpoint_id, event_id) WHERE status = 'pending';
-- What waits for its next attempt or for the end of one, the first that is due first.
CREATE INDEX webhook_deliveries_waiting
    ON webhook_deliveries (next_attempt_at) WHERE status = 'pending' AND NOT ready;

COMMENT ON TABLE webhook_endpoints IS 'Where an account wants its events sent, and which of them.';
COMMENT ON COLUMN webhook_endpoints.enabled_events IS 'Types of events; * is all of them.';
COMMENT ON COLUMN webhook_endpoints.secret IS
    'Signs what is sent; in plain text because signing needs it, and erased with the endpoint.';
COMMENT ON COLUMN webhook_endpoints.disabled IS
    'Whether nothing is sent there for now. New events make no deliveries, and due ones fail.';
COMMENT ON COLUMN webhook_endpoints.canceled_at IS
    'When the deliveries that were pending for the deleted endpoint had been canceled.';
COMMENT ON TABLE webhook_deliveries IS
    'The outbox: one row for each event and each endpoint that had enabled it at that moment.';
COMMENT ON COLUMN webhook_deliveries.attempts IS
    'Objects with at (unix seconds), response_status, error and duration_ms.';
COMMENT ON COLUMN webhook_deliveries.ready IS
    'Of a pending delivery: may be claimed now. False while an attempt is made, and until the next is due.';
