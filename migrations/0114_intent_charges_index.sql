-- no-transaction
CREATE UNIQUE INDEX CONCURRENTLY an_intent_has_one_succeeded_charge
    ON charges (account_id, payment_intent_id)
    WHERE status IN ('succeeded', 'pending') AND payment_intent_id IS NOT NULL;
