-- A foreign key locks the row that it refers to, FOR KEY SHARE, in every transaction that inserts.
-- All transactions of one account met at its one row of accounts. Two of them at a time make
-- PostgreSQL write a multixact: one for each transaction, a second space of ids that runs out and
-- has to be vacuumed like the first. The rows of webhook_endpoints were locked for every event.
--
-- What the keys kept true needs no lock. An account is never deleted, only its API keys are revoked,
-- and a request has its account from its API key. An endpoint is never deleted either, only marked,
-- and a delivery has its endpoint from the statement that reads it. The other foreign keys stay: they
-- refer to rows that the transaction has just written, or has locked anyway in order to change them.
SET LOCAL lock_timeout = '2s';

ALTER TABLE orders DROP CONSTRAINT an_order_belongs_to_an_account;
ALTER TABLE charges DROP CONSTRAINT a_charge_belongs_to_an_account;
ALTER TABLE events DROP CONSTRAINT an_event_belongs_to_an_account;
ALTER TABLE inventory DROP CONSTRAINT inventory_belongs_to_an_account;
ALTER TABLE checkouts DROP CONSTRAINT a_checkout_belongs_to_an_account;
ALTER TABLE webhook_deliveries DROP CONSTRAINT a_delivery_goes_to_an_endpoint_of_its_own_account;
