-- What a customer wants to buy. An order leaves "open" once: open → paid → refunded, or
-- open → canceled.
--
-- charge_id and canceled_at each keep a trace of one way out of "open". The other way out can't
-- remove that trace, so the CHECKs refuse the second of two changes that race, even if neither of
-- them had locked the row.
CREATE TABLE orders (
    account_id      uuid        NOT NULL,
    id              uuid        NOT NULL,
    amount          bigint      NOT NULL,
    currency        text        NOT NULL,
    customer        text        COLLATE "C",
    client_order_id text        COLLATE "C",
    -- SHA-256 of the validated parameters: tells a second create with the same client_order_id and
    -- the same content from one that only shares the id.
    content_hash    bytea       NOT NULL,
    -- Never queried by member and never changed, therefore not a table of its own.
    items           jsonb       NOT NULL,
    metadata        jsonb       NOT NULL,
    status          text        NOT NULL,
    charge_id       uuid,
    created_at      timestamptz NOT NULL DEFAULT now(),
    canceled_at     timestamptz,

    CONSTRAINT orders_are_known_by_account_and_id PRIMARY KEY (account_id, id),
    CONSTRAINT an_order_is_paid_by_a_charge_of_its_own_account
        FOREIGN KEY (account_id, charge_id) REFERENCES charges (account_id, id),
    CONSTRAINT a_client_order_id_names_one_order UNIQUE (account_id, client_order_id),
    CONSTRAINT a_charge_pays_one_order UNIQUE (account_id, charge_id),
    CONSTRAINT an_order_total_is_1_to_99999999 CHECK (amount BETWEEN 1 AND 99999999),
    CONSTRAINT an_order_currency_is_three_lower_case_letters CHECK (currency ~ '^[a-z]{3}$'),
    CONSTRAINT an_order_has_1_to_100_items CHECK (jsonb_array_length(items) BETWEEN 1 AND 100),
    CONSTRAINT an_order_content_hash_is_a_sha256 CHECK (octet_length(content_hash) = 32),
    CONSTRAINT an_order_status_is_known CHECK (status IN ('open', 'paid', 'canceled', 'refunded')),
    CONSTRAINT only_a_paid_order_has_a_charge
        CHECK ((charge_id IS NOT NULL) = (status IN ('paid', 'refunded'))),
    CONSTRAINT a_canceled_order_stays_canceled
        CHECK ((canceled_at IS NOT NULL) = (status = 'canceled'))
);

CREATE INDEX orders_by_customer
    ON orders (account_id, customer, id DESC) WHERE customer IS NOT NULL;

-- An order and the charge that paid it name each other. This half needs both tables.
ALTER TABLE charges
    ADD CONSTRAINT a_charge_pays_an_order_of_its_own_account
        FOREIGN KEY (account_id, order_id) REFERENCES orders (account_id, id);

COMMENT ON TABLE orders IS
    'Orders with items and total, in minor units of one currency. Paying one makes its one charge.';
COMMENT ON COLUMN orders.client_order_id IS 'The client''s own id: the natural key of an order.';
COMMENT ON COLUMN orders.charge_id IS
    'The succeeded charge that paid it; failed ones only name the order.';
