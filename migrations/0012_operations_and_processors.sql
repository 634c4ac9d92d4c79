-- An operation may be sent again only to the processor that knows its key: another one would take it
-- for new and move the money a second time. Set by whoever first reads the operation to send it.
ALTER TABLE operations ADD COLUMN processor text;

-- Undoing a reservation deletes a pending charge or refund, and PostgreSQL then looks for operations
-- that name it, settled ones included.
CREATE INDEX operations_by_charge ON operations (account_id, charge_id);
CREATE INDEX operations_by_refund ON operations (account_id, refund_id) WHERE refund_id IS NOT NULL;

COMMENT ON COLUMN operations.processor IS 'Scheme, host and port of the processor that was asked.';
