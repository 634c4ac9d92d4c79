-- The workers pass over whom they send as much to as they may. An index on the time alone leads them
-- through everything that is due to those: with a million deliveries to one endpoint that doesn't
-- answer, each claim read all of them. With this one a claim looks at one delivery for each endpoint
-- that has any pending, the oldest, whatever the backlog behind it.
CREATE INDEX webhook_deliveries_by_endpoint_and_next_attempt
    ON webhook_deliveries (account_id, endpoint_id, next_attempt_at) WHERE status = 'pending';
-- Nothing but the claim used it.
DROP INDEX webhook_deliveries_by_next_attempt;
