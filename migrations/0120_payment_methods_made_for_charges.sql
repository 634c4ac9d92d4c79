SET LOCAL lock_timeout = '2s';

-- What a request made is undone if the processor was certainly never asked. No key refers to the
-- charge: it is deleted first.
ALTER TABLE payment_methods
    ADD COLUMN made_for_charge_id uuid;

COMMENT ON COLUMN payment_methods.made_for_charge_id IS
    'The charge whose request brought the method, if a processor across a network was to be asked. It may be gone.';
