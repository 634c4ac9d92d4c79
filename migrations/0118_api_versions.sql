-- Events name the version of the API that their request asked for. What outlives its request keeps
-- it for the events that are still to be written.
SET LOCAL lock_timeout = '2s';

ALTER TABLE operations ADD COLUMN api_version text;
ALTER TABLE checkouts ADD COLUMN api_version text;

COMMENT ON COLUMN operations.api_version IS
    'What the request asked for with Stripe-Version; NULL: the default of the release that completes it.';
COMMENT ON COLUMN checkouts.api_version IS
    'What the request asked for with Stripe-Version; NULL: the default of the release that ends it.';
