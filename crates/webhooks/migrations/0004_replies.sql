-- What receivers answered, for people who look at attempts. It may hold anything, so it is kept for less
-- long than the deliveries. No foreign key leads to these: a reply may outlive its delivery, and each key
-- would cost every attempt a lock.
SET LOCAL lock_timeout = '2s';

CREATE TABLE webhook_replies (
    account_id  uuid        NOT NULL,
    delivery_id uuid        NOT NULL,
    number      integer     NOT NULL,
    reply       text        NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),

    CONSTRAINT webhook_replies_are_known_by_account_delivery_and_number
        PRIMARY KEY (account_id, delivery_id, number),
    CONSTRAINT a_webhook_reply_has_1_to_1024_bytes CHECK (octet_length(reply) BETWEEN 1 AND 1024)
) WITH (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_analyze_scale_factor = 0.02
);

COMMENT ON TABLE webhook_replies IS
    'The beginning of the body that a receiver answered an attempt with, if it sent one.';
COMMENT ON COLUMN webhook_replies.number IS 'Which of the delivery''s attempts, from 1.';
COMMENT ON COLUMN webhook_replies.reply IS 'Without control characters; of a receiver, so it may hold secrets.';
