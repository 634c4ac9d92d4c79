SET LOCAL lock_timeout = '2s';

-- NULL in requests that no test of retries sent, which are most: they take no room.
ALTER TABLE request_log
    ADD COLUMN fingerprint bytea,
    ADD COLUMN fault text;
