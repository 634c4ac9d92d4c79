-- Money taken, or refused, from a card. A declined charge is a row too: the decline is a fact. With
-- a processor across a network, the row exists from the moment that the processor is about to be
-- asked: it is pending until the processor has answered.
--
-- The sum of its refunds is kept on the charge itself, so that one CHECK on one row refuses a
-- refund too many, even between requests that race.
CREATE TABLE charges (
    account_id           uuid        NOT NULL,
    id                   uuid        NOT NULL,
    amount               bigint      NOT NULL,
    amount_captured      bigint      NOT NULL,
    amount_refunded      bigint      NOT NULL DEFAULT 0,
    currency             text        NOT NULL,
    captured             boolean     NOT NULL,
    -- An authorization that was refunded before it was captured: no money ever moved.
    released             boolean     NOT NULL DEFAULT false,
    status               text        NOT NULL,
    card_brand           text        NOT NULL,
    card_last4           text        NOT NULL,
    card_exp_month       smallint    NOT NULL,
    card_exp_year        smallint    NOT NULL,
    customer             text        COLLATE "C",
    description          text,
    statement_descriptor text,
    receipt_email        text,
    failure_code         text,
    decline_code         text,
    failure_message      text,
    -- Set only by paying an order; a client can't link a charge by itself. The foreign key to
    -- orders is in the migration of orders, which name charges in turn.
    order_id             uuid,
    -- Captures and refunds go to the processor that took the money: no other processor knows the
    -- charge. A charge that is still pending gets the name when it is concluded.
    processor            text,
    metadata             jsonb       NOT NULL,
    created_at           timestamptz NOT NULL DEFAULT now(),

    CONSTRAINT charges_are_known_by_account_and_id PRIMARY KEY (account_id, id),
    CONSTRAINT a_charge_is_1_to_99999999 CHECK (amount BETWEEN 1 AND 99999999),
    CONSTRAINT a_charge_currency_is_three_lower_case_letters CHECK (currency ~ '^[a-z]{3}$'),
    CONSTRAINT a_charge_status_is_known CHECK (status IN ('succeeded', 'pending', 'failed')),
    CONSTRAINT a_capture_never_exceeds_the_charge CHECK (amount_captured BETWEEN 0 AND amount),
    CONSTRAINT only_a_captured_charge_has_a_captured_amount
        CHECK (captured = (amount_captured > 0)),
    CONSTRAINT refunds_never_exceed_what_was_captured
        CHECK (amount_refunded
               BETWEEN 0 AND CASE WHEN released THEN amount ELSE amount_captured END),
    CONSTRAINT an_authorization_is_released_whole CHECK (NOT released OR amount_refunded = amount),
    CONSTRAINT a_released_charge_is_never_captured CHECK (NOT (released AND captured)),
    CONSTRAINT a_pending_charge_has_no_money
        CHECK (status <> 'pending' OR (amount_captured = 0 AND amount_refunded = 0)),
    CONSTRAINT a_failed_charge_takes_no_money CHECK (status <> 'failed' OR amount_captured = 0),
    CONSTRAINT a_failed_charge_has_nothing_to_release CHECK (NOT (released AND status = 'failed')),
    CONSTRAINT a_failed_charge_says_why CHECK ((status = 'failed') = (failure_code IS NOT NULL))
);

-- An order may have many declined charges. It is paid once, even if two payments race, and no
-- second payment starts while one is pending.
CREATE UNIQUE INDEX an_order_has_one_succeeded_charge
    ON charges (account_id, order_id) WHERE status = 'succeeded';
CREATE UNIQUE INDEX an_order_has_one_pending_charge
    ON charges (account_id, order_id) WHERE status = 'pending';
CREATE INDEX charges_by_customer
    ON charges (account_id, customer, id DESC) WHERE customer IS NOT NULL;
CREATE INDEX charges_by_order
    ON charges (account_id, order_id, id DESC) WHERE order_id IS NOT NULL;

COMMENT ON TABLE charges IS 'Charges, succeeded and failed, in minor units of one currency.';
COMMENT ON COLUMN charges.amount_refunded IS
    'The sum of the charge''s refunds, kept by the statement that inserts them.';
COMMENT ON COLUMN charges.released IS
    'Refunded before it was captured: the authorization was given up.';
COMMENT ON COLUMN charges.card_last4 IS
    'All that is kept of the card, with its brand and expiry date.';
COMMENT ON COLUMN charges.processor IS
    'The processor across a network that took it, by PROCESSOR_NAME; NULL: the simulation.';
