-- Requests that belong together by their client's word. Like 0001 this names no other table, so that
-- it can be copied with it.
--
-- The name is written by the transaction that claims the key. It is no part of the fingerprint: a
-- retry without it, or with another one, is the same request.
ALTER TABLE idempotency_keys
    ADD COLUMN workflow text COLLATE "C",

    ADD CONSTRAINT a_workflow_has_a_name_of_1_to_255_bytes
        CHECK (octet_length(workflow) BETWEEN 1 AND 255);

-- A workflow is read in this order.
CREATE INDEX idempotency_keys_by_workflow ON idempotency_keys (account_id, workflow, created_at, key)
    WHERE workflow IS NOT NULL;

COMMENT ON COLUMN idempotency_keys.workflow IS
    'What the client calls the requests that this one belongs to, as the first use of the key said.';
