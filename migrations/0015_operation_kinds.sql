-- Effects outside the database come in more than one kind, and each has workers of its own that go on
-- with it after a crash. Like 0001 and 0009 this names no other table, so that it can be copied with
-- them.
ALTER TABLE idempotency_keys ADD COLUMN operation_kind text;

-- What is in flight while this runs was begun by the only kind that there was.
UPDATE idempotency_keys SET operation_kind = 'processor' WHERE operation IS NOT NULL;

ALTER TABLE idempotency_keys
    ADD CONSTRAINT an_operation_has_a_kind CHECK ((operation IS NULL) = (operation_kind IS NULL));

-- Each kind's workers walk their own part.
DROP INDEX idempotency_keys_by_recovery;
CREATE INDEX idempotency_keys_by_recovery
    ON idempotency_keys (operation_kind, recover_after) WHERE operation IS NOT NULL;

COMMENT ON COLUMN idempotency_keys.operation_kind IS
    'Who goes on with it: workers of one kind leave the others'' alone.';
