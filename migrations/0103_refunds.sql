-- Money given back, or an authorization given up before it was captured. The statement that inserts
-- a refund adds it to charges.amount_refunded, where the CHECK against refunding too much is.
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
    CONSTRAINT a_refund_status_is_known CHECK (status IN ('succeeded', 'pending', 'failed'))
);

CREATE INDEX refunds_by_charge ON refunds (account_id, charge_id, id DESC);

COMMENT ON TABLE refunds IS 'Refunds, and releases of charges that were never captured.';
COMMENT ON COLUMN refunds.status IS
    'A pending refund counts in charges.amount_refunded: its money is reserved.';
