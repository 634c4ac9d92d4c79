-- What POST /charges does to PostgreSQL, as a transaction that a service without this project's library
-- would write: claim the key, write the charge and its event, save the reply, COMMIT. The statements are
-- those of crates/idempotency/src/claim.rs, src/store/charges.rs, crates/webhooks/src/events.rs and
-- crates/idempotency/src/reply.rs, on the same tables. The account and the body of the reply are given
-- with --define.
\set high random(1000000000000000000, 9000000000000000000)
\set low random(1000000000000000000, 9000000000000000000)
\set amount random(100, 40000)
BEGIN;
INSERT INTO idempotency_keys
       (account_id, key, fingerprint_version, fingerprint, method, path, request_id,
        label, created_at, expires_at)
VALUES (:account::uuid, :high::text || '-' || :low::text, 1, sha256(int8send(:high)), 'POST', '/charges',
        'req_01m80wgd1gecjsw9hega0f7sw9', NULL, now(), now() + '24 hours'::interval)
ON CONFLICT DO NOTHING;
INSERT INTO charges
       (account_id, id, amount, amount_captured, currency, captured, status,
        card_brand, card_last4, card_exp_month, card_exp_year, customer, description,
        statement_descriptor, receipt_email, failure_code, decline_code, failure_message,
        order_id, metadata)
VALUES (:account::uuid,
        -- The first 48 bits are the time, as in a UUIDv7.
        (lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0')
         || substr(replace(gen_random_uuid()::text, '-', ''), 13))::uuid,
        :amount, :amount, 'usd', true, 'succeeded', 'visa', '4242', 12::smallint, 2099::smallint,
        'cus_000000', 'Order ord-0000000000', NULL, NULL, NULL, NULL, NULL, NULL,
        '{"order_id": "ord-0000000000"}')
RETURNING id, amount, amount_captured, amount_refunded, currency, captured, released,
          status, card_brand, card_last4, card_exp_month, card_exp_year, customer,
          description, statement_descriptor, receipt_email, failure_code, decline_code,
          failure_message, order_id, metadata, created_at;
WITH event AS (
    INSERT INTO events (account_id, id, type, object, request_id, idempotency_key, traceparent)
    VALUES (:account::uuid,
            (lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0')
             || substr(replace(gen_random_uuid()::text, '-', ''), 13))::uuid,
            'charge.succeeded', :body::text::json, 'req_01m80wgd1gecjsw9hega0f7sw9',
            :high::text || '-' || :low::text, NULL)
    RETURNING account_id, id, type
)
INSERT INTO webhook_deliveries (account_id, id, endpoint_id, event_id)
SELECT event.account_id,
       overlay(gen_random_uuid()::text PLACING left(event.id::text, 15) FROM 1)::uuid,
       endpoint.id, event.id
  FROM event
  JOIN webhook_endpoints AS endpoint ON endpoint.account_id = event.account_id
 WHERE endpoint.deleted_at IS NULL
   AND NOT endpoint.disabled
   AND endpoint.enabled_events && ARRAY['*', event.type];
UPDATE idempotency_keys
   SET status = 201::smallint, headers = '[["content-type", "application/json"], ["location", "/charges/ch_01m80wgd1ker4bs1qz4ww59t76"]]',
       body = convert_to(:body, 'UTF8'), resource_id = 'ch_01m80wgd1ker4bs1qz4ww59t76',
       expires_at = greatest(expires_at, expires_at + (now() - created_at))
 WHERE account_id = :account::uuid AND key = :high::text || '-' || :low::text AND status IS NULL
RETURNING request_id, method, path, fingerprint_version, fingerprint, created_at,
          expires_at, status, headers, body, resource_id, label;
COMMIT;
