-- An event is written by the transaction that makes the change, and its deliveries by the statement that writes
-- the event. So a change that committed is delivered, and one that rolled back never is. Workers send the
-- deliveries afterwards, so no request waits for a receiver.
--
-- An account is whatever your application keeps apart: no foreign key leads to it, because such a key locks the
-- account's one row in every transaction that inserts. For the same reason, none leads from deliveries to endpoints.
CREATE TABLE events (
    account_id      uuid        NOT NULL,
    id              uuid        NOT NULL,
    type            text        COLLATE "C" NOT NULL,
    -- json, not jsonb: the object as clients saw it at that moment, to the byte.
    object          json        NOT NULL,
    request_id      text        NOT NULL,
    idempotency_key text        COLLATE "C" NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    traceparent     text,

    CONSTRAINT events_are_known_by_account_and_id PRIMARY KEY (account_id, id),
    CONSTRAINT an_event_type_is_a_noun_and_what_happened_to_it CHECK (type ~ '^[a-z_]+\.[a-z_]+$')
);

CREATE INDEX events_by_type ON events (account_id, type, id DESC);

CREATE TABLE webhook_endpoints (
    account_id     uuid        NOT NULL,
    id             uuid        NOT NULL,
    url            text        NOT NULL,
    -- Types of events; * is all of them.
    enabled_events text[]      NOT NULL,
    description    text,
    metadata       jsonb       NOT NULL,
    -- In plain text, unlike an API key: each signature is computed with it, so a hash wouldn't do.
    secret         text,
    created_at     timestamptz NOT NULL DEFAULT now(),
    -- A mark instead of a DELETE, so that deleting takes the time of one row. Workers cancel afterwards what is
    -- pending.
    deleted_at     timestamptz,
    disabled       boolean     NOT NULL DEFAULT false,
    canceled_at    timestamptz,

    CONSTRAINT webhook_endpoints_are_known_by_account_and_id PRIMARY KEY (account_id, id),
    CONSTRAINT a_webhook_url_has_1_to_2048_characters CHECK (char_length(url) BETWEEN 1 AND 2048),
    CONSTRAINT a_webhook_endpoint_enables_1_to_100_events
        CHECK (cardinality(enabled_events) BETWEEN 1 AND 100),
    CONSTRAINT only_a_deleted_endpoint_has_no_secret
        CHECK ((secret IS NULL) = (deleted_at IS NOT NULL))
);

-- Each event reads the endpoints that live, however many were deleted.
CREATE INDEX webhook_endpoints_live ON webhook_endpoints (account_id, id DESC) WHERE deleted_at IS NULL;
CREATE INDEX webhook_endpoints_to_cancel
    ON webhook_endpoints (account_id, id) WHERE deleted_at IS NOT NULL AND canceled_at IS NULL;

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
    -- A fresh UUID for each attempt. Only its holder writes down how the attempt ended, so an attempt that ends
    -- too late can't overwrite the result of a later one.
    claim           uuid,
    created_at      timestamptz NOT NULL DEFAULT now(),
    delivered_at    timestamptz,
    -- Of a pending delivery: may be claimed now. False while an attempt is made, and until the next is due.
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
);

CREATE INDEX webhook_deliveries_by_endpoint ON webhook_deliveries (account_id, endpoint_id, id DESC);
-- Where ready is true: the endpoints whose turn it is, and what they get, in the order of the events. Both values
-- together: everything that is pending for one endpoint, so that it can be canceled.
CREATE INDEX webhook_deliveries_pending_by_endpoint
    ON webhook_deliveries (ready, account_id, endpoint_id, event_id) WHERE status = 'pending';
-- What waits for its next attempt or for the end of one, the first that is due first.
CREATE INDEX webhook_deliveries_waiting
    ON webhook_deliveries (next_attempt_at) WHERE status = 'pending' AND NOT ready;

-- By default autovacuum waits until a fifth of a table is dead.
ALTER TABLE events SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
ALTER TABLE webhook_deliveries
    SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
