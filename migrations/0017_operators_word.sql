-- What the processor never answers for, a person settles (docs/processor.md). Who did, and by which
-- word, outlives what the word undid: this names no other table, and keeps the operation itself.
CREATE TABLE operators_words (
    account_id   uuid        NOT NULL,
    operation_id uuid        NOT NULL,
    word         text        NOT NULL,
    said_by      text        NOT NULL,
    said_at      timestamptz NOT NULL DEFAULT now(),
    -- Its row as it waited for an answer: by "not_executed" that row is deleted.
    operation    jsonb       NOT NULL,

    CONSTRAINT an_operation_has_one_operators_word PRIMARY KEY (account_id, operation_id),
    CONSTRAINT an_operators_word_is_known CHECK (word IN ('done', 'declined', 'not_executed')),
    CONSTRAINT an_operator_has_a_name CHECK (char_length(said_by) BETWEEN 1 AND 100)
);

COMMENT ON TABLE operators_words IS
    'Operations that a person settled, where the processor said the same or nothing certain.';
