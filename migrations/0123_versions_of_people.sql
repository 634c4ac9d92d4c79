SET LOCAL lock_timeout = '2s';

-- As 0122 did for money: a verb that changes a row names the version that it has read.
ALTER TABLE customers ADD COLUMN version bigint NOT NULL DEFAULT 1;
ALTER TABLE payment_methods ADD COLUMN version bigint NOT NULL DEFAULT 1;
ALTER TABLE setup_intents ADD COLUMN version bigint NOT NULL DEFAULT 1;

-- Two rows of one request may refer to each other: an intent that is paid when it is made and its
-- charge, a customer and the method that comes with them. The key of one of the two waits for COMMIT.
ALTER TABLE payment_intents
    ALTER CONSTRAINT an_intent_is_paid_by_a_charge_of_its_own_account DEFERRABLE INITIALLY DEFERRED;
ALTER TABLE customers
    ALTER CONSTRAINT a_default_payment_method_is_one_of_its_own_account DEFERRABLE INITIALLY DEFERRED;

COMMENT ON COLUMN customers.version IS '1 when the customer is written, and one more with each change';
COMMENT ON COLUMN payment_methods.version IS '1 when the method is written, and one more with each change';
COMMENT ON COLUMN setup_intents.version IS '1 when the setup intent is written, and one more with each change';
