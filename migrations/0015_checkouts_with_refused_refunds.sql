-- no-transaction
-- Checkouts that wait for a refund that the processor refused: few, and a person has to see each one.
CREATE INDEX CONCURRENTLY checkouts_with_refused_refunds
    ON checkouts (account_id, id) WHERE status = 'in_progress' AND refused_refunds > 0;
