-- Which API key came from DEV_API_KEY. When another value is set, the server revokes the key of the value
-- before; and that value, set again, makes its key valid again. A key that a person revoked stays revoked:
-- that takes the mark away.
--
-- Keys of earlier releases have no mark. The server marks the one that DEV_API_KEY has when it starts.
SET LOCAL lock_timeout = '2s';

ALTER TABLE api_keys ADD COLUMN from_dev_api_key boolean NOT NULL DEFAULT false;

COMMENT ON COLUMN api_keys.from_dev_api_key IS
    'Whether it came from DEV_API_KEY, whose next value revokes it.';
