-- Without a collation, text is sorted by the locale of the database, whose order comes from the C library of the
-- operating system. Another version of that library may order it differently: an index then misses what it holds,
-- and a second order gets a client_order_id that the unique index should have refused. Bytes are sorted alike
-- everywhere.
--
-- No row is rewritten. Both indexes are built again, about two seconds for a million of their rows each, and
-- requests for orders wait or are answered 503 or 409 meanwhile. A new type drops the statistics of a column, which
-- the planner needs, so they are taken again.
SET LOCAL lock_timeout = '2s';

ALTER TABLE orders
    ALTER COLUMN client_order_id TYPE text COLLATE "C",
    ALTER COLUMN customer TYPE text COLLATE "C";
ANALYZE orders (client_order_id, customer);
