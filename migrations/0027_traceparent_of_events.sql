-- A webhook belongs to the trace of the request that made its event happen, and is sent by a worker that
-- knows of the request only what is stored.
SET LOCAL lock_timeout = '2s';

ALTER TABLE events ADD COLUMN traceparent text;

COMMENT ON COLUMN events.traceparent IS
    'W3C Trace Context of the request that made the change; NULL if it was not traced.';
