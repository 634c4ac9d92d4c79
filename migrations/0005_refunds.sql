-- Money given back. How much of a charge is gone is counted on the charge itself, so that one CHECK
-- on one row can refuse a refund too many, whatever races.
ALTER TABLE charges
    ADD COLUMN amount_refunded bigint  NOT NULL DEFAULT 0,
    -- An authorisation that was refunded before it was captured: no money ever moved.
    ADD COLUMN released        boolean NOT NULL DEFAULT false,

    ADD CONSTRAINT refunds_never_exceed_what_was_captured
        CHECK (amount_refunded BETWEEN 0 AND CASE WHEN released THEN amount ELSE amount_captured END),
    ADD CONSTRAINT an_authorisation_is_released_whole
        CHECK (NOT released OR amount_refunded = amount),
    ADD CONSTRAINT a_released_charge_is_never_captured
        CHECK (NOT (released AND captured)),
    ADD CONSTRAINT a_failed_charge_has_nothing_to_release
        CHECK (NOT (released AND status = 'failed'));

CREATE TABLE refunds (
    account_id uuid        NOT NULL,
    id         uuid        NOT NULL,
    charge_id  uuid        NOT NULL,
    amount     bigint      NOT NULL,
    currency   text        NOT NULL,
    reason     text,
    status     text        NOT NULL,
    metadata   jsonb       NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),

    CONSTRAINT refunds_are_known_by_account_and_id PRIMARY KEY (account_id, id),
    CONSTRAINT a_refund_gives_back_a_charge_of_its_own_account
        FOREIGN KEY (account_id, charge_id) REFERENCES charges (account_id, id),
    CONSTRAINT a_refund_is_1_to_99999999 CHECK (amount BETWEEN 1 AND 99999999),
    CONSTRAINT a_refund_currency_is_three_lower_case_letters CHECK (currency ~ '^[a-z]{3}$'),
    CONSTRAINT a_refund_reason_is_known
        CHECK (reason IN ('duplicate', 'fraudulent', 'requested_by_customer')),
    CONSTRAINT a_refund_status_is_known CHECK (status IN ('succeeded'))
);

CREATE INDEX refunds_by_charge ON refunds (account_id, charge_id, id DESC);

COMMENT ON TABLE refunds IS 'Refunds, and releases of charges that were never captured.';
COMMENT ON COLUMN charges.amount_refunded IS
    'The sum of the charge''s refunds, kept by the statement that inserts them.';
COMMENT ON COLUMN charges.released IS 'Refunded before it was captured: the promise was given back.';
