-- Operations that a person resolved because the processor never gave a definite answer
-- (docs/processor.md). The table refers to no other table and keeps a copy of the operation:
-- "not_executed" deletes the operation itself, and this record outlives it.
CREATE TABLE manual_resolutions (
    account_id   uuid        NOT NULL,
    operation_id uuid        NOT NULL,
    resolution   text        NOT NULL,
    resolved_by  text        NOT NULL,
    resolved_at  timestamptz NOT NULL DEFAULT now(),
    -- The row of the operation while it waited for an answer.
    operation    jsonb       NOT NULL,

    CONSTRAINT an_operation_is_resolved_by_hand_once PRIMARY KEY (account_id, operation_id),
    CONSTRAINT a_resolution_is_known
        CHECK (resolution IN ('done', 'declined', 'not_executed')),
    CONSTRAINT a_resolution_names_a_person CHECK (char_length(resolved_by) BETWEEN 1 AND 100)
);

COMMENT ON TABLE manual_resolutions IS
    'Operations that a person resolved, where the processor said the same or nothing certain.';
