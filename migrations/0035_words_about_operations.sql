-- no-transaction
-- A person may say two things about one operation: a checkout's refund was declined, and later its money was
-- returned elsewhere. Each word is kept, once. This index becomes the table's primary key in the next migration.
CREATE UNIQUE INDEX CONCURRENTLY manual_resolutions_by_word
    ON manual_resolutions (account_id, operation_id, resolution);
