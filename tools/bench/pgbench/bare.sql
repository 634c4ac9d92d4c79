-- The least that a charge under a key can be: two rows in one transaction, in tables of their own with a
-- primary key and nothing else. No check, no secondary index, no event, and the reply is written with its
-- key. The account and the body of the reply are given with --define.
\set high random(1000000000000000000, 9000000000000000000)
\set low random(1000000000000000000, 9000000000000000000)
\set amount random(100, 40000)
BEGIN;
INSERT INTO bare_keys (account_id, key, fingerprint, status, body, created_at)
VALUES (:account::uuid, :high::text || '-' || :low::text, sha256(int8send(:high)), 201::smallint,
        convert_to(:body, 'UTF8'), now())
ON CONFLICT (account_id, key) DO NOTHING;
INSERT INTO bare_charges (account_id, id, amount, currency, status, created_at)
VALUES (:account::uuid,
        -- The first 48 bits are the time, as in a UUIDv7.
        (lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0')
         || substr(replace(gen_random_uuid()::text, '-', ''), 13))::uuid,
        :amount, 'usd', 'succeeded', now());
COMMIT;
