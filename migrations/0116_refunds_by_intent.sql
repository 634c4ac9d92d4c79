-- no-transaction
CREATE INDEX CONCURRENTLY refunds_by_payment_intent
    ON refunds (account_id, payment_intent_id, id DESC) WHERE payment_intent_id IS NOT NULL;
