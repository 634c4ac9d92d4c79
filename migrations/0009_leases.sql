-- Keys whose request has an effect outside the database. Like 0001 this names no other table, so
-- that it can be copied with it.
--
-- Such a request takes two transactions with a network between them. The first one commits its row
-- without an outcome: the key is in flight, and this row is the point to recover from. Whoever works
-- on it holds the lease; when that has run out, anybody may take it over and go on.
ALTER TABLE idempotency_keys
    ADD COLUMN operation     uuid,
    ADD COLUMN lease_token   uuid,
    ADD COLUMN leased_until  timestamptz,
    ADD COLUMN recover_after timestamptz,
    ADD COLUMN takeovers     integer NOT NULL DEFAULT 0,
    ADD COLUMN in_doubt      boolean NOT NULL DEFAULT false,

    ADD CONSTRAINT a_lease_is_whole CHECK (
        (operation IS NULL) = (lease_token IS NULL)
        AND (operation IS NULL) = (leased_until IS NULL)
        AND (operation IS NULL) = (recover_after IS NULL)),
    ADD CONSTRAINT a_finished_key_is_not_leased CHECK (status IS NULL OR operation IS NULL),
    ADD CONSTRAINT only_an_operation_is_in_doubt CHECK (operation IS NOT NULL OR NOT in_doubt);

-- The reconciler walks what is left in flight in this order.
CREATE INDEX idempotency_keys_by_recovery ON idempotency_keys (recover_after) WHERE operation IS NOT NULL;

COMMENT ON COLUMN idempotency_keys.operation IS
    'The key that the effect is asked for under: one per execution, kept across takeovers.';
COMMENT ON COLUMN idempotency_keys.lease_token IS
    'Fencing: a fresh random uuid for every claim and takeover. Only its holder may settle.';
COMMENT ON COLUMN idempotency_keys.leased_until IS
    'Until then its holder is trusted to be at work, by the database clock.';
COMMENT ON COLUMN idempotency_keys.recover_after IS
    'From then on the reconciler goes on with it; a client''s retry may do so from leased_until.';
COMMENT ON COLUMN idempotency_keys.in_doubt IS
    'An attempt may have been executed. Only a definite answer for the operation ends this.';
