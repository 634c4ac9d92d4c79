SET LOCAL lock_timeout = '2s';

-- Who pays. Two customers may have one e-mail address, and nothing that a client says of a person is
-- a key.
CREATE TABLE customers (
    account_id                uuid        NOT NULL,
    id                        uuid        NOT NULL,
    address                   jsonb,
    default_payment_method_id uuid,
    description               text,
    email                     text        COLLATE "C",
    metadata                  jsonb       NOT NULL,
    name                      text,
    phone                     text,
    preferred_locales         text[]      NOT NULL,
    shipping                  jsonb,
    created_at                timestamptz NOT NULL DEFAULT now(),
    -- A deleted customer keeps its row: intents and charges go on naming it.
    deleted_at                timestamptz,

    CONSTRAINT customers_are_known_by_account_and_id PRIMARY KEY (account_id, id),
    CONSTRAINT a_deleted_customer_has_no_default_payment_method
        CHECK (deleted_at IS NULL OR default_payment_method_id IS NULL)
);

CREATE INDEX customers_by_email
    ON customers (account_id, email, id DESC) WHERE email IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX customers_that_exist ON customers (account_id, id DESC) WHERE deleted_at IS NULL;

-- A card that is kept to be charged. Its number is never stored: the simulated processor knows the
-- card by a test token, as a real one would by a token of its own.
--
-- customer_id, used_up_at and detached_at each keep a trace of what became of it. A CHECK allows one
-- of them only, so that of an attachment and a use without a customer that race, one is refused.
CREATE TABLE payment_methods (
    account_id         uuid        NOT NULL,
    id                 uuid        NOT NULL,
    customer_id        uuid,
    card_token         text        NOT NULL,
    card_brand         text        NOT NULL,
    card_last4         text        NOT NULL,
    card_exp_month     smallint    NOT NULL,
    card_exp_year      smallint    NOT NULL,
    card_fingerprint   text        NOT NULL,
    card_has_cvc       boolean     NOT NULL,
    is_set_up          boolean     NOT NULL DEFAULT false,
    allow_redisplay    text        NOT NULL,
    billing_details    jsonb       NOT NULL,
    metadata           jsonb       NOT NULL,
    created_at         timestamptz NOT NULL DEFAULT now(),
    used_up_at         timestamptz,
    detached_at        timestamptz,

    CONSTRAINT payment_methods_are_known_by_account_and_id PRIMARY KEY (account_id, id),
    CONSTRAINT a_payment_method_belongs_to_a_customer_of_its_own_account
        FOREIGN KEY (account_id, customer_id) REFERENCES customers (account_id, id),
    CONSTRAINT a_payment_method_has_one_fate
        CHECK (num_nonnulls(customer_id, used_up_at, detached_at) <= 1),
    CONSTRAINT a_payment_method_redisplay_is_known
        CHECK (allow_redisplay IN ('unspecified', 'limited', 'always'))
);

CREATE INDEX payment_methods_by_customer
    ON payment_methods (account_id, customer_id, id DESC) WHERE customer_id IS NOT NULL;

ALTER TABLE customers
    ADD CONSTRAINT a_default_payment_method_is_one_of_its_own_account
        FOREIGN KEY (account_id, default_payment_method_id)
        REFERENCES payment_methods (account_id, id);

-- A method is deleted with a test account: its customer is looked for.
CREATE INDEX customers_by_default_payment_method
    ON customers (account_id, default_payment_method_id)
    WHERE default_payment_method_id IS NOT NULL;

COMMENT ON TABLE customers IS 'Customers, as clients described them.';
COMMENT ON COLUMN customers.deleted_at IS 'Since then, only its id is shown.';
COMMENT ON TABLE payment_methods IS 'Cards that are kept to be charged. No number is stored.';
COMMENT ON COLUMN payment_methods.card_token IS 'What the processor knows the card by.';
COMMENT ON COLUMN payment_methods.card_fingerprint IS
    'Equal for two methods of the same card: a keyed hash of its number.';
COMMENT ON COLUMN payment_methods.used_up_at IS
    'It paid once without a customer, and never pays again.';
COMMENT ON COLUMN payment_methods.detached_at IS
    'It was taken from its customer, and never comes back.';
