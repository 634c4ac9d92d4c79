SET LOCAL lock_timeout = '2s';

-- Without its index, a sealed record of a key could stand beside one of the key itself, and the
-- request be executed twice. The migrations of seal make the index, and then drop this constraint.
-- Where the index is there already, records are sealed, and servers may be at work: until it were
-- dropped, the constraint would refuse each new one, and each change of an old one.
DO $$
BEGIN
    IF NOT EXISTS (SELECT
                     FROM pg_index
                    WHERE indexrelid = to_regclass('one_record_per_account_and_key_sealed_or_not')
                      AND indisvalid) THEN
        ALTER TABLE idempotency_keys
            ADD CONSTRAINT no_record_is_sealed_without_its_index
            CHECK (key NOT LIKE ',sealed.%') NOT VALID;
    END IF;
END
$$;
