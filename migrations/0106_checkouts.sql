-- An order, its charge and its items in one request. Each step commits by itself and is written
-- down here by the transaction that runs it. These rows alone decide what is still to be done: they
-- outlive a crash and the idempotency records of single steps.
CREATE TABLE checkouts (
    account_id        uuid        NOT NULL,
    id                uuid        NOT NULL,
    amount            bigint      NOT NULL,
    currency          text        NOT NULL,
    items             jsonb       NOT NULL,
    customer          text        COLLATE "C",
    metadata          jsonb       NOT NULL,
    -- A token, never a number: a process that continues after a crash must be able to charge the
    -- card.
    card_token        text        NOT NULL,
    card_exp_month    smallint    NOT NULL,
    card_exp_year     smallint    NOT NULL,
    status            text        NOT NULL DEFAULT 'in_progress',
    order_id          uuid,
    -- Why a step was refused for good: the reply, once everything is undone.
    failure_code      text,
    failure_message   text,
    failure_param     text,
    decline_code      text,
    refused_refunds   integer     NOT NULL DEFAULT 0,
    refund_refused_at timestamptz,
    -- How the reply is to look, and which request the events name.
    dialect           text        NOT NULL,
    request_id        text        NOT NULL,
    idempotency_key   text        COLLATE "C" NOT NULL,
    created_at        timestamptz NOT NULL DEFAULT now(),

    CONSTRAINT checkouts_are_known_by_account_and_id PRIMARY KEY (account_id, id),
    CONSTRAINT a_checkout_makes_an_order_of_its_own_account
        FOREIGN KEY (account_id, order_id) REFERENCES orders (account_id, id),
    CONSTRAINT an_order_is_made_by_one_checkout UNIQUE (account_id, order_id),
    CONSTRAINT a_checkout_total_is_1_to_99999999 CHECK (amount BETWEEN 1 AND 99999999),
    CONSTRAINT a_checkout_currency_is_three_lower_case_letters CHECK (currency ~ '^[a-z]{3}$'),
    CONSTRAINT a_checkout_has_1_to_100_items CHECK (jsonb_array_length(items) BETWEEN 1 AND 100),
    CONSTRAINT a_checkout_status_is_known
        CHECK (status IN ('in_progress', 'completed', 'canceled')),
    CONSTRAINT a_checkout_dialect_is_known CHECK (dialect IN ('ietf', 'stripe')),
    CONSTRAINT a_refused_checkout_says_why
        CHECK ((failure_code IS NULL) = (failure_message IS NULL)
               AND (failure_code IS NOT NULL OR (failure_param IS NULL AND decline_code IS NULL))),
    CONSTRAINT a_checkout_that_ended_has_an_order
        CHECK (status = 'in_progress' OR order_id IS NOT NULL),
    CONSTRAINT a_checkout_is_canceled_for_a_reason
        CHECK (status = 'in_progress' OR (status = 'canceled') = (failure_code IS NOT NULL))
);

CREATE INDEX checkouts_by_customer
    ON checkouts (account_id, customer, id DESC) WHERE customer IS NOT NULL;
-- Checkouts that wait for a refund that the processor refused: few, and a person has to see each
-- one.
CREATE INDEX checkouts_with_refused_refunds
    ON checkouts (account_id, id) WHERE status = 'in_progress' AND refused_refunds > 0;

CREATE TABLE checkout_steps (
    account_id  uuid     NOT NULL,
    checkout_id uuid     NOT NULL,
    -- The steps run in this order; the first pending one is next.
    position    smallint NOT NULL,
    name        text     NOT NULL,
    state       text     NOT NULL DEFAULT 'pending',
    resource    text,
    attempts    integer  NOT NULL DEFAULT 0,

    CONSTRAINT a_checkout_has_each_step_once PRIMARY KEY (account_id, checkout_id, position),
    CONSTRAINT a_step_belongs_to_a_checkout_of_its_own_account
        FOREIGN KEY (account_id, checkout_id) REFERENCES checkouts (account_id, id)
        ON DELETE CASCADE,
    CONSTRAINT a_step_is_known_by_its_name_and_position CHECK ((position, name) IN (
        (1, 'create_order'), (2, 'create_charge'), (3, 'allocate_inventory'),
        (4, 'create_refund'), (5, 'cancel_order'))),
    CONSTRAINT a_step_state_is_known CHECK (state IN ('pending', 'done', 'refused', 'skipped')),
    CONSTRAINT a_step_that_is_done_names_its_resource
        CHECK (state <> 'done' OR resource IS NOT NULL),
    CONSTRAINT a_declined_charge_is_named
        CHECK (name <> 'create_charge' OR state <> 'refused' OR resource IS NOT NULL),
    CONSTRAINT a_step_is_counted_upwards CHECK (attempts >= 0)
);

COMMENT ON TABLE checkouts IS 'Checkouts: an order, its charge and its items, run step by step.';
COMMENT ON TABLE checkout_steps IS
    'The recovery points of checkouts: what has run, what it made, and what is next.';
COMMENT ON COLUMN checkout_steps.attempts IS
    'How often the step was started: when it became the next one, and at each takeover since.';
