SET LOCAL lock_timeout = '2s';

-- Charges first, with the strongest lock that this file takes of them: the keys of the new tables lock
-- them too, and a lock that grows waits for requests that wait for it. They are the only table in use
-- that is locked here. Operations, which requests lock before and after charges, have a file of their
-- own.

-- A charge that a confirmation made. What is kept of the method is how it was at that moment.
ALTER TABLE charges
    ADD COLUMN billing_details             jsonb,
    ADD COLUMN card_fingerprint            text COLLATE "C",
    ADD COLUMN card_has_cvc                boolean,
    ADD COLUMN is_authenticated            boolean,
    ADD COLUMN payment_intent_id           uuid,
    ADD COLUMN payment_method_id           uuid,
    ADD COLUMN statement_descriptor_suffix text;

-- One payment, through as many cards as it takes.
--
-- charge_id, amount_received, released and canceled_at each keep a trace of where the money went, and
-- no statement removes one. Of a capture and a cancellation that race, the CHECKs refuse the second, even if
-- neither had locked the row.
CREATE TABLE payment_intents (
    account_id                  uuid        NOT NULL,
    id                          uuid        NOT NULL,
    amount                      bigint      NOT NULL,
    amount_capturable           bigint      NOT NULL DEFAULT 0,
    amount_received             bigint      NOT NULL DEFAULT 0,
    -- NULL: the client named the types of methods.
    automatic_payment_methods   text,
    cancellation_reason         text,
    canceled_at                 timestamptz,
    capture_method              text        NOT NULL,
    -- The charge that promised the money.
    charge_id                   uuid,
    client_secret               text        NOT NULL,
    confirmation_method         text        NOT NULL,
    created_at                  timestamptz NOT NULL DEFAULT now(),
    currency                    text        NOT NULL,
    customer_id                 uuid,
    description                 text,
    -- The page where the card's holder authenticates; its last part is a token that opens it.
    holder_page_url             text,
    is_authenticated            boolean     NOT NULL DEFAULT false,
    -- json, not jsonb: as the client saw it, to the byte.
    last_payment_error          json,
    latest_charge_id            uuid,
    metadata                    jsonb       NOT NULL,
    payment_method_id           uuid,
    receipt_email               text,
    -- The promise was given up by a cancellation.
    released                    boolean     NOT NULL DEFAULT false,
    request_three_d_secure      text        NOT NULL,
    return_url                  text,
    setup_future_usage          text,
    shipping                    jsonb,
    statement_descriptor_suffix text,
    status                      text        NOT NULL,
    -- While it is processing: the status before.
    status_before               text,
    -- While a processor is asked: what is restored if that was never executed. json, for the reason
    -- that last_payment_error is.
    before_operation            json,

    CONSTRAINT payment_intents_are_known_by_account_and_id PRIMARY KEY (account_id, id),
    CONSTRAINT an_intent_is_paid_by_a_charge_of_its_own_account
        FOREIGN KEY (account_id, charge_id) REFERENCES charges (account_id, id),
    CONSTRAINT an_intent_belongs_to_a_customer_of_its_own_account
        FOREIGN KEY (account_id, customer_id) REFERENCES customers (account_id, id),
    CONSTRAINT an_intent_has_a_payment_method_of_its_own_account
        FOREIGN KEY (account_id, payment_method_id) REFERENCES payment_methods (account_id, id),
    CONSTRAINT a_charge_pays_one_intent UNIQUE (account_id, charge_id),
    CONSTRAINT an_intent_is_1_to_99999999 CHECK (amount BETWEEN 1 AND 99999999),
    CONSTRAINT an_intent_currency_is_three_lower_case_letters CHECK (currency ~ '^[a-z]{3}$'),
    CONSTRAINT an_intent_status_is_known CHECK (status IN (
        'requires_payment_method', 'requires_confirmation', 'requires_action', 'processing',
        'requires_capture', 'succeeded', 'canceled')),
    CONSTRAINT captured_and_released_money_is_what_was_authorized CHECK (
        CASE status
        WHEN 'requires_capture' THEN amount_capturable = amount AND amount_received = 0
        WHEN 'succeeded' THEN amount_capturable = 0 AND amount_received BETWEEN 1 AND amount
        ELSE amount_capturable = 0 AND amount_received = 0
        END),
    CONSTRAINT only_a_paid_intent_has_a_charge CHECK (
        (charge_id IS NOT NULL) = (status IN ('requires_capture', 'succeeded') OR released)),
    CONSTRAINT a_canceled_intent_stays_canceled
        CHECK ((canceled_at IS NOT NULL) = (status = 'canceled')),
    CONSTRAINT a_canceled_intent_has_no_succeeded_charge
        CHECK (canceled_at IS NULL OR charge_id IS NULL OR released),
    CONSTRAINT only_a_canceled_intent_is_released CHECK (NOT released OR canceled_at IS NOT NULL),
    CONSTRAINT an_intent_that_is_asked_for_money_has_a_payment_method
        CHECK (status IN ('requires_payment_method', 'processing', 'canceled')
               OR payment_method_id IS NOT NULL),
    CONSTRAINT only_an_intent_that_requires_action_has_a_page
        CHECK ((holder_page_url IS NOT NULL)
               = (COALESCE(status_before, status) = 'requires_action')),
    CONSTRAINT only_a_processing_intent_remembers_its_status
        CHECK ((status_before IS NOT NULL) = (status = 'processing')),
    CONSTRAINT an_intent_capture_method_is_known
        CHECK (capture_method IN ('automatic', 'automatic_async', 'manual'))
);

