-- Keys in flight whose request has an effect outside the database.
--
-- Such a request takes two transactions with a network call between them. The first one commits the
-- key's row without an outcome, and this row beside it: the point to recover from. The process that
-- works on the operation holds the lease. When the lease has run out, another process may take it
-- over. The transaction that completes or releases the key deletes this row.
--
-- There is no foreign key to idempotency_keys: it would cost every row that the sweep deletes a
-- look here. Both rows are written, and the lease is deleted, by transactions that hold both.
CREATE TABLE idempotency_leases (
    account_id    uuid        NOT NULL,
    key           text        COLLATE "C" NOT NULL,
    kind          text        COLLATE "C" NOT NULL,
    operation     uuid        NOT NULL,
    token         uuid        NOT NULL,
    leased_until  timestamptz NOT NULL,
    recover_after timestamptz NOT NULL,
    takeovers     integer     NOT NULL DEFAULT 0,
    in_doubt      boolean     NOT NULL DEFAULT false,

    CONSTRAINT one_lease_per_account_and_key PRIMARY KEY (account_id, key),
    CONSTRAINT one_lease_per_operation UNIQUE (account_id, operation),
    CONSTRAINT takeovers_are_counted_upwards CHECK (takeovers >= 0)
);

-- A reconciler that finds nothing to do looks once a second, and so do metrics.
CREATE INDEX idempotency_leases_by_recovery ON idempotency_leases (kind, recover_after);
-- The reconciler gives each account its turn, and takes the operation that waits longest of the
-- account whose turn it is.
CREATE INDEX idempotency_leases_by_account
    ON idempotency_leases (kind, account_id, recover_after);

COMMENT ON TABLE idempotency_leases IS
    'One row per key in flight with an effect outside the database: which process works on it.';
COMMENT ON COLUMN idempotency_leases.kind IS
    'Which implementation completes it: the reconciler of one kind leaves the others alone.';
COMMENT ON COLUMN idempotency_leases.operation IS
    'The key that the effect is asked for under: one per execution, kept across takeovers.';
COMMENT ON COLUMN idempotency_leases.token IS
    'Fencing: a fresh random uuid for every claim and takeover. Only its holder may complete the key.';
COMMENT ON COLUMN idempotency_leases.leased_until IS
    'Until then the holder is trusted to be at work, by the database clock.';
COMMENT ON COLUMN idempotency_leases.recover_after IS
    'From then on the reconciler takes it over; a client''s retry may do so from leased_until.';
COMMENT ON COLUMN idempotency_leases.in_doubt IS
    'An attempt may have been executed. For people: the code takes every takeover to be in doubt.';
COMMENT ON INDEX idempotency_leases_by_recovery IS
    'For the look whether anything is due, of any account, and for the count of what is in flight.';
