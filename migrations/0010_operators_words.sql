-- Operations that a person settled because the processor never gave a definite answer
-- (docs/processor.md). The table refers to no other table and keeps a copy of the operation:
-- "not_executed" deletes the operation itself, and this record outlives it.
CREATE TABLE operators_words (
    account_id   uuid        NOT NULL,
    operation_id uuid        NOT NULL,
    word         text        NOT NULL,
    said_by      text        NOT NULL,
    said_at      timestamptz NOT NULL DEFAULT now(),
    -- The row of the operation while it waited for an answer.
    operation    jsonb       NOT NULL,

    CONSTRAINT an_operation_has_one_operators_word PRIMARY KEY (account_id, operation_id),
    CONSTRAINT an_operators_word_is_known CHECK (word IN ('done', 'declined', 'not_executed')),
    CONSTRAINT an_operator_has_a_name CHECK (char_length(said_by) BETWEEN 1 AND 100)
);

COMMENT ON TABLE operators_words IS
    'Operations that a person settled, where the processor said the same or nothing certain.';
