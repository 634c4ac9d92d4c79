SET LOCAL lock_timeout = '2s';

-- A method that no customer has pays once. While a processor across a network is asked to charge
-- it, its row says so to everyone who locks it. No key refers to the charge, which tells whether it
-- is still pending: it is deleted if the processor was never asked.
ALTER TABLE payment_methods
    ADD COLUMN asked_charge_id          uuid,
    ADD COLUMN is_made_for_asked_charge boolean NOT NULL DEFAULT false;

COMMENT ON COLUMN payment_methods.asked_charge_id IS
    'The last charge that a processor was asked for while the method was new. It may be gone.';
COMMENT ON COLUMN payment_methods.is_made_for_asked_charge IS
    'It came with the request for that charge, and goes if the processor was never asked.';
