-- Money taken, or refused, from a card. A declined charge is a row too: the decline is a fact.
CREATE TABLE charges (
    account_id           uuid        NOT NULL,
    id                   uuid        NOT NULL,
    amount               bigint      NOT NULL,
    amount_captured      bigint      NOT NULL,
    currency             text        NOT NULL,
    captured             boolean     NOT NULL,
    status               text        NOT NULL,
    card_brand           text        NOT NULL,
    card_last4           text        NOT NULL,
    card_exp_month       smallint    NOT NULL,
    card_exp_year        smallint    NOT NULL,
    customer             text,
    description          text,
    statement_descriptor text,
    receipt_email        text,
    failure_code         text,
    decline_code         text,
    failure_message      text,
    -- Set only by paying an order; a client can't link a charge by itself.
    order_id             uuid,
    metadata             jsonb       NOT NULL,
    created_at           timestamptz NOT NULL DEFAULT now(),

    CONSTRAINT charges_are_known_by_account_and_id PRIMARY KEY (account_id, id),
    CONSTRAINT a_charge_belongs_to_an_account FOREIGN KEY (account_id) REFERENCES accounts (id),
    CONSTRAINT a_charge_pays_an_order_of_its_own_account
        FOREIGN KEY (account_id, order_id) REFERENCES orders (account_id, id),
    CONSTRAINT a_charge_is_1_to_99999999 CHECK (amount BETWEEN 1 AND 99999999),
    CONSTRAINT a_charge_currency_is_three_lower_case_letters CHECK (currency ~ '^[a-z]{3}$'),
    CONSTRAINT a_charge_status_is_known CHECK (status IN ('succeeded', 'failed')),
    CONSTRAINT a_capture_never_exceeds_the_charge CHECK (amount_captured BETWEEN 0 AND amount),
    CONSTRAINT only_a_captured_charge_has_a_captured_amount CHECK (captured = (amount_captured > 0)),
    CONSTRAINT a_failed_charge_takes_no_money CHECK (status <> 'failed' OR amount_captured = 0),
    CONSTRAINT a_failed_charge_says_why CHECK ((status = 'failed') = (failure_code IS NOT NULL))
);

-- Declines may be many, but an order is paid once, whatever races.
CREATE UNIQUE INDEX an_order_has_one_succeeded_charge
    ON charges (account_id, order_id) WHERE status = 'succeeded';
CREATE INDEX charges_by_customer ON charges (account_id, customer, id DESC) WHERE customer IS NOT NULL;
CREATE INDEX charges_by_order ON charges (account_id, order_id, id DESC) WHERE order_id IS NOT NULL;

COMMENT ON TABLE charges IS 'Charges, succeeded and failed, in minor units of one currency.';
COMMENT ON COLUMN charges.card_last4 IS 'All that is kept of the card, with its brand and expiry date.';
