-- What each charge is, as it was retrieved last. The row is locked before the charge is retrieved, so that an older look
-- at it never overwrites a newer one.
CREATE TABLE charges (
    id text COLLATE "C" PRIMARY KEY,
    amount_captured bigint NOT NULL DEFAULT 0,
    amount_refunded bigint NOT NULL DEFAULT 0
);
COMMENT ON TABLE charges IS 'The state of charges, retrieved after an event and never taken from one.';
