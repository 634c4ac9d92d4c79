-- no-transaction
-- A sealed record has ',sealed.' and a hash in place of its key. This index is the arbiter between it
-- and a record that has the key itself, whichever process writes which. No record is sealed without.
CREATE UNIQUE INDEX CONCURRENTLY one_record_per_account_and_key_sealed_or_not
    ON idempotency_keys (account_id, (CASE
       WHEN key LIKE ',sealed.%' THEN decode(substr(key, 9), 'hex')
       ELSE sha256((account_id::text || ':' || key)::bytea) END));
