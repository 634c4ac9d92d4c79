SET LOCAL lock_timeout = '2s';

-- What clients write and no rule, index or filter reads is one column, so that a new member needs no
-- migration. In a row with NULL, each such member still has its own column. The release before has
-- neither table, so no replica of it reads or writes the columns.
ALTER TABLE customers
    ADD COLUMN details jsonb,
    ALTER COLUMN preferred_locales SET DEFAULT '{}';
ALTER TABLE payment_intents
    ADD COLUMN details jsonb;

COMMENT ON COLUMN customers.details IS
    'Names, addresses and other members that no rule reads; NULL: they are columns';
COMMENT ON COLUMN payment_intents.details IS
    'Description, receipt and shipping, which no rule reads; NULL: they are columns';
