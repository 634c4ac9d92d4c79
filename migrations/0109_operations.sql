-- What a card processor across a network is asked to do. The transaction that claims the
-- idempotency key writes the row before anything is sent; it holds everything that recovery after a
-- crash needs.
CREATE TABLE operations (
    account_id      uuid        NOT NULL,
    -- Also the processor's idempotency key: one for each verb and execution, kept across takeovers.
    id              uuid        NOT NULL,
    verb            text        NOT NULL,
    charge_id       uuid        NOT NULL,
    refund_id       uuid,
    order_id        uuid,
    checkout_id     uuid,
    -- What is asked for; every attempt asks for the same. The last three are an authorization's.
    amount          bigint      NOT NULL,
    currency        text,
    card_token      text,
    capture         boolean,
    -- How the reply is to look, and which request the events name.
    dialect         text        NOT NULL,
    expand          boolean     NOT NULL,
    request_id      text        NOT NULL,
    idempotency_key text        COLLATE "C" NOT NULL,
    -- Set by the process that first reads the operation in order to send it. A retry goes only to
    -- this processor: another one doesn't know the key, and would move the money a second time.
    processor       text,
    created_at      timestamptz NOT NULL DEFAULT now(),
    completed_at    timestamptz,
    outcome         text,

    CONSTRAINT operations_are_known_by_account_and_id PRIMARY KEY (account_id, id),
    CONSTRAINT an_operation_is_about_a_charge_of_its_own_account
        FOREIGN KEY (account_id, charge_id) REFERENCES charges (account_id, id),
    CONSTRAINT an_operation_is_about_a_refund_of_its_own_account
        FOREIGN KEY (account_id, refund_id) REFERENCES refunds (account_id, id),
    CONSTRAINT an_operation_is_about_an_order_of_its_own_account
        FOREIGN KEY (account_id, order_id) REFERENCES orders (account_id, id),
    CONSTRAINT an_operation_is_a_step_of_a_checkout_of_its_own_account
        FOREIGN KEY (account_id, checkout_id) REFERENCES checkouts (account_id, id),
    CONSTRAINT an_operation_verb_is_known
        CHECK (verb IN ('create_charge', 'capture_charge', 'create_refund', 'pay_order')),
    CONSTRAINT an_operation_amount_is_positive CHECK (amount > 0),
    CONSTRAINT an_authorization_is_whole CHECK (
        (verb IN ('create_charge', 'pay_order')) = (card_token IS NOT NULL)
        AND (card_token IS NULL) = (currency IS NULL)
        AND (card_token IS NULL) = (capture IS NULL)),
    CONSTRAINT a_refund_operation_names_its_refund
        CHECK ((verb = 'create_refund') = (refund_id IS NOT NULL)),
    CONSTRAINT a_payment_operation_names_its_order
        CHECK (verb <> 'pay_order' OR order_id IS NOT NULL),
    CONSTRAINT an_operation_dialect_is_known CHECK (dialect IN ('ietf', 'stripe')),
    CONSTRAINT an_operation_outcome_is_known CHECK (outcome IN ('done', 'declined')),
    CONSTRAINT a_completed_operation_has_an_outcome
        CHECK ((completed_at IS NULL) = (outcome IS NULL))
) WITH (
    -- For the reason that the migration of crates/webhooks gives at the table events.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_analyze_scale_factor = 0.02
);

-- While the processor's answer is outstanding, no other request may decide about the same money.
CREATE UNIQUE INDEX a_charge_has_one_unfinished_operation
    ON operations (account_id, charge_id) WHERE completed_at IS NULL;
CREATE UNIQUE INDEX an_order_has_one_unfinished_operation
    ON operations (account_id, order_id) WHERE completed_at IS NULL;
-- Releasing a reservation deletes a pending charge or refund, and PostgreSQL then looks for
-- operations that name it, completed ones included.
CREATE INDEX operations_by_charge ON operations (account_id, charge_id);
CREATE INDEX operations_by_refund ON operations (account_id, refund_id) WHERE refund_id IS NOT NULL;
-- A checkout that never began is deleted, and PostgreSQL then looks for operations that name it.
-- The list of operations looks for the newest refund of a checkout.
CREATE INDEX operations_by_checkout
    ON operations (account_id, checkout_id, id DESC) WHERE checkout_id IS NOT NULL;
-- A start and `charge-once operations list` look for what has no answer, the oldest first: few of
-- the rows of a table that grows with every charge across a network.
CREATE INDEX operations_without_an_answer
    ON operations (created_at) WHERE completed_at IS NULL;

-- What persons said about operations because the processor never gave a definite answer
-- (docs/processor.md). The table refers to no other table and keeps a copy of the operation:
-- "not_executed" deletes the operation itself, and this record outlives it.
--
-- A person may say two things about one operation: a checkout's refund was declined, and later its
-- money was returned elsewhere. Each word is kept, once.
CREATE TABLE manual_resolutions (
    account_id   uuid        NOT NULL,
    operation_id uuid        NOT NULL,
    resolution   text        COLLATE "C" NOT NULL,
    resolved_by  text        NOT NULL,
    resolved_at  timestamptz NOT NULL DEFAULT now(),
    -- The row of the operation while it waited for an answer.
    operation    jsonb       NOT NULL,

    CONSTRAINT a_word_about_an_operation_is_kept_once
        PRIMARY KEY (account_id, operation_id, resolution),
    CONSTRAINT a_resolution_is_known
        CHECK (resolution IN ('done', 'declined', 'not_executed')),
    CONSTRAINT a_resolution_names_a_person CHECK (char_length(resolved_by) BETWEEN 1 AND 100)
);

COMMENT ON TABLE operations IS
    'Instructions to the card processor, with what is needed to continue after a crash.';
COMMENT ON COLUMN operations.checkout_id IS 'The checkout that the operation is a step of, if any.';
COMMENT ON COLUMN operations.processor IS 'The processor that was asked, by PROCESSOR_NAME.';
COMMENT ON TABLE manual_resolutions IS
    'What persons said about operations, where the processor said the same or nothing certain. Of several words about one operation, the last one by resolved_at counts.';
