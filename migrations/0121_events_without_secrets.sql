SET LOCAL lock_timeout = '2s';

-- An event holds its object as clients saw it: an intent with its client secret, and with the address
-- of the page on which the card's holder authenticates. Either completes a payment. Who only looks, as
-- `charge-once check` and people on call do, reads events here. The masks look at the text and not at
-- members, so an object inside an object has none either.
CREATE VIEW events_without_secrets AS
SELECT account_id, id, type, object ->> 'id' AS object_id,
       regexp_replace(
           regexp_replace(object::text, '((pi|seti)_[[:alnum:]]+_secret_)[[:alnum:]]+', '\1***', 'g'),
           '(/authenticate/[^/"]+/[^/"]+/)[[:alnum:]]+', '\1***', 'g')::json AS object,
       regexp_replace(
           regexp_replace(previous_attributes::text, '((pi|seti)_[[:alnum:]]+_secret_)[[:alnum:]]+', '\1***', 'g'),
           '(/authenticate/[^/"]+/[^/"]+/)[[:alnum:]]+', '\1***', 'g')::json AS previous_attributes,
       request_id, idempotency_key, created_at, traceparent, api_version
  FROM events;

COMMENT ON VIEW events_without_secrets IS
    'Events, with client secrets and tokens of holders'' pages masked in their objects.';
