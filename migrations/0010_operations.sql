-- What a card processor across a network is asked to do. Written by the transaction that claims the
-- key, before anything is sent; whoever goes on after a crash needs nothing else.
CREATE TABLE operations (
    account_id      uuid        NOT NULL,
    -- Also the key that the processor gets: one for each verb and execution, kept across takeovers.
    id              uuid        NOT NULL,
    verb            text        NOT NULL,
    -- What is sent, each time the same.
    instruction     jsonb       NOT NULL,
    charge_id       uuid        NOT NULL,
    refund_id       uuid,
    order_id        uuid,
    -- How the reply is to look, and which request the events name.
    dialect         text        NOT NULL,
    expand          boolean     NOT NULL,
    request_id      text        NOT NULL,
    idempotency_key text        COLLATE "C" NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    settled_at      timestamptz,
    outcome         text,

    CONSTRAINT operations_are_known_by_account_and_id PRIMARY KEY (account_id, id),
    CONSTRAINT an_operation_is_about_a_charge_of_its_own_account
        FOREIGN KEY (account_id, charge_id) REFERENCES charges (account_id, id),
    CONSTRAINT an_operation_is_about_a_refund_of_its_own_account
        FOREIGN KEY (account_id, refund_id) REFERENCES refunds (account_id, id),
    CONSTRAINT an_operation_is_about_an_order_of_its_own_account
        FOREIGN KEY (account_id, order_id) REFERENCES orders (account_id, id),
    CONSTRAINT an_operation_verb_is_known
        CHECK (verb IN ('create_charge', 'capture_charge', 'create_refund', 'pay_order')),
    CONSTRAINT an_operation_dialect_is_known CHECK (dialect IN ('ietf', 'stripe')),
    CONSTRAINT an_operation_outcome_is_known CHECK (outcome IN ('done', 'declined')),
    CONSTRAINT a_settled_operation_has_an_outcome CHECK ((settled_at IS NULL) = (outcome IS NULL))
);

-- While the processor's answer is out, nobody else may decide about the same money.
CREATE UNIQUE INDEX a_charge_has_one_unsettled_operation
    ON operations (account_id, charge_id) WHERE settled_at IS NULL;
CREATE UNIQUE INDEX an_order_has_one_unsettled_operation
    ON operations (account_id, order_id) WHERE settled_at IS NULL;

COMMENT ON TABLE operations IS 'Instructions to the card processor, with what is needed to go on after a crash.';

-- A charge or a refund exists from the moment that the processor is about to be asked.
ALTER TABLE charges
    DROP CONSTRAINT a_charge_status_is_known,
    ADD CONSTRAINT a_charge_status_is_known CHECK (status IN ('succeeded', 'pending', 'failed')),
    ADD CONSTRAINT a_pending_charge_has_no_money
        CHECK (status <> 'pending' OR (amount_captured = 0 AND amount_refunded = 0));
CREATE UNIQUE INDEX an_order_has_one_pending_charge
    ON charges (account_id, order_id) WHERE status = 'pending';

ALTER TABLE refunds
    DROP CONSTRAINT a_refund_status_is_known,
    ADD CONSTRAINT a_refund_status_is_known CHECK (status IN ('succeeded', 'pending', 'failed'));
COMMENT ON COLUMN refunds.status IS
    'A pending refund counts in charges.amount_refunded: its money is spoken for.';
