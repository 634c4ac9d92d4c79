-- Paying and cancelling orders: open → paid → refunded, or open → canceled.
--
-- The two columns leave a trace that the other way out of "open" can't remove, so each CHECK refuses
-- the second of two changes that raced, even if neither had locked the row.
ALTER TABLE orders
    ADD COLUMN charge_id   uuid,
    ADD COLUMN canceled_at timestamptz,

    ADD CONSTRAINT an_order_is_paid_by_a_charge_of_its_own_account
        FOREIGN KEY (account_id, charge_id) REFERENCES charges (account_id, id),
    ADD CONSTRAINT a_charge_pays_one_order UNIQUE (account_id, charge_id),
    ADD CONSTRAINT only_a_paid_order_has_a_charge
        CHECK ((charge_id IS NOT NULL) = (status IN ('paid', 'refunded'))),
    ADD CONSTRAINT a_canceled_order_stays_canceled
        CHECK ((canceled_at IS NOT NULL) = (status = 'canceled'));

COMMENT ON TABLE orders IS
    'Orders with their items and total, in minor units of one currency. Paying one makes its one charge.';
COMMENT ON COLUMN orders.charge_id IS 'The succeeded charge that paid it; failed ones only name the order.';
