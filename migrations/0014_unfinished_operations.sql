-- no-transaction
-- A start and `charge-once operations list` look for what has no answer, the oldest first: few of the
-- rows of a table that grows with every charge across a network.
CREATE INDEX CONCURRENTLY operations_without_an_answer
    ON operations (created_at) WHERE completed_at IS NULL;
