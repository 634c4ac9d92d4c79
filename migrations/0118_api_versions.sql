-- Events name the version of the API that their request asked for. What outlives its request keeps
-- it for the events that are still to be written.
SET LOCAL lock_timeout = '2s';

ALTER TABLE checkouts ADD COLUMN api_version text;

COMMENT ON COLUMN checkouts.api_version IS
    'What the request asked for with Stripe-Version; NULL: the default of the release that ends it.';
