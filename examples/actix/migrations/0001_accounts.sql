CREATE TABLE accounts (
    id bigint PRIMARY KEY,
    balance bigint NOT NULL CONSTRAINT no_account_is_overdrawn CHECK (balance >= 0)
);
COMMENT ON COLUMN accounts.balance IS 'Minor units.';

-- Two accounts to try transfers with.
INSERT INTO accounts (id, balance) VALUES (1, 1000), (2, 1000);