CREATE INDEX payment_intents_by_customer
    ON payment_intents (account_id, customer_id, id DESC) WHERE customer_id IS NOT NULL;
-- When the method of a test account that ended is deleted, PostgreSQL looks for intents that name it.
CREATE INDEX payment_intents_by_payment_method
    ON payment_intents (account_id, payment_method_id) WHERE payment_method_id IS NOT NULL;

-- A card that is made ready for later payments. No money moves.
CREATE TABLE setup_intents (
    account_id                uuid        NOT NULL,
    id                        uuid        NOT NULL,
    automatic_payment_methods text,
    cancellation_reason       text,
    client_secret             text        NOT NULL,
    created_at                timestamptz NOT NULL DEFAULT now(),
    customer_id               uuid,
    description               text,
    holder_page_url         text,
    last_setup_error          json,
    metadata                  jsonb       NOT NULL,
    payment_method_id         uuid,
    return_url                text,
    status                    text        NOT NULL,
    usage                     text        NOT NULL,

    CONSTRAINT setup_intents_are_known_by_account_and_id PRIMARY KEY (account_id, id),
    CONSTRAINT a_setup_intent_belongs_to_a_customer_of_its_own_account
        FOREIGN KEY (account_id, customer_id) REFERENCES customers (account_id, id),
    CONSTRAINT a_setup_intent_has_a_payment_method_of_its_own_account
        FOREIGN KEY (account_id, payment_method_id) REFERENCES payment_methods (account_id, id),
    CONSTRAINT a_setup_intent_status_is_known CHECK (status IN (
        'requires_payment_method', 'requires_confirmation', 'requires_action', 'succeeded',
        'canceled')),
    CONSTRAINT a_setup_intent_that_has_one_has_a_payment_method
        CHECK (status IN ('requires_payment_method', 'canceled') OR payment_method_id IS NOT NULL),
    CONSTRAINT only_a_setup_intent_that_requires_action_has_a_page
        CHECK ((holder_page_url IS NOT NULL) = (status = 'requires_action')),
    CONSTRAINT a_setup_intent_usage_is_known CHECK (usage IN ('off_session', 'on_session'))
);

CREATE INDEX setup_intents_by_customer
    ON setup_intents (account_id, customer_id, id DESC) WHERE customer_id IS NOT NULL;
CREATE INDEX setup_intents_by_payment_method
    ON setup_intents (account_id, payment_method_id, id DESC) WHERE payment_method_id IS NOT NULL;

COMMENT ON TABLE payment_intents IS 'Payments, from the wish to the money.';
COMMENT ON COLUMN payment_intents.charge_id IS
    'The succeeded charge; failed ones only name the intent.';
COMMENT ON COLUMN payment_intents.released IS 'A cancellation gave the promised money up.';
COMMENT ON TABLE setup_intents IS 'Cards that are made ready for later payments.';

ALTER TABLE charges
    ADD CONSTRAINT a_charge_pays_an_intent_of_its_own_account
        FOREIGN KEY (account_id, payment_intent_id)
        REFERENCES payment_intents (account_id, id) NOT VALID,
    ADD CONSTRAINT a_charge_of_an_intent_has_a_payment_method
        CHECK ((payment_intent_id IS NULL) = (payment_method_id IS NULL)) NOT VALID;
COMMENT ON COLUMN charges.payment_intent_id IS 'The intent whose confirmation made it.';
