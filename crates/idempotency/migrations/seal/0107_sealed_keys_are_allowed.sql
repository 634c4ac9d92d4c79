SET LOCAL lock_timeout = '2s';

-- 0105 has made the index.
ALTER TABLE idempotency_keys DROP CONSTRAINT IF EXISTS no_record_is_sealed_without_its_index;
