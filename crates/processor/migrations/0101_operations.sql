-- The simulated card processor's own books, in a database of its own: nothing here is shared with
-- the API that asks it, above all no transaction. Ids are sorted by bytes (COLLATE "C"): another
-- version of the C library may sort the text of a locale differently, and an index then misses what
-- it holds.

CREATE SCHEMA processor;

-- What was promised, taken and given back for each charge, by whatever operations.
CREATE TABLE processor.charges (
    charge     text   COLLATE "C" PRIMARY KEY,
    authorized bigint NOT NULL,
    captured   bigint NOT NULL,
    released   bigint NOT NULL DEFAULT 0,
    refunded   bigint NOT NULL DEFAULT 0,
    CONSTRAINT sums_are_never_negative
        CHECK (authorized > 0 AND captured >= 0 AND released >= 0 AND refunded >= 0),
    CONSTRAINT no_more_is_captured_or_released_than_was_authorized
        CHECK (captured + released <= authorized),
    CONSTRAINT no_more_is_refunded_than_was_captured
        CHECK (refunded <= captured)
);

COMMENT ON TABLE processor.charges IS
    'Sums in minor units. A second authorization of one charge under another key adds up: a double charge shows.';

-- The ledger: one line for each operation that was executed or declined. The line is its own
-- idempotency record. There is no second row that could be missing or come too late.
CREATE TABLE processor.operations (
    id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key          uuid,
    instruction  jsonb       NOT NULL,
    verb         text        NOT NULL
        GENERATED ALWAYS AS (instruction ->> 'verb') STORED,
    charge       text        COLLATE "C" NOT NULL
        GENERATED ALWAYS AS (instruction ->> 'charge') STORED,
    amount       bigint      NOT NULL
        GENERATED ALWAYS AS ((instruction ->> 'amount')::bigint) STORED,
    code         text,
    decline_code text,
    executed_at  timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT a_key_is_executed_once UNIQUE (key),
    CONSTRAINT only_a_decline_has_a_reason CHECK (decline_code IS NULL OR code IS NOT NULL)
);

COMMENT ON COLUMN processor.operations.key IS
    'The key that it was sent under. NULL once the key is forgotten: the line stays, a resend would be new.';
COMMENT ON COLUMN processor.operations.code IS
    'Why it was declined. NULL: it was executed.';

CREATE INDEX operations_of_a_charge ON processor.operations (charge);
