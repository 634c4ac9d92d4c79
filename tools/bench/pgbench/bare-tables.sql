-- The tables of bare.sql.
CREATE TABLE bare_keys (
    account_id  uuid        NOT NULL,
    key         text        COLLATE "C" NOT NULL,
    fingerprint bytea       NOT NULL,
    status      smallint    NOT NULL,
    body        bytea       NOT NULL,
    created_at  timestamptz NOT NULL,
    PRIMARY KEY (account_id, key)
);
CREATE TABLE bare_charges (
    account_id uuid        NOT NULL,
    id         uuid        NOT NULL,
    amount     bigint      NOT NULL,
    currency   text        NOT NULL,
    status     text        NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (account_id, id)
);
