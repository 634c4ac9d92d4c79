-- Telling other systems what happened. The deliveries of an event are written by the statement that
-- writes the event (a transactional outbox): a change that committed is delivered, and one that
-- rolled back never is. Workers send the deliveries afterwards, so no request waits for a receiver.
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
    -- A mark instead of a DELETE, so that deleting takes the time of one row: deliveries refer to
    -- the endpoint, and there may be millions. Each pending one fails when it is due.
    deleted_at     timestamptz,

    CONSTRAINT webhook_endpoints_are_known_by_account_and_id PRIMARY KEY (account_id, id),
    CONSTRAINT a_webhook_endpoint_belongs_to_an_account
        FOREIGN KEY (account_id) REFERENCES accounts (id),
    CONSTRAINT a_webhook_url_has_1_to_2048_characters CHECK (char_length(url) BETWEEN 1 AND 2048),
    CONSTRAINT a_webhook_endpoint_enables_1_to_100_events
        CHECK (cardinality(enabled_events) BETWEEN 1 AND 100),
    CONSTRAINT only_a_deleted_endpoint_has_no_secret
        CHECK ((secret IS NULL) = (deleted_at IS NOT NULL))
);

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

    CONSTRAINT webhook_deliveries_are_known_by_account_and_id PRIMARY KEY (account_id, id),
    CONSTRAINT an_event_is_queued_once_for_an_endpoint UNIQUE (account_id, event_id, endpoint_id),
    CONSTRAINT a_delivery_goes_to_an_endpoint_of_its_own_account
        FOREIGN KEY (account_id, endpoint_id) REFERENCES webhook_endpoints (account_id, id),
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

-- The workers skip an endpoint that already has as many attempts under way as it may have. An
-- index on the time alone would lead each claim through everything that is due to such an endpoint,
-- a million deliveries if it doesn't answer. With this one a claim reads one delivery, the oldest,
-- for each endpoint that has any pending.
CREATE INDEX webhook_deliveries_by_endpoint_and_next_attempt
    ON webhook_deliveries (account_id, endpoint_id, next_attempt_at) WHERE status = 'pending';
CREATE INDEX webhook_deliveries_by_endpoint
    ON webhook_deliveries (account_id, endpoint_id, id DESC);

COMMENT ON TABLE webhook_endpoints IS 'Where an account wants its events sent, and which of them.';
COMMENT ON COLUMN webhook_endpoints.enabled_events IS 'Types of events; * is all of them.';
COMMENT ON COLUMN webhook_endpoints.secret IS
    'Signs what is sent; in plain text because signing needs it, and erased with the endpoint.';
COMMENT ON TABLE webhook_deliveries IS
    'The outbox: one row for each event and each endpoint that had enabled it at that moment.';
COMMENT ON COLUMN webhook_deliveries.attempts IS
    'Objects with at (unix seconds), response_status, error and duration_ms.';
