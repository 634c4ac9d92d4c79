-- What the log has of each minute, so that a page about a day reads 1,440 rows and not millions. The worker that
-- writes the log adds to them in the same transaction. They begin with this migration, and go with the log's rows.
SET LOCAL lock_timeout = '2s';

CREATE TABLE request_counts (
    account_id     uuid        NOT NULL,
    minute         timestamptz NOT NULL,
    outcomes       bigint[]    NOT NULL,
    durations      bigint[]    NOT NULL,
    second_effects bigint      NOT NULL,

    CONSTRAINT request_counts_are_known_by_account_and_minute PRIMARY KEY (account_id, minute)
    -- The row of this minute is written many times a second. Room on its page keeps its index as it is.
) WITH (fillfactor = 50);

COMMENT ON TABLE request_counts IS 'How many requests of the request_log came in each minute. Some may be missing.';
COMMENT ON COLUMN request_counts.outcomes IS
    'How many were executed, replayed, refused, reused, in_use, failed, read and unanswered, in this order.';
COMMENT ON COLUMN request_counts.durations IS
    'How many were answered within 0.5, 1, 2, 5, 10, 20, 50 … ms, up to 50 s, or later. Reads are left out.';
COMMENT ON COLUMN request_counts.second_effects IS
    'How many were replays of a 2xx: each would have done the work again.';
