-- no-transaction
CREATE INDEX CONCURRENTLY pending_charges_by_payment_method
    ON charges (account_id, payment_method_id)
    WHERE status = 'pending' AND payment_method_id IS NOT NULL;
