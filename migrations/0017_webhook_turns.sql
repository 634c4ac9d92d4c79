-- Webhooks take turns: by account, then by endpoint. Before, a claim took what had been due for the
-- longest, so the backlog of one account came before everything newer, and each claim walked
-- through all endpoints that had anything pending, due or not.
--
-- A pending delivery is ready, or it waits: for its next attempt, or for the end of an attempt. An
-- endpoint has its turn if it has something ready. The workers find those endpoints by jumping from
-- one to the next along an index, so that the cost is that of the endpoints that are due, and not that
-- of the deliveries, nor of the endpoints whose retries wait. Moving the deliveries whose time has come
-- from waiting to ready is the workers' task, in batches.
--
-- There is no row for an endpoint that says when it is due. Each charge would have to lock and change
-- that row, and all charges of an account would queue for it. The transaction of a change only inserts.
--
-- Side by side with the release before, which neither reads nor writes these columns:
--
-- * The rows of before wait (false), and the workers make them ready when they are due. Rows that a
--   replica of the release before inserts are ready (true), like those of this release. Neither default
--   rewrites a row.
-- * What such a replica has claimed, or has put off after a failure, stays marked as ready though it is
--   not due. A claim of this release sees that by next_attempt_at, sends nothing, and lets the row wait.
-- * What this release has claimed or put off is not due for a replica of the release before either.
-- * An endpoint that such a replica deletes has canceled_at NULL, as after a deletion by this release,
--   and so do all that were deleted before. The workers look at each of them once.
-- * Such a replica claims along webhook_deliveries_by_endpoint_and_next_attempt. The next release drops
--   that index.
SET LOCAL lock_timeout = '2s';

ALTER TABLE webhook_deliveries ADD COLUMN ready boolean NOT NULL DEFAULT false;
ALTER TABLE webhook_deliveries ALTER COLUMN ready SET DEFAULT true;

-- Deleting an endpoint takes the time of one row. The workers cancel afterwards what was pending for it,
-- in batches, and find the endpoint by this mark.
ALTER TABLE webhook_endpoints ADD COLUMN canceled_at timestamptz;

COMMENT ON COLUMN webhook_deliveries.ready IS
    'Of a pending delivery: may be claimed now. False while an attempt is made, and until the next is due.';
COMMENT ON COLUMN webhook_endpoints.canceled_at IS
    'When the deliveries that were pending for the deleted endpoint had been canceled.';
