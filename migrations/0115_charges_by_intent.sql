-- no-transaction
CREATE INDEX CONCURRENTLY charges_by_payment_intent
    ON charges (account_id, payment_intent_id, id DESC) WHERE payment_intent_id IS NOT NULL;
