SET LOCAL lock_timeout = '2s';

-- Without its index, a sealed record of a key could stand beside one of the key itself, and the
-- request be executed twice. The migrations of seal make the index, and then drop this constraint.
ALTER TABLE idempotency_keys
    ADD CONSTRAINT no_record_is_sealed_without_its_index CHECK (key NOT LIKE ',sealed.%') NOT VALID;
