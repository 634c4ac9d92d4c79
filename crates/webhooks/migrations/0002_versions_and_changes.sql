-- What receivers of webhooks read besides the object: which version of the API it is written in,
-- and what it was before. Rows of the release before have neither, and are sent as they were: every
-- attempt of a delivery has the same bytes.
SET LOCAL lock_timeout = '2s';

ALTER TABLE events
    ADD COLUMN api_version         text,
    -- json, for the reason that object is.
    ADD COLUMN previous_attributes json;

ALTER TABLE webhook_endpoints
    ADD COLUMN api_version       text,
    ADD COLUMN standard_webhooks boolean NOT NULL DEFAULT false;

COMMENT ON COLUMN events.api_version IS
    'The version of the API that the event is written in, unless its endpoint has one.';
COMMENT ON COLUMN events.previous_attributes IS
    'Of a change: the members that changed, with the values that they had; NULL of other events.';
COMMENT ON COLUMN webhook_endpoints.api_version IS
    'The version of the API that events are written in for this endpoint; NULL: that of the event.';
COMMENT ON COLUMN webhook_endpoints.standard_webhooks IS
    'Whether the headers of Standard Webhooks are sent too.';
