-- no-transaction
-- A checkout that never began is deleted, and PostgreSQL then looks for operations that name it. The list
-- of operations looks for the newest refund of a checkout.
CREATE INDEX CONCURRENTLY operations_by_checkout
    ON operations (account_id, checkout_id, id DESC) WHERE checkout_id IS NOT NULL;
